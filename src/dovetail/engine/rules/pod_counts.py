"""Pods by row and labels, counted as they arrive and leave: the cost of a question depends on what it finds.

Pods that no selector can tell apart are one crowd. A census is the answer to a question: pods per row. It is updated
when it is asked for again, from a log of the pods that came and left since: a pod that arrives costs the same however
many questions others have asked. Terms and host ports of pods are always counted. Crowds are counted only from `start`
on, which the first question calls: a cluster without such rules has no cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from dovetail.engine.ledger.in_force import Rule
from dovetail.engine.ledger.intern import grown
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.remembered import Remembered
from dovetail.engine.rules.affinity_terms import Labels, Pair, Spots, TermTable, add, anchors
from dovetail.engine.rules.node_columns import NodeFacts
from dovetail.model.pod import Pod
from dovetail.model.relations import NO_RELATIONS, HostPort, PodTerm, Selector
from dovetail.policies.rows import Ints

MOST_BYTES = 32 << 20  # of kept censuses and their questions
MAX_CENSUSES = 512  # kept; selectors that tenants write are large, and to count again is cheap
MAX_LOGGED = 8_192  # labels of the pods in the log, each pod counted as one more: 3 MiB at most
FEW_CHANGES = 64  # so many are always cheaper than to count the crowds again
ANY_ADDRESS = "0.0.0.0"


class Sought(NamedTuple):
    """Pods of some namespaces that a selector matches."""

    namespaces: tuple[str, ...]
    namespace_selector: Selector | None
    selector: Selector | None


class Question(NamedTuple):
    """Pods that all of these match."""

    sought: tuple[Sought, ...]
    leaving_too: bool = True  # pods with a deletion timestamp count

    @property
    def first(self) -> Selector | None:
        return self.sought[0].selector


@dataclass(slots=True, eq=False)
class Crowd:
    """Pods that no selector can tell apart."""

    namespace: str
    labels: Labels
    leaving: bool
    at: Spots = field(default_factory=dict)


class CrowdChange(NamedTuple):
    """A pod of a crowd that came to a row, or left it."""

    crowd: Crowd
    row: int
    pods: int  # 1 or -1


class ChangeLog:
    """The latest changes. Each has a number; the oldest ones are dropped."""

    def __init__(self) -> None:
        self._changes: deque[CrowdChange] = deque()
        self._weight = 0
        self.end = 0  # the number of the next change

    def append(self, change: CrowdChange) -> None:
        self._changes.append(change)
        self.end += 1
        self._weight += 1 + len(change.crowd.labels)
        while self._weight > MAX_LOGGED:
            self._weight -= 1 + len(self._changes.popleft().crowd.labels)

    @property
    def start(self) -> int:
        """The number of the oldest change that is kept."""
        return self.end - len(self._changes)

    def since(self, number: int) -> Iterator[CrowdChange] | None:
        """The changes from this number on; None = some of them are dropped."""
        return None if number < self.start else islice(self._changes, number - self.start, None)


@dataclass(slots=True, eq=False)
class Census:
    """The answer to a question, as of some point in the log of changes."""

    at: Ints  # row -> pods
    seen: int  # the number of the first change that it does not count


class Neighbours:
    """An index of the ledger's pods: a witness, called for pods that arrive or leave (`Ledger.witnesses`).

    While it is not `active`, it is called only for pods with relations.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.facts = NodeFacts(ledger)
        self.active = False
        self.namespaces: dict[str, Labels] = {}
        self.clear(())
        for uid in ledger.pods:
            self.came(ledger.pods.pod(uid), ledger.row_holding(uid))

    def clear(self, reserved: Collection[str]) -> None:
        self.against = TermTable()  # required anti-affinity
        self.together = TermTable()  # required affinity
        self.liked = TermTable()  # preferred affinity
        self.disliked = TermTable()  # preferred anti-affinity
        self._ledger.in_force.put(Rule.POD_TERM, False)
        self._ports: dict[tuple[str, int], dict[str, Spots]] = {}  # (protocol, port) -> address -> rows
        self._crowds: dict[tuple[str, frozenset[Pair], bool], Crowd] = {}
        self._by_label: dict[Pair, dict[Crowd, None]] = {}
        self._changes = ChangeLog()
        # least recently asked first
        self._censuses: Remembered[Question, Census] = Remembered(MAX_CENSUSES, MOST_BYTES)

    def start(self) -> None:
        """Count the crowds; from now on it is called for all pods."""
        if not self.active:
            self.active = True
            self._ledger.attend(self, True)
            for uid in self._ledger.pods:
                self._count(self._ledger.pods.pod(uid), self._ledger.row_holding(uid), 1)

    def came(self, pod: Pod, row: int) -> None:
        self._note(pod, row, 1)

    def left(self, pod: Pod, row: int) -> None:
        self._note(pod, row, -1)

    def _note(self, pod: Pod, row: int, count: int) -> None:
        relations = pod.relations
        if relations is not NO_RELATIONS:
            for index, terms in (
                (self.against, relations.anti_affinity),
                (self.together, relations.affinity),
                (self.liked, relations.preferred_affinity),
                (self.disliked, relations.preferred_anti_affinity),
            ):
                for term in terms:
                    index.add(term, row, count)
            has_terms = any(map(len, (self.against, self.together, self.liked, self.disliked)))
            self._ledger.in_force.put(Rule.POD_TERM, has_terms)
            for port in relations.ports:
                self._use(port, row, count)
        if self.active:
            self._count(pod, row, count)

    # ---- namespaces ---------------------------------------------------------------------------------------------

    def set_namespace(self, name: str, labels: Labels) -> None:
        if self.namespaces.get(name) != labels:
            self.namespaces[name] = dict(labels)
            self._namespaces_changed()

    def drop_namespace(self, name: str) -> None:
        if self.namespaces.pop(name, None) is not None:
            self._namespaces_changed()

    def labels_of(self, namespace: str) -> Labels:
        """The labels of a namespace; none if the namespace is unknown, as in kube-scheduler."""
        return self.namespaces.get(namespace, {})

    def _namespaces_changed(self) -> None:
        for question in list(self._censuses):
            if any(sought.namespace_selector is not None for sought in question.sought):
                self._censuses.forget(question)

    # ---- host ports ---------------------------------------------------------------------------------------------

    def _use(self, port: HostPort, row: int, count: int) -> None:
        key = (port.protocol, port.port)
        by_address = self._ports.setdefault(key, {})
        spots = by_address.setdefault(port.ip, {})
        add(spots, row, count)
        if not spots:
            del by_address[port.ip]
        if not by_address:
            del self._ports[key]

    def ports_in_use(self, port: HostPort) -> Iterator[int]:
        """Rows with a pod that uses this port. 0.0.0.0 is every address."""
        for address, spots in self._ports.get((port.protocol, port.port), {}).items():
            if ANY_ADDRESS in (address, port.ip) or address == port.ip:
                yield from spots

    # ---- counting -----------------------------------------------------------------------------------------------

    def count(self, question: Question) -> Ints:
        """By row the number of pods that the question matches. Read-only; valid until a pod arrives or leaves."""
        self.start()
        rows = len(self._ledger.nodes)
        census = self._censuses.get(question)
        if census is not None and self._update(census, question):
            self._censuses.renew(question)
        else:
            self._drop_outdated()
            census = self._take(question, rows)
            self._censuses.remember(question, census, (question, census.at))
        census.at = grown(census.at, 0, rows)
        return census.at[:rows]

    def _drop_outdated(self) -> None:
        """Drop the answers that cannot be updated any more: the pods that asked are probably gone."""
        while self._censuses and self._censuses[oldest := next(iter(self._censuses))].seen < self._changes.start:
            self._censuses.forget(oldest)

    def _update(self, census: Census, question: Question) -> bool:
        """Count the changes since. False if they are dropped, or so many that to count the crowds anew is cheaper."""
        changes, end = self._changes.since(census.seen), self._changes.end
        if changes is None or end - census.seen > max(FEW_CHANGES, self._most_candidates(question.first)):
            return False
        for crowd, row, pods in changes:
            if self._finds(question, crowd):
                census.at = grown(census.at, 0, row + 1)
                census.at[row] += pods
        census.seen = end
        return True

    def _take(self, question: Question, rows: int) -> Census:
        found = [
            spot
            for crowd in self._candidates(question.first)
            if self._finds(question, crowd)
            for spot in crowd.at.items()
        ]
        at: Ints = np.zeros(rows, dtype=np.int64)
        if found:
            where, counts = np.array(found, dtype=np.int64).T
            at = np.bincount(where, counts, minlength=rows).astype(np.int64)
        return Census(at, self._changes.end)

    def _most_candidates(self, selector: Selector | None) -> int:
        pairs = self._rarest(selector)
        return sum(len(self._by_label.get(pair, ())) for pair in pairs) if pairs else len(self._crowds)

    def _candidates(self, selector: Selector | None) -> Iterator[Crowd]:
        if selector is None:
            return
        pairs = self._rarest(selector)
        if not pairs:
            yield from self._crowds.values()
        for pair in pairs:
            yield from self._by_label.get(pair, ())

    def _rarest(self, selector: Selector | None) -> tuple[Pair, ...]:
        """As `anchors`: of several labels that a matching pod must have, the one that the fewest crowds have."""
        if selector is None or len(selector.labels) < 2:
            return anchors(selector)
        return (min(selector.labels, key=lambda pair: len(self._by_label.get(pair, ()))),)

    def _count(self, pod: Pod, row: int, count: int) -> None:
        key = (pod.namespace, frozenset(pod.labels.items()), pod.leaving)
        crowd = self._crowds.get(key)
        if crowd is None:
            crowd = self._crowds[key] = self._new_crowd(pod)
        add(crowd.at, row, count)
        if self._censuses:
            self._changes.append(CrowdChange(crowd, row, count))
        if not crowd.at:
            self._drop_crowd(self._crowds.pop(key))

    def _new_crowd(self, pod: Pod) -> Crowd:
        crowd = Crowd(pod.namespace, pod.labels, pod.leaving)
        for pair in pod.labels.items():
            self._by_label.setdefault(pair, {})[crowd] = None
        return crowd

    def _drop_crowd(self, crowd: Crowd) -> None:
        for pair in crowd.labels.items():
            alike = self._by_label[pair]
            del alike[crowd]
            if not alike:
                del self._by_label[pair]

    def _finds(self, question: Question, crowd: Crowd) -> bool:
        if crowd.leaving and not question.leaving_too:
            return False
        return self.finds(question.sought, crowd.namespace, crowd.labels)

    def finds(self, sought: Iterable[Sought], namespace: str, labels: Labels) -> bool:
        """Whether all of them match a pod of this namespace with these labels."""
        return all(
            one.selector is not None and one.selector.matches(labels) and self._reaches(one, namespace)
            for one in sought
        )

    def _reaches(self, sought: Sought, namespace: str) -> bool:
        """Whether the term of a pod to be placed reaches pods of this namespace, which may be its own.

        kube-scheduler 1.36 adds the namespaces that the selector matches to the list. Then it checks the selector again
        with empty labels, because mergeAffinityTermNamespacesIfNotEmpty changes a copy of the term. So `DoesNotExist`
        and `NotIn` reach every namespace. Dovetail does the same.
        """
        if namespace in sought.namespaces:
            return True
        among = sought.namespace_selector
        return among is not None and (among.matches(self.labels_of(namespace)) or among.matches({}))


def sought_by(term: PodTerm) -> Sought:
    return Sought(term.namespaces, term.namespace_selector, term.selector)
