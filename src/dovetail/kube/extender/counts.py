"""What the extender has answered, for /metrics. Every label has the values of an enumeration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from time import perf_counter

from dovetail.kube.histogram import Histogram

# A filter of many nodes takes milliseconds; a bind waits for the API server, and up to 28 s for HAMi's node lock.
REQUEST_SECONDS = (1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Verb(StrEnum):
    FILTER = "filter"
    PRIORITIZE = "prioritize"
    BIND = "bind"
    PREEMPT = "preempt"


class AnswerOutcome(StrEnum):
    OK = "ok"  # filter: a node is left; bind: the pod is bound; preempt: a node is named
    NO_NODE = "no-node"  # filter and preempt: no node is for the pod
    ERROR = "error"  # not served now, or the bind did not happen: the answer says why
    UNREADABLE = "unreadable"  # the request is not of the protocol
    FAILED = "failed"  # an exception: answered with status 500


class CountedRequest:
    """A request under way, and how it was answered."""

    def __init__(self) -> None:
        self.outcome = AnswerOutcome.OK


class ExtenderCounts:
    """Counts since the process started. Every series exists from the start, so that a rate sees the first event."""

    def __init__(self) -> None:
        self.answers = Counter({(verb, outcome): 0 for verb in Verb for outcome in AnswerOutcome})
        self.seconds = {verb: Histogram(REQUEST_SECONDS) for verb in Verb}

    @contextmanager
    def request(self, verb: Verb) -> Iterator[CountedRequest]:
        """Count the request that is answered while the block runs; its outcome is OK unless the block sets another."""
        began, counted = perf_counter(), CountedRequest()
        try:
            yield counted
        except BaseException:
            counted.outcome = AnswerOutcome.FAILED
            raise
        finally:
            self.seconds[verb].observe(perf_counter() - began)
            self.answers[verb, counted.outcome] += 1
