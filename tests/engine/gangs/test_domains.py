"""Gangs with a required level, a preferred level, spreads and roles, with the arithmetic beside each case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Decision
from dovetail.model.events import Bind, GroupArrived, NodeChanged, PodBound, PodGone, PodObserved, TopologyChanged
from dovetail.model.gang import ANYWHERE, DomainSpread, Role, TopologyRule
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, Quota, RunningPod
from dovetail.model.reason import Reason
from tests.builders import ask, node, pod
from tests.engine.gangs.instances import BLOCK, HOST, LEVELS, RACK


def machine(block: int, rack: int, host: int, gpus: int = 8, **facts: object) -> Node:
    name = f"b{block}r{rack}h{host}"
    return node(name, gpus=gpus, labels={BLOCK: f"b{block}", RACK: f"r{rack}", HOST: name}, **facts)  # type: ignore[arg-type]


def two_blocks(gpus: int = 8) -> list[Node]:
    """2 blocks × 2 racks × 2 nodes × 8 GPUs. The racks of both blocks have the same names."""
    return [machine(block, rack, host, gpus) for block in (0, 1) for rack in (0, 1) for host in (0, 1)]


def cluster(nodes: Sequence[Node], **options: object) -> Scheduler:
    scheduler = Scheduler(mode="interpreted", **options)  # type: ignore[arg-type]
    scheduler.handle(TopologyChanged(0.0, "default", LEVELS))
    for one in nodes:
        scheduler.handle(NodeChanged(0.0, one))
    return scheduler


def members(count: int, gpus: int, role: str = "", first: int = 0, **facts: object) -> tuple[Pod, ...]:
    asks = (ask(gpus, 8000, 100),) if gpus else ()
    names = [f"{role or 'worker'}-{n}" for n in range(first, first + count)]
    return tuple(pod(name, *asks, group="gang", role=role, **facts) for name in names)  # type: ignore[arg-type]


def gang(pods: tuple[Pod, ...], rule: TopologyRule = ANYWHERE, minimum: int | None = None, *roles: Role) -> Group:
    return Group("gang", pods, len(pods) if minimum is None else minimum, roles=roles, topology=rule)


def racks(decisions: Sequence[Decision]) -> Counter[str]:
    """Pods by rack: b0r1."""
    return Counter(str(decision.node)[:4] for decision in decisions if decision.placed)


def busy(scheduler: Scheduler, where: str, gpus: int) -> None:
    for number in range(gpus):
        running = RunningPod(pod(f"busy-{where}-{number}", ask(1, 8000, 100)), where, None)
        scheduler.handle(PodObserved(0.0, running))


def test_all_pods_are_in_one_rack_or_none_is_placed() -> None:
    scheduler = cluster(two_blocks())
    rule = TopologyRule(required=RACK)
    assert racks(scheduler.place([gang(members(4, 4), rule)])) == {"b0r0": 4}  # 4 × 4 = 16 GPUs: a whole rack
    decisions = scheduler.place([gang(members(5, 4, first=4), rule)])  # 20 GPUs: no rack has more than 16
    assert {decision.reason for decision in decisions} == {Reason.NO_DOMAIN}
    assert sum(len(scheduler.ledger.held_on(row)) for row in range(8)) == 4


def test_racks_with_the_same_name_in_two_blocks_are_two_racks() -> None:
    scheduler = cluster([machine(0, 0, 0), machine(1, 0, 0)])  # b0/r0 and b1/r0
    assert not any(d.placed for d in scheduler.place([gang(members(2, 8), TopologyRule(required=RACK))]))


def test_a_label_in_no_topology_is_a_flat_topology() -> None:
    scheduler = cluster([machine(0, 0, 0), machine(1, 0, 0)])
    scheduler.handle(TopologyChanged(1.0, "default", ()))  # now racks are identified by their own label only
    assert all(d.placed for d in scheduler.place([gang(members(2, 8), TopologyRule(required=RACK))]))


def test_a_waiting_gang_is_tried_when_the_topology_or_a_label_changes() -> None:
    scheduler = cluster([machine(0, 0, 0), machine(1, 0, 0)])
    group = gang(members(2, 8), TopologyRule(required=RACK))
    assert not any(isinstance(effect, Bind) for effect in scheduler.handle(GroupArrived(1.0, group)))
    moved = replace(machine(1, 0, 0), labels={BLOCK: "b0", RACK: "r0"})
    effects = scheduler.handle(NodeChanged(2.0, moved))
    assert [effect.decision.node for effect in effects if isinstance(effect, Bind)] == ["b0r0h0", "b1r0h0"]


def test_the_fullest_rack_that_suffices_is_taken() -> None:
    scheduler = cluster(two_blocks())
    busy(scheduler, "b1r0h0", 4)  # free: 16, 16, 12, 16
    assert racks(scheduler.place([gang(members(3, 4), TopologyRule(required=RACK))])) == {"b1r0": 3}  # 12 fits exactly


def test_nodes_without_the_label_are_in_no_domain() -> None:
    scheduler = cluster([node("loose", gpus=16), machine(0, 0, 0)])
    assert racks(scheduler.place([gang(members(2, 4), TopologyRule(required=RACK))])) == {"b0r0": 2}


def test_a_preferred_rack_is_packed_into_the_fewest_racks() -> None:
    scheduler = cluster(two_blocks())
    found = racks(scheduler.place([gang(members(5, 8), TopologyRule(preferred=RACK))]))  # 40 GPUs = 2.5 racks
    assert len(found) == 3
    assert sorted(found.values()) == [1, 2, 2]


def test_preferred_racks_inside_a_required_block() -> None:
    scheduler = cluster(two_blocks())
    busy(scheduler, "b0r0h0", 1)  # block 0 has 31 GPUs left: 3 whole nodes
    rule = TopologyRule(required=BLOCK, preferred=RACK)
    assert racks(scheduler.place([gang(members(4, 8), rule)])) == {"b1r0": 2, "b1r1": 2}
    other = Group("other", tuple(replace(one, group="other") for one in members(2, 8, first=4)), 2, topology=rule)
    assert racks(scheduler.place([other])) == {"b0r1": 2}


def test_spread_over_at_least_three_racks_and_at_most_two_on_a_node() -> None:
    scheduler = cluster(two_blocks())
    rule = TopologyRule(spreads=(DomainSpread(RACK, least_domains=3), DomainSpread(HOST, most_each=2)))
    decisions = scheduler.place([gang(members(6, 1), rule)])
    assert len(racks(decisions)) >= 3
    assert max(Counter(decision.node for decision in decisions).values()) <= 2
    wide = TopologyRule(spreads=(DomainSpread(RACK, least_domains=5),))  # there are 4 racks
    assert {d.reason for d in scheduler.place([gang(members(9, 1, first=6), wide)])} == {Reason.DOMAINS_TOO_FEW}


def test_roles_have_minimums_of_their_own() -> None:
    """2 × 8 GPUs: a launcher of 0 GPUs, workers of 4 GPUs; 5 workers do not fit, 4 do."""
    scheduler = cluster([machine(0, 0, 0), machine(0, 0, 1)])
    pods = (*members(1, 0, "launcher"), *members(5, 4, "worker"))
    roles = (Role("launcher", 1), Role("worker", 4))
    decisions = scheduler.place([gang(pods, ANYWHERE, 5, *roles)])
    assert [decision.placed for decision in decisions] == [True, True, True, True, True, False]


def test_a_role_below_its_minimum_stops_the_whole_gang() -> None:
    scheduler = cluster([machine(0, 0, 0), machine(0, 0, 1)])
    pods = (*members(1, 0, "launcher"), *members(5, 4, "worker"))
    decisions = scheduler.place([gang(pods, ANYWHERE, 2, Role("launcher", 1), Role("worker", 5))])
    assert not any(decision.placed for decision in decisions)
    assert len(scheduler.ledger.pods) == 0


def test_a_missing_role_makes_the_gang_incomplete() -> None:
    scheduler = cluster([machine(0, 0, 0)])
    group = gang(members(2, 1, "worker"), ANYWHERE, 2, Role("launcher", 1), Role("worker", 2))
    assert {decision.reason for decision in scheduler.place([group])} == {Reason.GROUP_INCOMPLETE}


def test_each_role_in_a_rack_of_its_own_and_all_in_one_block() -> None:
    """2 × 12 GPUs of two roles, racks of 16: no rack holds both roles (24), a block of 32 does."""
    scheduler = cluster(two_blocks())
    pods = (*members(3, 4, "a"), *members(3, 4, "b"))
    roles = (Role("a", 3, TopologyRule(required=RACK)), Role("b", 3, TopologyRule(required=RACK)))
    decisions = scheduler.place([gang(pods, TopologyRule(required=BLOCK), None, *roles)])
    assert [len(racks(decisions[:3])), len(racks(decisions[3:]))] == [1, 1]
    assert len({str(decision.node)[:2] for decision in decisions}) == 1


def test_new_members_go_where_the_others_run() -> None:
    scheduler = cluster(two_blocks())
    first = members(2, 4)
    for one in first:
        scheduler.handle(PodObserved(0.0, RunningPod(one, "b1r1h0", None)))  # b1/r1 has 8 GPUs left
    rule = TopologyRule(required=RACK)
    more = Group("gang", members(2, 4, first=2), 2, running=2, topology=rule)
    assert racks(scheduler.place([more])) == {"b1r1": 2}
    # The surplus waits rather than leave the rack, which is full now.
    late = Group("gang", members(1, 4, first=4), 2, running=4, topology=rule)
    assert [decision.reason for decision in scheduler.place([late])] == [Reason.OTHER_DOMAIN]


def test_a_member_that_comes_back_goes_beside_the_others() -> None:
    scheduler = cluster(two_blocks())
    group = gang(members(3, 4), TopologyRule(required=RACK))
    for effect in scheduler.handle(GroupArrived(1.0, group)):
        assert isinstance(effect, Bind)
        scheduler.handle(PodBound(1.0, effect.pod.uid))
    scheduler.handle(PodGone(2.0, group.pods[0].uid))
    again = Group("gang", (replace(group.pods[0], name="again", uid="again"),), 3, topology=group.topology)
    [effect] = scheduler.handle(GroupArrived(3.0, again))
    assert isinstance(effect, Bind)
    assert str(effect.decision.node).startswith("b0r0")


def test_the_surplus_is_placed_within_the_rules() -> None:
    """A rack of 16 GPUs holds 4 of 6 pods; 3 are needed. The two others stay out of the other racks."""
    scheduler = cluster(two_blocks())
    decisions = scheduler.place([gang(members(6, 4), TopologyRule(required=RACK), 3)])
    assert racks(decisions) == {"b0r0": 4}


def test_quotas_hold_inside_a_domain() -> None:
    quota = Quota("default", "gpus", {}, {"NVIDIA": 24_000}, {})  # 3 cards × 8,000 MiB
    scheduler = cluster(two_blocks(), quotas=(quota,))
    assert not any(d.placed for d in scheduler.place([gang(members(4, 1), TopologyRule(required=RACK))]))
    assert racks(scheduler.place([gang(members(3, 1), TopologyRule(required=RACK))])) == {"b0r0": 3}


def test_search_finds_what_placing_role_by_role_misses() -> None:
    """Two nodes of 8 GPUs for 4 + 3 + 3 + 2 + 2 + 2 = 16 GPUs: 4 + 2 + 2 and 3 + 3 + 2. The policy makes 4 + 3."""
    scheduler = cluster([machine(0, 0, 0), machine(0, 0, 1)])
    pods = (*members(1, 4, "four"), *members(2, 3, "three"), *members(3, 2, "two"))
    roles = (Role("four", 1), Role("three", 2), Role("two", 3))
    assert all(decision.placed for decision in scheduler.place([gang(pods, ANYWHERE, None, *roles)]))
    assert scheduler.gangs.searched > 0


@pytest.mark.parametrize("rule", [TopologyRule(required=RACK), TopologyRule(preferred=RACK)])
def test_a_group_of_one_pod_follows_its_rule(rule: TopologyRule) -> None:
    scheduler = cluster([node("loose", gpus=8), machine(0, 0, 0)])
    [decision] = scheduler.place([gang(members(1, 8), rule)])
    assert decision.node == "b0r0h0"
