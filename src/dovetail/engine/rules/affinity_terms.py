"""Affinity and anti-affinity terms of pods on nodes, found by the labels of a pod that they may select."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from dovetail.model.pod import Pod
from dovetail.model.relations import PodTerm, Selector

T = TypeVar("T", bound=Hashable)

Labels = Mapping[str, str]
Pair = tuple[str, str]  # a label and its value
Spots = dict[int, int]  # row -> how many


class Shelves(Generic[T]):
    """Objects with a selector, each under a label that every selected pod has: so only a few are checked."""

    def __init__(self) -> None:
        self._by_label: dict[Pair, dict[T, None]] = {}
        self._loose: dict[T, None] = {}  # objects without such a label

    def __bool__(self) -> bool:
        return bool(self._by_label or self._loose)

    def put(self, selector: Selector | None, thing: T) -> None:
        for pair in anchors(selector):
            self._by_label.setdefault(pair, {})[thing] = None
        if selector is not None and not anchors(selector):
            self._loose[thing] = None

    def remove(self, selector: Selector | None, thing: T) -> None:
        self._loose.pop(thing, None)
        for pair in anchors(selector):
            shelf = self._by_label[pair]
            del shelf[thing]
            if not shelf:
                del self._by_label[pair]

    def under(self, labels: Labels) -> Iterator[T]:
        """Every object whose selector may match, each once."""
        yield from self._loose
        if self._by_label:
            for pair in labels.items():
                yield from self._by_label.get(pair, ())


def anchors(selector: Selector | None) -> tuple[Pair, ...]:
    """Labels of which a matching pod has exactly one; () = there are none, or no pod matches."""
    if selector is None:
        return ()
    if selector.labels:
        return selector.labels[:1]
    for row in selector.expressions:
        if row.operator == "In":
            return tuple(dict.fromkeys((row.key, value) for value in row.values))
    return ()


class TermTable:
    """The distinct terms of one sort, and the rows of the pods that have them."""

    def __init__(self) -> None:
        self._spots: dict[PodTerm, Spots] = {}
        self._shelves: dict[str | None, Shelves[PodTerm]] = {}  # namespace that it means; None = a selector says which

    def __len__(self) -> int:
        return len(self._spots)

    def add(self, term: PodTerm, row: int, count: int) -> None:
        spots = self._spots.get(term)
        if spots is None:
            spots = self._spots[term] = {}
            for namespace in _namespaces(term):
                self._shelves.setdefault(namespace, Shelves()).put(term.selector, term)
        add(spots, row, count)
        if not spots:
            del self._spots[term]
            for namespace in _namespaces(term):
                shelves = self._shelves[namespace]
                shelves.remove(term.selector, term)
                if not shelves:
                    del self._shelves[namespace]

    def matching(self, pod: Pod, namespace_labels: Labels) -> Iterator[tuple[PodTerm, Spots]]:
        """The terms that select this pod, which is to be placed."""
        for namespace in (pod.namespace, None):
            shelves = self._shelves.get(namespace)
            for term in shelves.under(pod.labels) if shelves else ():
                if means(term, pod, namespace_labels):
                    yield term, self._spots[term]

    def mean(self, pod: Pod, namespace_labels: Labels) -> bool:
        return len(self._spots) > 0 and next(self.matching(pod, namespace_labels), None) is not None


def _namespaces(term: PodTerm) -> Iterable[str | None]:
    """Under which namespaces a term is found. A term without a selector means no pod."""
    if term.selector is None:
        return ()
    return dict.fromkeys(term.namespaces) if term.namespace_selector is None else (None,)


def means(term: PodTerm, pod: Pod, namespace_labels: Labels) -> bool:
    """Whether the term of a pod on a node selects a pod to be placed, whose namespace has these labels."""
    if term.selector is None or not term.selector.matches(pod.labels):
        return False
    if pod.namespace in term.namespaces:
        return True
    return term.namespace_selector is not None and term.namespace_selector.matches(namespace_labels)


def add(spots: Spots, row: int, count: int) -> None:
    total = spots.get(row, 0) + count
    if total:
        spots[row] = total
    else:
        del spots[row]
