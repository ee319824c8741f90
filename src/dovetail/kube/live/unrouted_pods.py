"""Reports pods with GPUs that went past the webhook: a line in the log for the first ones, and their number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from dovetail.kube.admission.unrouted import UNROUTED_ADVICE, unrouted
from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.log import WARNING, Log
from dovetail.kube.objects import core as objects

MOST_UNROUTED = 10_000  # pods that are counted
MOST_UNROUTED_LINES = 20  # in the log, until there were none for a while


class UnroutedPods:
    """The pods that were not seen by the webhook, by uid."""

    def __init__(
        self,
        vendors: Vendors,
        scheduler_names: Collection[str],
        namespace_labels: Callable[[str], Mapping[str, str]],
        log: Log,
    ) -> None:
        self._vendors, self._names, self._labels_of, self._log = vendors, scheduler_names, namespace_labels, log
        self._found: dict[str, str] = {}  # uid -> namespace/name
        self._lines = 0

    def __len__(self) -> int:
        return len(self._found)

    def hear(self, batch: Iterable[Event[objects.Pod]]) -> None:
        if not self._names:
            return
        for event in batch:
            if isinstance(event, Changed):
                self._look(event.object)
            elif isinstance(event, Deleted):
                self._found.pop(event.ref.uid, None)
            elif isinstance(event, Replaced):
                self._found.clear()
                for source in event.items:
                    self._look(source)
        if not self._found:
            self._lines = 0

    def _look(self, source: objects.Pod) -> None:
        meta = source.metadata
        why = unrouted(source, self._labels_of(meta.namespace), self._vendors, self._names)
        if not why:
            self._found.pop(meta.uid, None)
        elif meta.uid not in self._found and len(self._found) < MOST_UNROUTED:
            key = self._found[meta.uid] = f"{meta.namespace}/{meta.name}"
            self._lines += 1
            if self._lines <= MOST_UNROUTED_LINES:
                self._log(f"{key} {why}; {UNROUTED_ADVICE}", WARNING, pod=key)
