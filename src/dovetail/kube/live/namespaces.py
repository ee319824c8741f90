"""Namespaces as last reported: their labels, and which of them are being deleted.

The API server refuses every Binding and Event in a namespace that is being deleted, and its pods are deleted soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.conversion.reading import is_ending
from dovetail.kube.conversion.settings import says_ignore
from dovetail.kube.live.reader import NO_LABELS
from dovetail.kube.objects import core as objects

Change = tuple[str, dict[str, str] | None]  # a name and its labels, None = it is gone


class Namespaces:
    """Namespaces by name; `hear` returns what has changed."""

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, str]] = {}  # by name
        self._ending: set[str] = set()
        self._is_listed = False
        self._early: dict[str, dict[str, objects.Pod]] = {}  # unknown namespace -> uid -> pod that waits there
        # Those that could not be read; the code that reports them empties the list.
        self.faults: list[tuple[str, Exception]] = []

    def is_ending(self, name: str) -> bool:
        return name in self._ending

    def labels_of(self, name: str) -> Mapping[str, str]:
        return self.labels.get(name, NO_LABELS)

    def note_early(self, source: objects.Pod) -> None:
        """Note a waiting pod whose namespace is not known yet: it is read again when the namespace is known.

        HAMi's webhook reads the namespace's label when the pod is created, so later changes of the label do not matter.
        """
        if self._is_listed and source.metadata.namespace not in self.labels:
            self._early.setdefault(source.metadata.namespace, {})[source.metadata.uid] = source

    def take_passed_over(self) -> list[objects.Pod]:
        """Pods that came before their namespace, if its label excludes them from HAMi's webhook: to be read again."""
        known = [name for name in self._early if name in self.labels]
        pods = [(name, source) for name in known for source in self._early.pop(name).values()]
        return [source for name, source in pods if says_ignore(self.labels[name])]

    def hear(self, batch: Iterable[Event[objects.Namespace]]) -> tuple[list[Change], set[str], set[str]]:
        """Changes; names whose deletion has begun; and names whose deletion is over.

        The last are gone, or exist again as other namespaces.
        """
        changed: list[Change] = []
        before = set(self._ending)
        for event in batch:
            if isinstance(event, Replaced):
                self._is_listed = True
                there = {source.metadata.name for source in event.items} | {each.ref.name for each in event.unreadable}
                changed += [self._gone(name) for name in [*self.labels] if name not in there]
            elif isinstance(event, Deleted) and event.ref.name in self.labels:
                changed.append(self._gone(event.ref.name))
            items = event.items if isinstance(event, Replaced) else []
            for source in [event.object] if isinstance(event, Changed) else items:
                try:
                    changed += self._is(source)
                except Exception as error:  # it keeps its previous form
                    self.faults.append((source.metadata.name, error))
        return changed, self._ending - before, before - self._ending

    def _is(self, source: objects.Namespace) -> list[Change]:
        name, labels = source.metadata.name, source.metadata.labels
        (self._ending.add if is_ending(source) else self._ending.discard)(name)
        if self.labels.get(name) == labels:
            return []
        self.labels[name] = labels
        return [(name, labels)]

    def _gone(self, name: str) -> tuple[str, None]:
        del self.labels[name]
        self._ending.discard(name)
        return name, None
