"""The recorded calls of a run as what happened to the cluster, whichever process saw it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from dovetail.model.calls import Call, Handled, Offered, PlacedPod, Rebuilt, Stopped
from dovetail.model.checkpoint import Checkpoint
from dovetail.model.events import (
    GroupArrived,
    NodeChanged,
    NodeGone,
    PodGone,
    PodObserved,
    PodsGone,
)
from dovetail.model.pod import RunningPod
from dovetail.whatif.hypothesis import Happening, Took, WasStopped
from dovetail.whatif.rerun import Part

LISTED_WITHIN = 30.0  # seconds after the start of a process in which it has seen all objects that exist


class _Known:
    """Objects that exist as far as the record shows, to find those that went while no process looked."""

    def __init__(self) -> None:
        self.pods: set[str] = set()
        self.nodes: set[str] = set()
        self.unseen_pods: set[str] = set()
        self.unseen_nodes: set[str] = set()
        self.ends: float | None = None  # None = no process has just started; 0 = its first event has not come

    def start(self) -> None:
        self.unseen_pods, self.unseen_nodes, self.ends = set(self.pods), set(self.nodes), 0.0

    def note(self, event: Happening) -> None:
        match event:
            case GroupArrived(_, group):
                uids = {pod.uid for pod in group.pods}
                self.pods |= uids
                self.unseen_pods -= uids
            case PodObserved(_, running):
                self.pods.add(running.pod.uid)
                self.unseen_pods.discard(running.pod.uid)
            case PodGone(_, uid):
                self.pods.discard(uid)
                self.unseen_pods.discard(uid)
            case PodsGone(_, uids_):
                self.pods.difference_update(uids_)
                self.unseen_pods.difference_update(uids_)
            case NodeChanged(_, node):
                self.nodes.add(node.name)
                self.unseen_nodes.discard(node.name)
            case NodeGone(_, name):
                self.nodes.discard(name)
                self.unseen_nodes.discard(name)

    def missing(self, at: float) -> Iterator[Happening]:
        """What has gone while no process looked, once the new one has seen everything."""
        if self.ends is None:
            return
        self.ends = self.ends or at + LISTED_WITHIN
        if at >= self.ends:
            self.ends = None
            gone: list[Happening] = [NodeGone(at, name) for name in sorted(self.unseen_nodes)]
            if self.unseen_pods:
                gone.insert(0, PodsGone(at, tuple(sorted(self.unseen_pods))))
            for event in gone:
                self.note(event)
                yield event


def happenings(parts: Iterable[Part]) -> Iterator[Happening]:
    """Events about objects, and the places that the recorded scheduler gave, in order."""
    known, run = _Known(), ""
    for begun, entries in parts:
        if run and begun.run != run:
            known.start()
        carries_on, run = begun.run == run, begun.run
        for number, recorded in enumerate(entries):
            skips = isinstance(recorded.call, Checkpoint) and carries_on and number == 0
            for event in () if skips else _of(recorded.call):
                yield from known.missing(event.at)
                known.note(event)
                yield event
            at = getattr(recorded.call, "at", 0.0) or getattr(getattr(recorded.call, "event", None), "at", 0.0)
            for outcome in () if isinstance(recorded.call, Offered) else recorded.outcomes:
                if isinstance(outcome, PlacedPod):
                    yield Took(at, outcome.uid, outcome.node, outcome.shares)
                elif isinstance(outcome, Stopped):
                    yield WasStopped(at, outcome.uid)


def _of(call: Call) -> Iterator[Happening]:
    match call:
        case Handled(event):
            yield event
        case Offered(at, group):
            yield GroupArrived(at, group)
        case Checkpoint(facts, state):
            for fact in facts:
                yield msgspec.structs.replace(fact, at=state.at)
            for holding in state.held:
                yield PodObserved(state.at, RunningPod(holding.pod, holding.node, holding.shares))
            for group in state.waiting:
                yield GroupArrived(state.at, group)
        case Rebuilt():
            pass  # the same objects again
