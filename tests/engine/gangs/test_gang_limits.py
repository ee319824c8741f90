"""Gangs that a tenant can write and that no domain can hold: the work is bounded, and other gangs are not affected."""

from __future__ import annotations

import pytest

from dovetail.engine.gangs import scopes as scopes_module
from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.events import Bind, Evict, GangChanged, GroupArrived, NodeChanged, PodGone, PodObserved
from dovetail.model.gang import ANYWHERE, Role, TopologyRule
from dovetail.model.pod import Group, RunningPod
from dovetail.policies.yielding import YIELD_BY_PRIORITY
from tests.builders import ask, node, pod
from tests.engine.gangs.instances import BLOCK, RACK
from tests.engine.gangs.test_domains import cluster, machine

IN_ONE_RACK = TopologyRule(required=RACK)


def test_roles_that_no_rack_holds_do_not_cost_all_combinations_of_racks(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 roles of one GPU and one of three whole nodes, on 12 racks of two nodes: 12⁸ combinations lead nowhere."""
    scheduler = cluster([machine(0, rack, host) for rack in range(12) for host in range(2)])
    small = [pod(f"p{n}", ask(1, 8000, 100), group="g", role=f"r{n}") for n in range(8)]
    large = [pod(f"z{n}", ask(8, 8000, 100), group="g", role="z") for n in range(3)]
    roles = (*(Role(f"r{n}", 1, IN_ONE_RACK) for n in range(8)), Role("z", 3, IN_ONE_RACK))
    looks, before = [0], scopes_module.candidates

    def counted(*arguments: object) -> object:
        looks[0] += 1
        return before(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(scopes_module, "candidates", counted)
    effects = scheduler.handle(GroupArrived(1.0, Group("g", (*small, *large), 11, roles=roles)))
    assert not [effect for effect in effects if isinstance(effect, Bind)]
    assert looks[0] < 100


def test_a_block_with_many_small_racks_does_not_hide_the_next_block() -> None:
    """Block 0 has one rack of 8 GPUs and 9 racks of 1; block 1 has racks of 8. Two roles need 5 GPUs in one rack each.

    In block 0 the roles of 1 GPU have 10 × 10 combinations of racks, and none of them leaves room for both of 5.
    """
    scheduler = cluster(
        [*(machine(0, rack, 0, 8 if rack == 0 else 1) for rack in range(10)), *(machine(1, r, 0) for r in range(20))]
    )
    wanted = {"a": 1, "b": 1, "c": 5, "d": 5}
    pods = tuple(pod(name, ask(gpus, 8000, 100), group="g", role=name) for name, gpus in wanted.items())
    roles = tuple(Role(name, 1, IN_ONE_RACK) for name in wanted)
    group = Group("g", pods, 4, roles=roles, topology=TopologyRule(required=BLOCK))
    effects = scheduler.handle(GroupArrived(1.0, group))
    assert {str(effect.decision.node)[:2] for effect in effects if isinstance(effect, Bind)} == {"b1"}


def full(*names: str) -> Scheduler:
    """Nodes of one GPU, each in a rack of its own and with a pod of priority 0."""
    scheduler = Scheduler(mode="interpreted", rights=Rights(yielding=YIELD_BY_PRIORITY))
    for name in names:
        scheduler.handle(NodeChanged(0.0, node(name, gpus=1, labels={RACK: name})))
        scheduler.handle(PodObserved(0.0, RunningPod(pod(f"low-{name}", ask(1, 8000, 100)), name, None)))
    return scheduler


def test_a_search_that_failed_for_a_gang_with_rules_says_nothing_about_one_without() -> None:
    scheduler = full("a", "b")

    def arrives(name: str, rule: TopologyRule) -> list[str]:
        pods = tuple(pod(f"{name}{n}", ask(1, 8000, 100), priority=10, group=name) for n in range(2))
        effects = scheduler.handle(GroupArrived(1.0, Group(name, pods, 2, topology=rule)))
        return sorted(effect.pod.name for effect in effects if isinstance(effect, Evict))

    assert arrives("together", IN_ONE_RACK) == []  # no rack has two GPUs
    assert arrives("anywhere", ANYWHERE) == ["low-a", "low-b"]


def test_a_plan_is_dropped_if_members_have_left_meanwhile() -> None:
    """Four are needed, three run, one waits for the place of `low-d`. A running member ends: three would be too few."""
    scheduler = full("d")
    scheduler.handle(GangChanged(0.0, "g", 4))
    for name in "abc":
        scheduler.handle(NodeChanged(0.0, node(name, gpus=1)))
        member = pod(f"m-{name}", ask(1, 8000, 100), priority=10, group="g")
        scheduler.handle(PodObserved(0.0, RunningPod(member, name, None)))
    waiting = tuple(pod(f"w{n}", ask(1, 8000, 100), priority=10, group="g") for n in range(2))
    effects = scheduler.handle(GroupArrived(1.0, Group("g", waiting, 4)))
    assert [effect.pod.name for effect in effects if isinstance(effect, Evict)] == ["low-d"]
    scheduler.handle(PodGone(2.0, "uid-m-a"))
    scheduler.handle(PodObserved(2.0, RunningPod(pod("other", ask(1, 8000, 100), priority=99), "a", None)))
    effects = scheduler.handle(PodGone(3.0, "uid-low-d"))
    assert not [effect for effect in effects if isinstance(effect, Bind)]
