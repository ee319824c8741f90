"""Why a gang with topology rules waits: the domain that came nearest, and what it lacks."""

from __future__ import annotations

from dovetail.model.gang import DomainSpread, Role, TopologyRule
from dovetail.model.pod import Group, RunningPod
from dovetail.model.reason import Reason
from dovetail.whatif.explain import explain
from dovetail.whatif.plan import Plan, plan, why_pending
from dovetail.whatif.situation import EngineOptions, Situation
from tests.builders import ask, pod
from tests.engine.gangs.instances import BLOCK, HOST, LEVELS, RACK
from tests.engine.gangs.test_domains import gang, machine, members, two_blocks

TOPOLOGIES = (("default", LEVELS),)
OPTIONS = EngineOptions(mode="interpreted")


def situation(group: Group, *running: RunningPod) -> Situation:
    return Situation(tuple(two_blocks()), running, groups=(group,), topologies=TOPOLOGIES)


def busy(where: str, gpus: int) -> RunningPod:
    return RunningPod(pod(f"busy-{where}", ask(gpus, 8000, 100)), where, None)


def planned(group: Group, *running: RunningPod) -> Plan:
    return plan(situation(group, *running), OPTIONS)


def test_the_plan_names_the_nearest_rack_and_what_it_lacks() -> None:
    """5 × 4 GPUs, racks of 16: 4 fit. Rack b1/r1 has lost 4 GPUs, b0/r0 is the first of the others."""
    found = planned(gang(members(5, 4), TopologyRule(required=RACK)), busy("b1r1h0", 4))
    outcome = found.pending[0]
    assert outcome.reason is Reason.NO_DOMAIN
    assert why_pending(outcome) == (
        "4 of 5 members of gang fit in b0/r0, the nearest of 4 domains of topology/rack, 5 must start together; the "
        "next finds GPU memory short by 8,000 MiB on 2 nodes; node is in no domain that the topology rules of the "
        "gang allow on 6 nodes"
    )


def test_members_that_run_decide_which_rack_is_named() -> None:
    one, *others = members(5, 4)
    group = Group("gang", tuple(others), 5, running=1, topology=TopologyRule(required=RACK))
    found = planned(group, RunningPod(one, "b1r0h1", None))
    assert "3 of 4 members of gang fit in b1/r0, the domain of topology/rack where its other members run" in (
        why_pending(found.pending[0])
    )


def test_explain_says_the_same() -> None:
    group = gang(members(5, 4), TopologyRule(required=RACK))
    answer, _ = explain(situation(group), OPTIONS, lambda one: one.name == "worker-4")
    assert answer is not None
    assert answer.gathering is not None
    assert answer.gathering.nearest is not None
    assert (answer.gathering.nearest.name, answer.gathering.fit) == ("b0/r0", 4)
    assert "fit in b0/r0, the nearest of 4 domains" in answer.why


def test_a_spread_that_cannot_hold_is_named() -> None:
    rule = TopologyRule(spreads=(DomainSpread(RACK, least_domains=5),))
    found = planned(gang(members(6, 1), rule))
    assert found.pending[0].reason is Reason.DOMAINS_TOO_FEW
    assert "over at least 5 domains of topology/rack" in why_pending(found.pending[0])


def test_roles_and_limits_are_named() -> None:
    """8 nodes, at most 1 pod on each: 8 of 9 workers fit."""
    roles = (Role("lead", 1), Role("worker", 9))
    rule = TopologyRule(spreads=(DomainSpread(HOST, most_each=1),))
    group = gang((*members(1, 0, "lead"), *members(9, 1, "worker")), rule, None, *roles)
    text = why_pending(planned(group).pending[0])
    assert "8 of 10 members of gang fit, 10 must start together with 1 lead and 9 worker, at most 1 pod in each" in text


def test_a_missing_role_is_named() -> None:
    group = gang(members(2, 1, "worker"), TopologyRule(required=BLOCK), 2, Role("lead", 1), Role("worker", 2))
    text = why_pending(planned(group).pending[0])
    assert text == "0 of 1 members of gang with role lead are there, 1 more must be created"


def test_surplus_that_its_rack_cannot_take_says_so() -> None:
    """The rack of the gang is full; other racks have room, but the rule does not allow them."""
    first = [RunningPod(one, where, None) for one, where in zip(members(2, 8), ("b0r0h0", "b0r0h1"), strict=True)]
    group = Group("gang", members(1, 8, first=2), 2, running=2, topology=TopologyRule(required=RACK))
    outcome = planned(group, *first).pending[0]
    assert "node is in no domain that the topology rules of the gang allow on 6 nodes" in why_pending(outcome)


def test_no_node_has_the_label() -> None:
    group = gang(members(2, 1), TopologyRule(required="no/such-label"))
    text = why_pending(planned(group).pending[0])
    assert "0 of 2 members of gang fit in no domain" in text
    assert machine(0, 0, 0).labels[RACK] == "r0"
