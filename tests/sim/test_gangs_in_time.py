"""Gangs in time mode: whole or waiting at every moment, in the racks that they ask for."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.events import Effect, Event, GroupArrived
from dovetail.model.pod import Group
from dovetail.policies.yielding import YIELD_BY_PRIORITY
from dovetail.sim import stage as stage_module
from dovetail.sim.clusters import parse_cluster
from dovetail.sim.timeline import LogEntry, replay
from dovetail.sim.trace import Job, Machine, Trace, TraceError

MIXES = 200


class Witness(Scheduler):
    """A scheduler that checks after each event: every gang holds nothing, or what it needs, by role."""

    checked = 0

    def handle(self, event: Event) -> tuple[Effect, ...]:
        if not hasattr(self, "seen"):
            self.seen: dict[str, Group] = {}
        effects = super().handle(event)
        if isinstance(event, GroupArrived):
            self.seen[event.group.name] = event.group
        for group in self.seen.values():
            held = Counter(pod.role for pod in group.pods if pod.uid in self.ledger.pods)
            Witness.checked += bool(held)
            if held:
                assert held.total() >= group.minimum, (event, group.name, held)
                assert all(held[role.name] >= role.minimum for role in group.roles), (event, group.name, held)
        return effects


@pytest.fixture
def witnessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "Scheduler", Witness)


def whole(name: str, pods: int, gpus: int, **facts: object) -> Job:
    return Job(name, cpu_milli=1000, gpus=gpus, gpu_milli=1000, pods=pods, duration=100.0, **facts)  # type: ignore[arg-type]


def starts(log: list[LogEntry]) -> dict[str, float]:
    found: dict[str, float] = {}
    for entry in log:
        if entry.what == "start":
            found.setdefault(entry.job, entry.at)
    return found


def test_of_two_gangs_that_need_60_percent_each_one_runs_and_one_waits(witnessed: None) -> None:
    """10 machines of 8 GPUs: 6 × 8 = 48 of 80 GPUs for each gang. The second starts when the first has ended."""
    machines = parse_cluster("10xA100-SXM4-80GB:8@5")
    jobs = (whole("first", 6, 8, arrival=0.0), whole("second", 6, 8, arrival=0.0))
    log: list[LogEntry] = []
    result = replay(Trace("two", machines, jobs), "best-fit", mode="interpreted", log=log)
    assert starts(log) == {"first": 0.0, "second": 100.0}
    assert result.finished == 2


def test_a_gang_with_a_required_rack_waits_for_one_rack(witnessed: None) -> None:
    """2 racks of 2 × 8 GPUs, with a GPU of each in use until second 50. One node of each rack is free until second 1.

    A gang of 2 × 8 GPUs starts at once on two racks; the one that must have a single rack waits for second 50 or later.
    """
    machines = parse_cluster("4xA100-SXM4-80GB:8@2")
    apart = Job("apart", 1000, 0, 1, 1000, pods=2, duration=50.0, least_racks=2)
    gang = whole("gang", 2, 8, arrival=1.0, required="rack")
    free = whole("free", 2, 8, arrival=1.0)
    log: list[LogEntry] = []
    result = replay(Trace("racks", machines, (apart, gang, free)), "best-fit", mode="interpreted", log=log)
    assert starts(log) == {"apart": 0.0, "free": 1.0, "gang": 101.0}
    assert result.gangs is not None
    assert result.gangs.jobs == 3


def test_roles_of_a_gang_start_together_and_are_measured(witnessed: None) -> None:
    machines = parse_cluster("4xA100-SXM4-80GB:8@2x1")
    launcher = Job("launcher", 1000, arrival=5.0, duration=100.0, gang="train")
    workers = whole("workers", 2, 8, arrival=5.0, gang="train", required="rack")
    before = whole("before", 3, 8, arrival=0.0)
    log: list[LogEntry] = []
    result = replay(Trace("roles", machines, (before, launcher, workers)), "best-fit", mode="interpreted", log=log)
    assert starts(log) == {"before": 0.0, "launcher": 100.0, "workers": 100.0}
    assert result.gangs is not None
    # `before` used 3 nodes in 2 racks, `workers` 2 nodes in one: means 1.5 and 2.5. 24 and 16 GPUs need 2 and 1 racks.
    assert (result.gangs.racks_mean, result.gangs.nodes_mean, result.gangs.racks_fewest_mean) == (1.5, 2.5, 1.5)
    assert result.gangs.one_rack_pct == 50.0
    # `workers` waited 95 s; 8 of its 16 GPUs were idle meanwhile, which is not enough to call it fragmentation.
    assert result.gangs.fragmented_wait_mean == 0.0


def test_roles_of_a_gang_must_arrive_together() -> None:
    machines = parse_cluster("1xA100-SXM4-80GB:8")
    jobs = (Job("a", 1000, gang="g"), Job("b", 1000, arrival=1.0, gang="g"))
    with pytest.raises(TraceError, match="the jobs of gang 'g' must have the same arrival"):
        replay(Trace("late", machines, jobs), "best-fit", mode="interpreted")


def test_waiting_beside_idle_gpus_is_fragmentation(witnessed: None) -> None:
    """16 of 32 GPUs stay idle, 8 in each rack, while a gang waits 50 s for 16 in one rack."""
    machines = parse_cluster("4xA100-SXM4-80GB:8@2")
    apart = whole("apart", 2, 8, least_racks=2)
    gang = whole("gang", 2, 8, arrival=50.0, required="rack")
    result = replay(Trace("racks", machines, (apart, gang)), "best-fit", mode="interpreted")
    assert result.gangs is not None
    assert result.gangs.fragmented_wait_mean == 25.0  # 0 s and 50 s


def mix(seed: int) -> Trace:
    """A small cluster with racks, and gangs with roles and rules among single pods."""
    dice = Random(seed)
    machines = parse_cluster(f"{dice.randint(2, 6)}xA100-SXM4-80GB:{dice.choice((4, 8))}@{dice.randint(1, 3)}x2")
    jobs: list[Job] = []
    for number in range(dice.randint(4, 14)):
        arrival = float(dice.randint(0, 60))
        facts = {"arrival": arrival, "duration": float(dice.randint(5, 60)), "priority": dice.choice((0, 0, 5))}
        rule = {"required": dice.choice(("", "", "block", "rack")), "preferred": dice.choice(("", "rack"))}
        if dice.random() < 0.3:
            rule["most_per_node"] = dice.randint(1, 3)  # type: ignore[assignment]
        gang = f"gang{number}" if dice.random() < 0.3 else ""
        gpus, pods = dice.choice((1, 2, 4)), dice.randint(1, 5)
        jobs.append(Job(f"job{number}", 1000, 0, gpus, 1000, pods=pods, gang=gang, **rule, **facts))  # type: ignore[arg-type]
        if gang:
            jobs.append(Job(f"lead{number}", 1000, gang=gang, **facts))  # type: ignore[arg-type]
    return Trace(f"mix{seed}", machines, tuple(jobs))


@pytest.mark.slow
def test_no_gang_is_ever_below_its_minimum(witnessed: None) -> None:
    Witness.checked = 0
    for seed in range(MIXES):
        rights = Rights(yielding=YIELD_BY_PRIORITY) if seed % 2 else None
        replay(mix(seed), "best-fit", mode="interpreted", rights=rights)
    print(f"{MIXES} mixes, {Witness.checked:,} looks at a gang that holds something")
    assert Witness.checked > 10 * MIXES


def test_racks_of_a_cluster_line() -> None:
    machines = parse_cluster("5xT4:4@2x2,1xCPU")
    assert [(one.block, one.rack) for one in machines] == [
        ("block-0", "rack-0"),
        ("block-0", "rack-0"),
        ("block-0", "rack-1"),
        ("block-0", "rack-1"),
        ("block-1", "rack-2"),
        ("", ""),
    ]
    with pytest.raises(TraceError, match="racks or blocks of nothing"):
        parse_cluster("5xT4:4@0")
    assert Machine("m", 0, 0).rack == ""
