"""Runs without stops, moves, rounds or a speed model are what they were before time mode knew these: by digests."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import Bind, Effect, Event, GroupArrived, Wait
from dovetail.sim.clusters import parse_cluster
from dovetail.sim.generate import generate
from dovetail.sim.stage import stage
from dovetail.sim.timeline import LogEntry, replay
from dovetail.sim.trace import Trace
from dovetail.sim.workload import WorkloadParameters

LATER = {"stops", "moves", "hours_lost", "queues", "gangs"}  # fields that were added since the digests were made
MEASURED_LATER = {"order", "preemption", "fairness_pct", "fairness_samples"}  # likewise; these are never empty
SPEED = {"seconds", "decisions_per_second"}
TRACES = {
    "busy": (WorkloadParameters(jobs=120, seed=7, load=2.0, constrained=0.3, urgent=0.2), "2xV100M32:4,2xT4:2,1xCPU"),
    "gangs": (
        WorkloadParameters(jobs=90, seed=11, load=8.0, gangs=0.3, multi_gpu=0.2, impossible=0.03),
        "4xA100-SXM4-80GB:8",
    ),
}
DIGESTS = {  # (trace, policy, queue)
    ("busy", "best-fit", "backfill"): "d171fb52be773c15",
    ("busy", "best-fit", "strict"): "be7acd84ff5a2a74",
    ("busy", "fgd", "backfill"): "79c147a2e2b48d69",
    ("busy", "fgd", "strict"): "516b046bcfc0b903",
    ("busy", "spread", "backfill"): "d6ee29d742ba3971",
    ("busy", "spread", "strict"): "7ed950095d61a0db",
    ("gangs", "best-fit", "backfill"): "863bf491fb533423",
    ("gangs", "best-fit", "strict"): "aae146f2031170b8",
    ("gangs", "fgd", "backfill"): "e4cfbfeae0e61266",
    ("gangs", "fgd", "strict"): "858756575c102992",
    ("gangs", "spread", "backfill"): "2e808b3e18f887f9",
    ("gangs", "spread", "strict"): "24a5a3ba350c1af7",
}


def essence(event: Event) -> tuple[object, ...]:
    """What time mode sends, without fields of pods that a later version may add."""
    uids = [pod.uid for pod in event.group.pods] if isinstance(event, GroupArrived) else getattr(event, "uids", ())
    return (type(event).__name__, event.at, *uids, getattr(event, "uid", ""))


def decided(effect: Effect) -> tuple[object, ...]:
    assert isinstance(effect, Bind | Wait)
    decision = effect.decision
    shares = [(share.uuid, share.memory_mib, share.compute_milli) for share in decision.shares]
    return (type(effect).__name__, effect.pod.uid, effect.pod.created, decision.node, shares, decision.reason.name)


def recorded(told: list[tuple[object, ...]]) -> Any:
    """`stage`, of whose schedulers every event and its effects are noted."""

    def staged(*args: Any, **more: Any) -> Scheduler:
        scheduler = stage(*args, **more)
        handle = scheduler.handle

        def noted(event: Event) -> tuple[Effect, ...]:
            effects = handle(event)
            told.append((essence(event), *map(decided, effects)))
            return effects

        scheduler.handle = noted  # type: ignore[method-assign]
        return scheduler

    return staged


def rounded(value: Any) -> Any:
    """Sums of many floats depend on the processor in their last digits."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def digest(trace: Trace, policy: str, queue: str, patch: pytest.MonkeyPatch) -> str:
    told: list[tuple[object, ...]] = []
    log: list[LogEntry] = []
    patch.setattr("dovetail.sim.timeline.stage", recorded(told))
    found: dict[str, Any] = msgspec.to_builtins(replay(trace, policy, 1, queue, mode="interpreted", log=log))
    assert {name for name in LATER if found.get(name)} == set()
    result = {name: rounded(value) for name, value in found.items() if name not in LATER | MEASURED_LATER | SPEED}
    parts = (result, [tuple(entry) for entry in log], told)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@pytest.mark.parametrize(("name", "policy", "queue"), DIGESTS)
def test_plain_runs_are_what_they_were(name: str, policy: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload, cluster = TRACES[name]
    trace = generate(workload, parse_cluster(cluster))
    assert digest(trace, policy, queue, monkeypatch) == DIGESTS[name, policy, queue]
