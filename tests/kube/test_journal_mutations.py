"""A repetition that is not the run is noticed: each recorded call is left out, or moved in time, in turn.

The run ends with a checkpoint, so what a call has changed shows in an outcome or in the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from dovetail.engine.recorded import RecordedScheduler
from dovetail.model.calls import (
    AllRetried,
    Call,
    EngineSettings,
    Handled,
    Outcome,
    PlacedPod,
    Retried,
    SearchedAgain,
    outcome_of,
)
from dovetail.model.checkpoint import Checkpoint
from dovetail.model.events import (
    BudgetChanged,
    Effect,
    EvictionRefused,
    GangChanged,
    GroupArrived,
    NamespaceChanged,
    NodeChanged,
    PodBound,
    PodGone,
    PodNominated,
    PodObserved,
    PodsGone,
    QueueChanged,
    QuotaChanged,
    SelectorChanged,
    SignalsMeasured,
    TopologyChanged,
    VolumesChanged,
)
from dovetail.model.pod import Group, Pod, Profile, Quota, RunningPod
from dovetail.model.relations import Selector
from dovetail.model.rights import Budget, Queue
from dovetail.model.signals import NodeSignals
from dovetail.whatif.rerun import Begun, Recorded, Rerun
from tests.builders import ask, node, pod
from tests.engine.storeroom import LOCAL

SETTINGS = EngineSettings(device_resources=("nvidia.com/gpu",), yielding="priority", deferred=True)
Written = tuple[Call, tuple[Outcome, ...]]


class Run:
    """A short live run in which every call matters."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.engine = RecordedScheduler(SETTINGS)
        self.engine.record(self._keep)
        self.now = 0.0
        self._objects()
        self._pods()
        self._preemptions()
        self._keep(self.engine.checkpoint(100.0), ())

    def _keep(self, call: Call, effects: Sequence[Effect]) -> None:
        self.written.append((call, tuple(outcome_of(effect) for effect in effects)))

    @property
    def at(self) -> float:
        self.now += 1.0
        return self.now

    def arrive(self, one: Pod) -> None:
        self.engine.handle(GroupArrived(self.at, Group(one.key, (one,))))

    def _objects(self) -> None:
        handle = self.engine.handle
        for name in ("a", "b", "c", "d"):
            handle(NodeChanged(self.at, node(name, gpus=1)))
        handle(SignalsMeasured(self.at, "a", NodeSignals(self.now, 500)))
        handle(NamespaceChanged(self.at, "blue", {"team": "b"}))
        handle(QuotaChanged(self.at, "blue", "q", Quota("blue", "q", device_memory_mib={"NVIDIA": 1000})))
        handle(QueueChanged(self.at, "idle", Queue("idle", "capacity", namespaces=("green",))))
        handle(TopologyChanged(self.at, "racks", ("rack",)))
        handle(GangChanged(self.at, "gang", 2))
        handle(BudgetChanged(self.at, "blue", "one", Budget("blue", "one", Selector((("app", "p"),)))))
        handle(SelectorChanged(self.at, "Service", "blue", "web", Selector((("app", "p"),))))
        handle(VolumesChanged(self.at, (LOCAL,)))
        self.engine.use_compiled(Profile("binpack", ("spread",)))

    def _pods(self) -> None:
        """Four cards: `seen` and `bound` stay; `third` and `fourth` make room for `fifth` and `sixth`, which waited."""
        handle, cards = self.engine.handle, ask(memory=8000)
        seen, bound, third, fourth, fifth, sixth = (pod(f"p{n}", cards, created=float(n)) for n in range(6))
        for one in (seen, bound, third, fourth, fifth, sixth):
            self.arrive(one)
        for one in (seen, bound):
            handle(PodBound(self.at, one.uid))
        ledger = self.engine.ledger
        handle(PodObserved(self.at, RunningPod(seen, ledger.node_of(seen.uid), ledger.held_shares(seen.uid))))
        handle(PodGone(self.at, third.uid))
        self.engine.retry_some(self.at, 100)
        handle(PodsGone(self.at, (fourth.uid, "another")))
        self.engine.retry_some(self.at, 100)
        for one in (fifth, sixth):
            handle(PodBound(self.at, one.uid))
        gang = Group("gang", (pod("withdrawn", cards, group="gang"),))
        handle(GroupArrived(self.at, gang))
        self.engine.withdraw(gang)
        self.arrive(last := pod("last", cards))
        handle(PodNominated(self.at, last, "nowhere"))

    def _preemptions(self) -> None:
        """Searches fail while no pod may be stopped. What is tried again later finds pods to stop."""
        handle, engine = self.engine.handle, self.engine
        first, second, third = (pod(f"h{n}", ask(memory=m), priority=10) for n, m in enumerate((8000, 8000, 4000)))
        self.arrive(first)
        (victim,) = engine.claims.service.stopping
        for uid in {victim: None, **dict.fromkeys(f"uid-p{n}" for n in (0, 1, 4, 5))}:
            handle(EvictionRefused(self.now + 0.1, uid, "a budget"))
        engine.retry_some(self.now, 100)
        self.now -= 0.9
        self.arrive(pod("small", cpu=1))  # something has changed
        self.now -= 0.9
        self.arrive(second)  # an equal search has just failed
        self.arrive(third)
        self.now += 12.0
        handle(PodBound(self.now, "unknown"))  # the clock of the engine is that of events
        engine.search_again(self.now)
        engine.retry_some(self.now, 100)
        engine.retry_all(self.now)
        engine.retry_some(self.now, 100)
        assert len(engine.claims.service.stopping) == 3


