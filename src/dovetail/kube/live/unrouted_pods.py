"""Reports pods with GPUs that went past the webhook: a line in the log for the first ones, and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from dovetail.kube.admission.unrouted import UNROUTED_ADVICE, unrouted
from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.conversion.settings import says_ignore
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.log import WARNING, Log
from dovetail.kube.objects import core as objects

MOST_UNROUTED = 10_000  # pods that are counted
WAITING, BOUND = "waiting", "bound"
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
        self._found: dict[str, tuple[str, str]] = {}  # uid -> namespace, state
        self._lines = 0

    def __len__(self) -> int:
        return len(self._found)

    @property
    def by_state(self) -> Mapping[tuple[str], int]:
        """Their number, by whether kube-scheduler has given the pod a node."""
        counted = Counter(state for _, state in self._found.values())
        return {(state,): counted[state] for state in (WAITING, BOUND)}

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

    def namespaces_changed(self) -> None:
        """Forget the pods of namespaces that are left as they are by now."""
        ignored = {name for name, _ in self._found.values() if says_ignore({}, self._labels_of(name))}
        if ignored:
            self._found = {uid: found for uid, found in self._found.items() if found[0] not in ignored}

    def _look(self, source: objects.Pod) -> None:
        meta = source.metadata
        why = unrouted(source, self._labels_of(meta.namespace), self._vendors, self._names)
        if not why:
            self._found.pop(meta.uid, None)
            return
        found = (meta.namespace, BOUND if source.spec.node_name else WAITING)
        if meta.uid in self._found:
            self._found[meta.uid] = found
        elif len(self._found) < MOST_UNROUTED:
            self._found[meta.uid], key = found, f"{meta.namespace}/{meta.name}"
            self._lines += 1
            if self._lines <= MOST_UNROUTED_LINES:
                self._log(f"{key} {why}; {UNROUTED_ADVICE}", WARNING, pod=key, uid=meta.uid)
