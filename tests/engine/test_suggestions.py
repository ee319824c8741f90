"""Every single change that is suggested does place the pod: it is made here, by other means, and tried."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given

from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.changes import SuggestedChange, constraints_dropped, other_policies
from dovetail.engine.why.explain import verdicts
from dovetail.engine.why.suggest import SUGGESTION_KINDS, Suggestion, alternatives
from dovetail.model.events import NodeChanged, PodObserved
from dovetail.model.node import Node, Taint
from dovetail.model.pod import DeviceRules, Group, Pod, RunningPod
from dovetail.model.rules import NodeRules, Toleration
from tests.builders import ask, card, cluster, group, node, place, pod, use
from tests.engine.pictures import made, picture, sizes
from tests.properties import with_examples
from tests.strategies import World, worlds


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


def changed_group(waiting: Group, wanted: Pod, change: SuggestedChange) -> Group:
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
    if advice.kind == "uncordon":
        return placed(copy_of(scheduler, [uncordoned(one, advice.sentence) for one in nodes]), waiting, wanted.uid)
    other = copy_of(scheduler, nodes)
    if advice.kind == "min-member":
        return first_of(other, waiting, advice.sentence)
    if advice.kind in ("drop-constraint", "policy"):
        tries = (*constraints_dropped(wanted), *other_policies(wanted, alone=len(waiting.pods) == 1))
        changes = [change for change in tries if change.sentence == advice.sentence][:1]
    else:  # which of several asks of a container is meant, the sentence does not say
        ways = range(len(written(wanted, advice.sentence)))
        changes = [SuggestedChange("", lambda one, way=way: written(one, advice.sentence)[way]) for way in ways]  # type: ignore[misc]
    went = [placed(other, changed_group(waiting, wanted, change), wanted.uid) for change in changes]
    return next((node for node in went if node is not None), None)


def first_of(other: Scheduler, waiting: Group, sentence: str) -> str | None:
    """With the smaller minMember, all of so many are placed; where the first of them goes."""
    found = re.fullmatch(r"lower minMember of \S+ from (\d+) to (\d+)", sentence)
    assert found
    assert (int(found[1]), 2 * int(found[2]) >= int(found[1])) == (waiting.minimum, True)
    with other.ledger.transaction():
        nodes = [d.node for d in other.place([replace(waiting, minimum=int(found[2]))]) if d.placed]
    assert len(nodes) >= int(found[2]) - waiting.running
    return nodes[0] if nodes else None


def uncordoned(one: Node, sentence: str) -> Node:
    if sentence == f"uncordon node {one.name}":
        return replace(one, unschedulable=False)
    found = re.fullmatch(rf"uncordon GPU (.+) of node {one.name}", sentence)
    named = found[1].split(", ") if found else []
    devices = tuple(msgspec.structs.replace(d, cordoned=False) if d.uuid in named else d for d in one.devices)
    return replace(one, devices=devices)


def written(wanted: Pod, sentence: str) -> list[Pod]:
    """What the user would write in the pod: read from the sentence, and never less than half of what was asked."""
    if found := re.fullmatch(r"tolerate the taint (\S+?)=(\S*):(\S+)", sentence):
        rules = wanted.node_rules
        toleration = Toleration(found[1], "Equal", found[2], found[3])
        return [replace(wanted, node_rules=replace(rules, tolerations=(*rules.tolerations, toleration)))]
    if found := re.fullmatch(r"take the GPU type (.+) (?:instead of \S+|as well)", sentence):
        other = DeviceRules("NVIDIA", use_types=(found[1],))
        old = wanted.rules_for("NVIDIA")
        return [replace(wanted, device_rules=(replace(old, use_types=other.use_types, nouse_types=()),))]
    found = re.fullmatch(r"(?:container c(\d): )?ask for (\S+) (.+?)(?: of the GPU's (\w+))? instead of (.+)", sentence)
    assert found, sentence
    amount, what = int(found[2].rstrip("m").replace(",", "")), found[4] or found[3]
    if what in ("CPU", "example.com/dongle"):
        name = {"CPU": "cpu"}.get(what, what)
        amount *= 1000 if what == "CPU" and not found[2].endswith("m") else 1
        assert 2 * amount >= wanted.resources[name] > amount
        return [replace(wanted, resources={**wanted.resources, name: amount})]
    return asking_for(wanted, int(found[1] or 0), what, amount)


def asking_for(wanted: Pod, at: int, what: str, amount: int) -> list[Pod]:
    """One ask of a container changed, for each for which it is less."""
    found = []
    for n, one in enumerate(wanted.containers[at].asks):
        parts: dict[str, tuple[int, dict[str, object]]] = {
            "GPU": (one.count, {"count": amount}),
            "GPUs": (one.count, {"count": amount}),
            "MiB of GPU memory": (one.memory_mib, {"memory_mib": amount, "memory_percent": None, "plain": False}),
            "memory": (one.memory_percent or 0, {"memory_percent": amount}),
            "compute": (one.compute_milli // 10, {"compute_milli": amount * 10, "plain": False}),
        }
        before, changed = parts[what.removeprefix("% ")]
        if one.plain and what == "MiB of GPU memory":
            changed = {**changed, "compute_milli": 0}
        if before > amount or (what == "MiB of GPU memory" and one.memory_percent == 100):
            asks, containers = list(wanted.containers[at].asks), list(wanted.containers)
            asks[n] = replace(one, **changed)  # type: ignore[arg-type]
            containers[at] = replace(containers[at], asks=tuple(asks))
            if 2 * amount >= before:
                found.append(replace(wanted, containers=tuple(containers)))
    return found


def new_machine(like: Node) -> Node:
    sound = {"healthy": True, "cordoned": False}
    devices = tuple(msgspec.structs.replace(d, uuid=f"new/{n}", **sound) for n, d in enumerate(like.devices))
    labels = {key: "zz-new" if value == like.name else value for key, value in like.labels.items()}
    return replace(like, name="zz-new", devices=devices, labels=labels, unschedulable=False)


def test_every_suggestion_places_the_pod() -> None:
    reached: Counter[str] = Counter()

    @with_examples(150)
    @given(worlds(nodes=5, pods=14))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        for waiting in world.groups:
            decisions = scheduler.place([waiting])
            late = [p for p, d in zip(waiting.pods, decisions, strict=True) if not d.placed]
            if not late or len(late) < len(waiting.pods) or len(waiting.pods) < waiting.minimum:
                continue
            before, tables = picture(scheduler), sizes(scheduler)
            offered = alternatives(scheduler, waiting, late[0], most=len(SUGGESTION_KINDS))
            assert picture(scheduler) == before
            assert sizes(scheduler) == tables
            assert len(scheduler.ledger.nodes) == len(world.nodes)
            audit.validate(scheduler.ledger)
            assert [one.kind for one in offered] == [
                kind for kind in SUGGESTION_KINDS if kind in {one.kind for one in offered}
            ]
            assert alternatives(scheduler, waiting, late[0]) == offered[:3]
            for advice in offered:
                reached[advice.kind] += 1
                where = follow(scheduler, world, waiting, late[0], advice)
                assert where is not None, advice
                if advice.kind != "more-nodes":
                    assert where == advice.verified_node

    property_holds()
    assert all(reached[kind] for kind in SUGGESTION_KINDS), reached


def advised(scheduler: Scheduler, wanted: Pod) -> tuple[str, str]:
    assert place(scheduler, wanted) == [(None, ())]
    advice = alternatives(scheduler, group(wanted), wanted)[0]
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


def test_a_cordoned_node_or_card_is_taken_back_into_use() -> None:
    scheduler = cluster(node("n", card("a"), unschedulable=True))
    assert advised(scheduler, pod("p", ask(1, 100))) == ("uncordon", "uncordon node n")
    scheduler = cluster(node("n", card("a", cordoned=True), card("b", 1, cordoned=True)))
    assert advised(scheduler, pod("p", ask(1, 100))) == ("uncordon", "uncordon GPU a of node n")
    assert advised(scheduler, pod("q", ask(2, 1))) == ("uncordon", "uncordon GPU a, b of node n")


def test_a_cordon_that_is_also_a_taint_is_one_rule() -> None:
    """As on a real cluster, where the node controller adds the taint."""
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    scheduler = cluster(node("n", card("a"), unschedulable=True, taints=(cordon,)), node("m"))
    wanted = pod("p", ask(1, 100))
    assert [one.one_rule for one in verdicts(scheduler, wanted)] == [False, True]  # m has no GPU
    assert advised(scheduler, wanted) == ("uncordon", "uncordon node n")


@pytest.mark.parametrize("key", ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"])
def test_nobody_is_sent_to_a_node_that_does_not_work(key: str) -> None:
    scheduler = cluster(node("n", card("a"), taints=(Taint(key, "", "NoSchedule"),)))
    wanted = pod("p", ask(1, 100))
    assert [one.kind for one in alternatives(scheduler, group(wanted), wanted)] == ["more-nodes"]  # one that works


def test_another_model_that_the_cluster_has() -> None:
    scheduler = cluster(node("n", card("a", model="NVIDIA T4")))
    rules = DeviceRules("NVIDIA", use_types=("A100",))
    assert advised(scheduler, pod("p", ask(1, 100), rules=rules)) == (
        "other-model",
        "take the GPU type NVIDIA T4 instead of A100",
    )
    rules = DeviceRules("NVIDIA", nouse_types=("T4",))
    assert advised(scheduler, pod("p", ask(1, 100), rules=rules)) == (
        "other-model",
        "take the GPU type NVIDIA T4 as well",
    )


def test_as_many_members_as_fit() -> None:
    """Three cards, four members with one each."""
    scheduler = cluster(node("n", gpus=3))
    gang = group(*(pod(f"m{n}", ask(1, 8000)) for n in range(4)))
    [first, *_] = alternatives(scheduler, gang, gang.pods[3])
    assert (first.kind, first.sentence) == ("min-member", "lower minMember of default/m0 from 4 to 3")


def test_nothing_below_half_of_what_was_asked() -> None:
    """528 MiB of 7,500 are left, and 1 card of 4: neither is any help."""
    scheduler = cluster(node("n", card("a", 7500)))
    use(scheduler, "n", "a", 1, 7500 - 528, 0)
    kinds = [one.kind for one in alternatives(scheduler, group(pod("p", ask(1, 7500))), pod("p", ask(1, 7500)), most=9)]
    assert kinds == ["pod-gone", "more-nodes"]
    wanted = pod("q", ask(4, 100))
    assert alternatives(cluster(node("n", card("a"))), group(wanted), wanted) == ()
    wanted = pod("r", ask(2, 100))
    [only] = alternatives(cluster(node("n", card("a"))), group(wanted), wanted)
    assert only.sentence == "ask for 1 GPU instead of 2"


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
    assert alternatives(scheduler, group(wanted), wanted) == ()
