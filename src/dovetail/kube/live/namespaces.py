"""Namespaces as they were last heard of: their labels, and which of them are being deleted.

The API server refuses every Binding and Event in a namespace that is being deleted, and its pods are deleted soon.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.objects import core as objects

Change = tuple[str, dict[str, str] | None]  # a name and its labels, None = it is gone


class Namespaces:
    """`hear` returns what has changed; the rest is for looking up."""

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, str]] = {}  # by name
        self._ending: set[str] = set()
        self.faults: list[tuple[str, Exception]] = []  # those that could not be read; whoever says them empties it

    def is_ending(self, name: str) -> bool:
        return name in self._ending

    def hear(self, batch: Iterable[Event[objects.Namespace]]) -> tuple[list[Change], set[str], set[str]]:
        """What differs from before, the names of those whose deletion has begun, and names whose deletion is over: they
        are gone, or have come again as other namespaces."""
        changed: list[Change] = []
        before = set(self._ending)
        for event in batch:
            if isinstance(event, Replaced):
                there = {source.metadata.name for source in event.items} | {each.ref.name for each in event.unreadable}
                changed += [self._gone(name) for name in [*self.labels] if name not in there]
            elif isinstance(event, Deleted) and event.ref.name in self.labels:
                changed.append(self._gone(event.ref.name))
            items = event.items if isinstance(event, Replaced) else []
            for source in [event.object] if isinstance(event, Changed) else items:
                try:
                    changed += self._is(source)
                except Exception as error:  # it is taken as it was before
                    self.faults.append((source.metadata.name, error))
        return changed, self._ending - before, before - self._ending

    def _is(self, source: objects.Namespace) -> list[Change]:
        name, labels = source.metadata.name, source.metadata.labels
        (self._ending.add if source.metadata.deletion_timestamp else self._ending.discard)(name)
        if self.labels.get(name) == labels:
            return []
        self.labels[name] = labels
        return [(name, labels)]

    def _gone(self, name: str) -> tuple[str, None]:
        del self.labels[name]
        self._ending.discard(name)
        return name, None
