"""The single change that is suggested does place the pod: it is made here, by other means, and tried."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings

from dovetail.engine import audit
from dovetail.engine.changes import Change, constraints_dropped, fewer_cards, less, other_policies, taints_tolerated
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.suggest import Suggestion, suggest
from dovetail.model.events import NodeChanged, PodObserved
from dovetail.model.node import Node, Taint
from dovetail.model.pod import Group, Pod, RunningPod
from dovetail.model.rules import NodeRules
from tests.builders import ask, card, cluster, group, node, place, pod, use
from tests.engine.pictures import made, picture
from tests.strategies import World, worlds

KINDS = ("less", "fewer-cards", "drop-constraint", "tolerate-taint", "policy", "pod-gone", "more-nodes")


def copy_of(scheduler: Scheduler, nodes: list[Node], without: str = "") -> Scheduler:
    """Another scheduler with these nodes and the same pods, but for one."""
    other = made(nodes)
    for uid, held in scheduler.ledger.pods.items():
        if held.pod.key != without:
            running = RunningPod(held.pod, scheduler.ledger.node_of(uid), scheduler.ledger.shares(held.slot))
            other.handle(PodObserved(0.0, running))
    return other


def placed(scheduler: Scheduler, waiting: Group, uid: str) -> str | None:
    with scheduler.ledger.transaction():
        return next(d.node for d in scheduler.place([waiting]) if d.uid == uid)


def changed_group(waiting: Group, wanted: Pod, change: Change) -> Group:
    """The change is made to the pod and to the members like it."""
    return replace(
        waiting,
        pods=tuple(
            change.apply(p) if p.uid == wanted.uid or p.containers == wanted.containers else p for p in waiting.pods
        ),
    )


def follow(scheduler: Scheduler, world: World, waiting: Group, wanted: Pod, advice: Suggestion) -> str | None:
    """Do what was suggested, on a cluster of our own; where the pod then goes."""
    nodes = list(world.nodes)
    if advice.kind == "pod-gone":
        found = re.fullmatch(r"if pod (\S+) \(priority (\d)\) left node (\S+)", advice.sentence)
        assert found
        return placed(copy_of(scheduler, nodes, without=found[1]), waiting, wanted.uid)
    if advice.kind == "more-nodes":
        found = re.match(r"with one more node like (\S+)", advice.sentence)
        assert found
        like = next(one for one in nodes if one.name == found[1])
        return placed(copy_of(scheduler, [*nodes, new_machine(like)]), waiting, wanted.uid)
    other = copy_of(scheduler, nodes)

    def works(change: Change) -> bool:
        return placed(other, changed_group(waiting, wanted, change), wanted.uid) is not None

    tries = {
        "less": lambda: less(wanted, works),
        "fewer-cards": lambda: fewer_cards(wanted),
        "drop-constraint": lambda: constraints_dropped(wanted),
        "tolerate-taint": lambda: taints_tolerated(wanted, nodes),
        "policy": lambda: other_policies(wanted, alone=len(waiting.pods) == 1),
    }
    change = next(change for change in tries[advice.kind]() if change.sentence == advice.sentence)
    return placed(other, changed_group(waiting, wanted, change), wanted.uid)


def new_machine(like: Node) -> Node:
    sound = {"healthy": True, "cordoned": False}
    devices = tuple(msgspec.structs.replace(d, uuid=f"new/{n}", **sound) for n, d in enumerate(like.devices))
    labels = {key: "zz-new" if value == like.name else value for key, value in like.labels.items()}
    return replace(like, name="zz-new", devices=devices, labels=labels, unschedulable=False)


def test_every_suggestion_places_the_pod() -> None:
    reached: Counter[str] = Counter()

    @settings(max_examples=150)
    @given(worlds(nodes=5, pods=14))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        for waiting in world.groups:
            decisions = scheduler.place([waiting])
            late = [p for p, d in zip(waiting.pods, decisions, strict=True) if not d.placed]
            if not late or len(late) < len(waiting.pods) or len(waiting.pods) < waiting.minimum:
                continue
            before = picture(scheduler)
            advice = suggest(scheduler, waiting, late[0])
            assert settled(picture(scheduler)) == settled(before)
            audit.validate(scheduler.ledger)
            if advice is None:
                reached["none"] += 1
                continue
            reached[advice.kind] += 1
            where = follow(scheduler, world, waiting, late[0], advice)
            assert where is not None, advice
            if advice.kind != "more-nodes":
                assert where == advice.verified_node

    property_holds()
    assert all(reached[kind] for kind in KINDS), reached


def settled(seen: dict[str, object]) -> dict[str, object]:
    """Without nodes that were only tried."""
    nodes: dict[str, object] = seen["nodes"]  # type: ignore[assignment]
    return {**seen, "nodes": {name: node for name, node in nodes.items() if "(one more)" not in name}}


def advised(scheduler: Scheduler, wanted: Pod) -> tuple[str, str]:
    assert place(scheduler, wanted) == [(None, ())]
    advice = suggest(scheduler, group(wanted), wanted)
    assert advice is not None
    return advice.kind, advice.sentence


def test_less_is_as_little_less_as_possible() -> None:
    """8,000 MiB, 3,000 in use: 5,000 are left."""
    scheduler = cluster(node("n", card("a")))
    use(scheduler, "n", "a", 1, 3000, 25)
    assert advised(scheduler, pod("p", ask(1, 6000))) == (
        "less",
        "ask for 5,000 MiB of GPU memory instead of 6,000",
    )
    assert advised(scheduler, pod("q", ask(1, 0, percent=100))) == (
        "less",
        "ask for 62 % of the GPU's memory instead of 100 %",
    )
    assert advised(scheduler, pod("r", ask(1, 10, 80))) == ("less", "ask for 75 % of the GPU's compute instead of 80 %")


def test_fewer_cards() -> None:
    assert advised(cluster(node("n", card("a"), card("b"))), pod("p", ask(3, 100)))[0] == "fewer-cards"


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        (NodeRules(selector=(("zone", "a"),)), "drop nodeSelector zone=a"),
        (NodeRules(node_name="elsewhere"), "drop nodeName elsewhere"),
        (NodeRules(affinity=()), "drop the required node affinity"),
    ],
)
def test_one_constraint_dropped(rules: NodeRules, sentence: str) -> None:
    assert advised(cluster(node("n", card("a"))), pod("p", ask(1, 100), node_rules=rules)) == (
        "drop-constraint",
        sentence,
    )


def test_one_taint_tolerated() -> None:
    scheduler = cluster(node("n", card("a"), taints=(Taint("team", "ml", "NoSchedule"),)))
    assert advised(scheduler, pod("p", ask(1, 100))) == ("tolerate-taint", "tolerate the taint team=ml:NoSchedule")
    scheduler = cluster(node("n", card("a"), unschedulable=True))
    assert advised(scheduler, pod("p", ask(1, 100)))[0] == "tolerate-taint"


def test_another_policy() -> None:
    scheduler = cluster(node("n", card("a")))
    use(scheduler, "n", "a", 1, 100, 0)
    kind, sentence = advised(scheduler, pod("p", ask(1, 100), gpu_policy="mutex"))
    assert (kind, sentence) == ("policy", "use the GPU policy binpack instead of mutex")


def test_the_least_important_pod_gone() -> None:
    """Two slots, both taken; nothing about the request would help."""
    scheduler = cluster(node("n", card("a", slots=2)))
    place(scheduler, pod("dear", ask(1, 10), priority=9), pod("cheap", ask(1, 10), priority=1))
    assert advised(scheduler, pod("p", ask(1, 1))) == (
        "pod-gone",
        "if pod default/cheap (priority 1) left node n",
    )


def test_one_more_node() -> None:
    """Cards that are ill hold nobody, so nobody's leaving would help."""
    scheduler = cluster(node("n", card("a", healthy=False)))
    kind, sentence = advised(scheduler, pod("p", ask(1, 1)))
    assert (kind, sentence) == ("more-nodes", "with one more node like n (1 × NVIDIA)")
    scheduler.handle(NodeChanged(0.0, new_machine(node("n", card("a")))))
    assert place(scheduler, pod("p", ask(1, 1)))[0][0] == "zz-new"


def test_nothing_helps() -> None:
    scheduler = cluster(node("n"))
    wanted = pod("p", ask(1, 1))
    assert suggest(scheduler, group(wanted), wanted) is None
