"""Services and controllers as last reported → which pods they select, only where that has changed.

Only selectors are kept, and only of objects that select pods now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.selectors import REPLICA_SET, SERVICE, Controller, Labelled, selector_of
from dovetail.kube.live.set_aside import Fault
from dovetail.model.events import SelectorChanged
from dovetail.model.relations import Selector

Name = tuple[str, str]  # namespace, name

# Kind -> path and type of the watched objects.
WATCHED: dict[str, tuple[str, type[Controller] | type[Labelled]]] = {
    SERVICE: ("/api/v1/services", Labelled),
    "ReplicationController": ("/api/v1/replicationcontrollers", Labelled),
    REPLICA_SET: ("/apis/apps/v1/replicasets", Controller),
    "StatefulSet": ("/apis/apps/v1/statefulsets", Controller),
}


class SelectorMirror:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.faults: list[Fault] = []  # objects that could not be read; the code that reports them empties the list
        self._known: dict[str, dict[Name, Selector]] = {kind: {} for kind in WATCHED}

    def hear(self, kind: str, batch: Iterable[Event[Controller | Labelled]]) -> list[SelectorChanged]:
        return [change for event in batch for change in self._heard(kind, event)]

    def _heard(self, kind: str, event: Event[Controller | Labelled]) -> Iterator[SelectorChanged]:
        if isinstance(event, Replaced):
            there = {(one.metadata.namespace, one.metadata.name) for one in event.items}
            there |= {(one.ref.namespace, one.ref.name) for one in event.unreadable}
            for name in [name for name in self._known[kind] if name not in there]:
                yield from self._set(kind, name, None)
            for item in event.items:
                yield from self._read(kind, item)
        elif isinstance(event, Changed):
            yield from self._read(kind, event.object)
        elif isinstance(event, Deleted):
            yield from self._set(kind, (event.ref.namespace, event.ref.name), None)
        elif isinstance(event, NotServed):
            for name in list(self._known[kind]):
                yield from self._set(kind, name, None)

    def _read(self, kind: str, item: Controller | Labelled) -> Iterator[SelectorChanged]:
        """Changes by one object. One that cannot be read keeps its previous form."""
        name = (item.metadata.namespace, item.metadata.name)
        try:
            wanted = selector_of(kind, item)
        except Exception as error:
            self.faults.append(Fault(kind, "/".join(name), error))
            return
        yield from self._set(kind, name, wanted)

    def _set(self, kind: str, name: Name, selector: Selector | None) -> Iterator[SelectorChanged]:
        known = self._known[kind]
        if known.get(name) == selector:
            return
        if selector is None:
            del known[name]
        else:
            known[name] = selector
        yield SelectorChanged(self._clock(), kind, *name, selector)
