"""ElasticQuotas and Queues as last reported → the tree of queues, only where it has changed.

A change of one object can move others: a parent that did not exist, a namespace that had another queue. So the tree is
built again from all objects, and compared with what the engine was told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.queue_tree import as_tree
from dovetail.kube.conversion.queues import names_in, queue_from
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.decode import Found
from dovetail.kube.live.set_aside import Fault
from dovetail.kube.objects.core import Quantities
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.kube.objects.queues import ElasticQuota, KaiQueue, QueueObject
from dovetail.model.events import QueueChanged
from dovetail.model.node import CPU, MEMORY
from dovetail.model.rights import Queue

WANTED_FIELDS = ("requested",)  # of a status: what pods of the queue hold or ask for; other fields: what they hold


class QueueRef(NamedTuple):
    """One object. Objects of two kinds can have the same name."""

    api_group: str
    namespace: str  # "" for kinds without
    name: str

    def __str__(self) -> str:
        kind = "ElasticQuota" if self.namespace else "Queue"
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name} ({self.api_group})"


class QueueSource(NamedTuple):
    """An object as it was last reported."""

    queue: Queue
    status: dict[str, Quantities]  # the fields that Dovetail writes (see WANTED_FIELDS), and what stands there
    names: dict[str, str]  # resource of the model -> its name in the object


class QueueMirror:
    def __init__(self, clock: Callable[[], float], vendors: Vendors) -> None:
        self._clock, self._vendors = clock, vendors
        self._sources: dict[QueueRef, QueueSource] = {}
        self._told: dict[str, Queue] = {}  # by name: what the engine knows
        self._ref_of: dict[str, QueueRef] = {}  # by name of the queue
        self._said: dict[QueueRef, tuple[Problem, ...]] = {}  # problems of each object
        self._wrong: frozenset[str] = frozenset()  # problems of the tree
        self._changed = False  # whether a queue is new, different or gone
        self.faults: list[Fault] = []  # objects that could not be read; the code that reports them empties the list
        self.problems: list[str] = []  # lines for the log; emptied likewise

    def hear(self, api_group: str, batch: Iterable[Event[QueueObject]]) -> list[QueueChanged]:
        self._changed = False
        for event in batch:
            self._heard(api_group, event)
        return self._changes() if self._changed else []  # often only the status of an object has changed

    def source_of(self, queue: str) -> tuple[QueueRef, QueueSource] | None:
        """The object that describes a queue of the tree; None = there is none any more."""
        ref = self._ref_of.get(queue)
        return (ref, self._sources[ref]) if ref is not None and ref in self._sources else None

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of all queues that objects describe."""
        return tuple(self._ref_of)

    def _heard(self, api_group: str, event: Event[QueueObject]) -> None:
        if isinstance(event, Replaced):
            there = {_ref(api_group, one) for one in event.items}
            there |= {QueueRef(api_group, one.ref.namespace, one.ref.name) for one in event.unreadable}
            for ref in [ref for ref in self._sources if ref.api_group == api_group and ref not in there]:
                self._drop(ref)
            for item in event.items:
                self._read(_ref(api_group, item), item)
        elif isinstance(event, Changed):
            self._read(_ref(api_group, event.object), event.object)
        elif isinstance(event, Deleted):
            self._drop(QueueRef(api_group, event.ref.namespace, event.ref.name))
        elif isinstance(event, NotServed):
            for ref in [ref for ref in self._sources if ref.api_group == api_group]:
                self._drop(ref)

    def _read(self, ref: QueueRef, item: QueueObject) -> None:
        """Take in one object. One that cannot be read keeps its previous form."""
        problems = Problems()
        try:
            found = Found(str(ref), "", ref.api_group, ref.namespace, ref.name, item)
            queue = queue_from(found, self._vendors, problems)
        except Exception as error:
            self.faults.append(Fault("Queue", str(ref), error))
            return
        said = tuple(one for one in problems.found() if one.severity != "note")
        if said != self._said.get(ref, ()):
            self.problems += map(str, said)
        self._said[ref] = said
        if queue is None:
            self._drop(ref)
        else:
            known = self._sources.get(ref)
            self._changed = self._changed or known is None or known.queue != queue
            self._sources[ref] = QueueSource(queue, _status(item), names_in(_lists(item), self._vendors))

    def _drop(self, ref: QueueRef) -> None:
        self._changed = self._sources.pop(ref, None) is not None or self._changed
        self._said.pop(ref, None)

    def _changes(self) -> list[QueueChanged]:
        """The tree as it is now, compared with what was told. Of two objects with one name, the first counts."""
        first: dict[str, QueueRef] = {}
        for ref in sorted(self._sources):
            first.setdefault(self._sources[ref].queue.name, ref)
        queues, wrong = as_tree(self._sources[ref].queue for ref in first.values())
        lines = [f"{first[one.queue]}: {one.field}: {one.message}" for one in wrong]
        self.problems += [line for line in lines if line not in self._wrong]
        self._wrong = frozenset(lines)
        now = self._clock()
        changes = [QueueChanged(now, name, None) for name in self._told if name not in queues]
        changes += [QueueChanged(now, name, queue) for name, queue in queues.items() if self._told.get(name) != queue]
        self._told, self._ref_of = queues, {name: ref for name, ref in first.items() if name in queues}
        return changes


def _ref(api_group: str, item: QueueObject) -> QueueRef:
    return QueueRef(api_group, item.metadata.namespace, item.metadata.name)


def _status(item: QueueObject) -> dict[str, Quantities]:
    if isinstance(item, ElasticQuota):
        return {"used": item.status.used}
    if isinstance(item, KaiQueue):
        return {"allocated": item.status.allocated, "requested": item.status.requested}
    return {"allocated": item.status.allocated}


def _lists(item: QueueObject) -> tuple[Quantities, ...]:
    """The resource lists of an object. KAI's queues have fixed resources, and its status the names of Kubernetes."""
    if isinstance(item, KaiQueue):
        return ({CPU: 0, MEMORY: 0, "nvidia.com/gpu": 0},)
    if isinstance(item, ElasticQuota):
        return item.spec.min, item.spec.max
    return item.spec.deserved, item.spec.capability, item.spec.guarantee.resource