def is_noticed(written: Sequence[Written], restores: bool = False) -> bool:
    rerun = Rerun(restores=restores)
    rerun.begin(Begun(SETTINGS, True, "run", "file"))
    for number, (call, outcomes) in enumerate(written, 1):
        rerun.step(Recorded(number, call, outcomes))
    return rerun.counts.different > 0


def kind(call: Call) -> str:
    return type(call.event).__name__ if isinstance(call, Handled) else type(call).__name__


def unnoticed(change: Callable[[Call], Call | None]) -> Iterator[str]:
    """The calls whose change is not noticed. None = left out."""
    written = Run().written
    for number, (call, outcomes) in enumerate(written):
        if isinstance(call, Checkpoint):
            continue
        changed = change(call)
        instead = [] if changed is None else [(changed, outcomes)]
        if changed is not call and not is_noticed([*written[:number], *instead, *written[number + 1 :]]):
            yield kind(call)


def earlier(call: Call) -> Call:
    """The call, 13 seconds earlier."""
    if isinstance(call, Handled):
        return Handled(msgspec.structs.replace(call.event, at=call.event.at - 13.0))
    if isinstance(call, (Retried, SearchedAgain, AllRetried)):
        return msgspec.structs.replace(call, at=call.at - 13.0)
    return call  # it has no time


def test_the_run_itself_is_repeated() -> None:
    assert not is_noticed(Run().written)


def test_a_call_that_is_left_out_is_noticed() -> None:
    assert list(unnoticed(lambda call: None)) == []


def test_a_time_that_is_wrong_is_noticed() -> None:
    assert list(unnoticed(earlier)) == []


def test_a_preemption_goes_on_behind_a_checkpoint() -> None:
    """Its victims end after the checkpoint: an engine that has only the checkpoint reserves the planned places."""
    run = Run()
    victims = list(run.engine.claims.service.stopping)
    for uid in victims:
        run.engine.handle(PodGone(200.0, uid))
        run.engine.retry_some(200.0, 100)
    last = run.written[-2 * len(victims) :]
    placed = sorted(one.uid for _, outcomes in last for one in outcomes if isinstance(one, PlacedPod))
    assert placed == ["uid-h0", "uid-h1", "uid-h2"]
    assert not is_noticed(run.written, restores=True)
