"""What the admission webhook has answered, counted by words of a fixed list. live/metrics/webhook.py shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from time import perf_counter

from dovetail.kube.admission.review import DenialCause, Operation, PodVerdict
from dovetail.kube.histogram import Histogram

REVIEW_SECONDS = (5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class ReviewOutcome(StrEnum):
    UNTOUCHED = "untouched"  # no pod with GPUs, or another scheduler's
    ADMITTED = "admitted"
    DENIED = "denied"
    UNREADABLE = "unreadable"  # no AdmissionReview: answered with status 400
    FAILED = "failed"  # an exception: answered with status 500


class Mutation(StrEnum):
    SCHEDULER_NAME = "scheduler-name"
    AMOUNTS = "amounts"
    ENVIRONMENT = "environment"
    RUNTIME_CLASS = "runtime-class"


class WebhookCounts:
    """Counts since the process started. Every series exists from the start, so that a rate sees the first event."""

    def __init__(self) -> None:
        self.outcomes = Counter(dict.fromkeys(ReviewOutcome, 0))
        self.denials = Counter(dict.fromkeys(DenialCause, 0))
        self.mutations = Counter(dict.fromkeys(Mutation, 0))
        self.warnings = 0
        self.seconds = Histogram(REVIEW_SECONDS)

    def note(self, verdict: PodVerdict, outcome: ReviewOutcome, began: float) -> None:
        """Count one answer. `began`: by time.perf_counter."""
        self.seconds.observe(perf_counter() - began)
        self.outcomes[outcome] += 1
        self.warnings += len(verdict.warnings)
        self.mutations.update({mutation_of(one) for one in verdict.patch})
        if verdict.cause is not None:
            self.denials[verdict.cause] += 1


def mutation_of(operation: Operation) -> Mutation:
    """What an operation of the patch changes, by its path."""
    steps: Sequence[str] = str(operation["path"]).split("/")[2:]  # without "" and "spec"
    if steps[0] == "schedulerName":
        return Mutation.SCHEDULER_NAME
    if steps[0] == "runtimeClassName":
        return Mutation.RUNTIME_CLASS
    return Mutation.ENVIRONMENT if "env" in steps[2:3] else Mutation.AMOUNTS
