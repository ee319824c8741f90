"""Rules in force: while the set is empty, no rule concerns a pod that has none itself."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.engine.ledger.in_force import Rule
from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import Event, NodeChanged, NodeGone, PodGone, PodNominated, PodObserved, QuotaChanged
from dovetail.model.node import Node, Taint
from dovetail.model.pod import Pod, Quota, RunningPod
from dovetail.model.relations import PodTerm, Relations, Selector
from tests.builders import ask, cluster, group, node, pod

QUOTA = Quota("default", "q", device_memory_mib={"NVIDIA": 12_000})
TERM = PodTerm("zone", Selector((("app", "web"),)), ("default",))
TERMS = {
    "required": Relations(affinity=(TERM,)),
    "against": Relations(anti_affinity=(TERM,)),
    "preferred": Relations(preferred_affinity=(TERM,)),
    "disliked": Relations(preferred_anti_affinity=(TERM,)),
}
PLAIN = pod("plain", ask(1, 1000), labels={"app": "web"})
NOMINEE = pod("nominee", ask(1, 1000), priority=5)


def tainted(name: str, effect: str = "PreferNoSchedule") -> Node:
    return node(name, gpus=2, labels={"zone": name}, taints=(Taint("k", "v", effect),))


def clean(name: str) -> Node:
    return node(name, gpus=2, labels={"zone": name})


def with_terms(kind: str) -> Pod:
    return pod(kind, relations=TERMS[kind])


def is_concerned(scheduler: Scheduler, one: Pod) -> bool:
    """The full answer, asked of each rule."""
    related = scheduler.related
    nominated = scheduler.nominated.matter(one)
    return nominated or scheduler.quotas.apply_to(one) or related.restricts(one) or related.preferred.concerns(one)


CHANGES: dict[str, tuple[Event, Event, Rule]] = {
    "quota": (QuotaChanged(1.0, "default", "q", QUOTA), QuotaChanged(2.0, "default", "q", None), Rule.QUOTA),
    "nomination": (PodNominated(1.0, NOMINEE, "a"), PodNominated(2.0, NOMINEE, ""), Rule.NOMINATION),
    "nominee is gone": (PodNominated(1.0, NOMINEE, "a"), PodGone(2.0, NOMINEE.uid), Rule.NOMINATION),
    "taint": (NodeChanged(1.0, tainted("b")), NodeChanged(2.0, clean("b")), Rule.NODE_TAINT),
    "tainted node is gone": (NodeChanged(1.0, tainted("c")), NodeGone(2.0, "c"), Rule.NODE_TAINT),
    **{
        kind: (PodObserved(1.0, RunningPod(with_terms(kind), "a", ())), PodGone(2.0, f"uid-{kind}"), Rule.POD_TERM)
        for kind in TERMS
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_rule_is_in_force_from_its_first_to_its_last_reason(change: str) -> None:
    scheduler = cluster(clean("a"), clean("b"))
    comes, goes, rule = CHANGES[change]
    assert not scheduler.ledger.in_force
    scheduler.handle(comes)
    assert scheduler.ledger.in_force == {rule}
    scheduler.handle(goes)
    assert not scheduler.ledger.in_force


def test_other_taints_and_what_was_undone_are_not_in_force() -> None:
    scheduler = cluster(clean("a"), tainted("b", "NoSchedule"))
    with scheduler.trial():
        assert scheduler.place([group(with_terms("against"))])[0].placed
        assert scheduler.ledger.in_force == {Rule.POD_TERM}
    assert not scheduler.ledger.in_force


def test_a_rebuilt_ledger_has_the_rules_of_its_pods_and_nodes() -> None:
    scheduler = cluster(clean("a"), tainted("b"))
    scheduler.handle(PodObserved(1.0, RunningPod(with_terms("against"), "a", ())))
    scheduler.rebuild([clean("a")], [], [])
    assert not scheduler.ledger.in_force
    scheduler.rebuild([tainted("a")], [RunningPod(with_terms("against"), "a", ())], [])
    assert scheduler.ledger.in_force == {Rule.POD_TERM, Rule.NODE_TAINT}


@pytest.mark.parametrize("seed", range(30))
def test_while_nothing_is_in_force_no_rule_concerns_a_plain_pod(seed: int) -> None:
    """Any order of the changes above; and where a rule does concern the pod, it needs care."""
    chance, scheduler = Random(seed), cluster(clean("a"), clean("b"))
    for _ in range(40):
        comes, goes, _rule = CHANGES[chance.choice(list(CHANGES))]
        scheduler.handle(chance.choice((comes, goes)))
        concerned = is_concerned(scheduler, PLAIN)
        assert scheduler.ledger.in_force or not concerned
        assert scheduler.placer.needs_care(group(PLAIN)) == concerned
