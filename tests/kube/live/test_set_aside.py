"""One bad object costs only itself: with k poisoned objects among n, the n − k are placed as if the k were not there.

The poison is an exception at a point of the code that handles the object: what a programming error, or an object that
nobody thought of, would do there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.attempts import Attempts
from dovetail.engine.ledger.audit import contradictions
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.node_rows import NodeRows
from dovetail.engine.ledger.requests import Requests
from dovetail.engine.observe import Observed
from dovetail.engine.rules.pod_counts import Neighbours
from dovetail.engine.rules.pod_rules import Related
from dovetail.kube.api.typed import Ref, Unreadable
from dovetail.kube.api.watch import Replaced
from dovetail.kube.conversion.groups import GroupName
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.held_groups import HeldGroups
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.namespaces import Namespaces
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.reasons import Reasons
from dovetail.kube.live.remarks import Remarks
from dovetail.kube.log import ERROR
from dovetail.kube.objects import core as objects
from tests.kube.live.stage import Hands, Stage, bound, gpu_node, waiting
from tests.kube.manifests import Object

BAD = "bad"  # how the name of a poisoned object begins

# Where poison acts: class, method, which argument is, or leads to, the object's name.
OF_PODS: dict[str, tuple[type, str, Callable[..., str]]] = {
    "read": (PodReader, "pod", lambda self, source, *_, **__: source.metadata.name),
    "claimed": (PodReader, "claimed", lambda self, source: source.metadata.name),
    "signature": (Requests, "signature", lambda self, pod: pod.name),
    "rules": (Related, "concerns", lambda self, pod: pod.name),
    "refusals": (Related, "refusals", lambda self, pod: pod.name),
    "booked": (Ledger, "adopt_one", lambda self, pod, *_: pod.name),
    "added": (Ledger, "_add", lambda self, pod, *_: pod.name),
    "counted": (Neighbours, "came", lambda self, pod, row: pod.name),
    "effect": (Attempts, "_effect", lambda self, pod, decision: pod.name),
    "wait": (Attempts, "wait", lambda self, group: group.pods[0].name),
    "try": (Attempts, "_settle", lambda self, group, decisions: group.pods[0].name),
    "line": (Driver, "_line_up", lambda self, group: group.pods[0].name),
    "kernel": (HeldGroups, "waits_for_kernel", lambda self, group: group.pods[0].name),
    "bind": (Hands, "submit", lambda self, bind, *_: bind.pod.name),
    "noted": (Reasons, "note", lambda self, pod, decision: pod.name),
    "why": (Reasons, "_condition", lambda self, pod, reason: pod.name),
    "remarks": (Remarks, "about", lambda self, pod, *_: pod.name),
}
OF_NODES: dict[str, tuple[type, str, Callable[..., str]]] = {
    "read": (PodReader, "node", lambda self, source: source.metadata.name),
    "gist": (PodReader, "gist", lambda self, source: source.metadata.name),
    "written": (NodeRows, "write", lambda self, row, node, active, held: node.name if active else ""),
    "cards": (
        NodeRows,
        "_write_cards",
        lambda self, row, first: self.nodes[row].name if self.nodes[row].devices else "",
    ),
    "guesses": (Observed, "node_changed", lambda self, row, *_: self._ledger.nodes[row].name),
}


@contextmanager
def poisoned(point: tuple[type, str, Callable[..., str]]) -> Iterator[None]:
    """The method raises for objects whose name begins with BAD; half of the points do their work first."""
    owner, method, name_of = point
    original = getattr(owner, method)

    def raises(*args: Any, **kwargs: Any) -> Any:
        if name_of(*args, **kwargs).startswith(BAD):
            if method in ("adopt_one", "_add", "write", "came"):
                original(*args, **kwargs)
            raise KeyError("poison")
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, raises)
        yield


def apart(name: str, app: str) -> Object:
    """A pod that wants no pod of the same app beside it."""
    item = waiting(name, labels={"app": app})
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    item["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return item


Step = tuple[str, Any]


def story(nodes: list[tuple[str, int]], pods: list[tuple[str, bool]], gone: list[str]) -> list[Step]:
    """Half of the nodes come after the pods: whoever waits is tried again then, and when pods go."""
    first, late = nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]
    items = [apart(name, "a") if is_apart else waiting(name) for name, is_apart in pods]
    return [
        *(("node", gpu_node(name, cards)) for name, cards in first),
        *(("pod", item) for item in items),
        *(("node", gpu_node(name, cards)) for name, cards in late),
        *(("gone", item) for item in items if item["metadata"]["name"] in gone),
    ]


def is_bad(step: Step) -> bool:
    return str(step[1]["metadata"]["name"]).startswith(BAD)


async def outcome(steps: list[Step], at_start: bool) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Who holds what at the end. `at_start`: everything is there already when the scheduler starts."""
    async with Stage() as stage:
        stage.driver.paused = at_start
        for kind, item in steps:
            if kind == "node":
                stage.nodes(item)
            elif kind == "pod":
                stage.pods(item)
            else:
                stage.pod_gone(item)
            if not at_start:
                await stage.settle()
        if at_start:
            stage.driver.take_truth()
            stage.driver.paused = False
            stage.driver.happened(())
        await stage.settle()
        assert list(contradictions(stage.scheduler.ledger)) == []
        ledger = stage.scheduler.ledger
        return {
            ledger.pods.pod(uid).name: (ledger.node_of(uid), tuple(share.uuid for share in ledger.held_shares(uid)))
            for uid in ledger.pods
        }


names = st.integers(0, 11).flatmap(lambda n: st.sampled_from([f"p{n:02}", f"{BAD}{n:02}"]))
pods_of = st.lists(st.tuples(names, st.booleans()), min_size=1, max_size=12, unique_by=lambda one: one[0][-2:])


@settings(deadline=None, max_examples=150)
@given(
    point=st.sampled_from(sorted(OF_PODS)),
    pods=pods_of,
    cards=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    data=st.data(),
    at_start=st.booleans(),
)
def test_poisoned_pods_cost_only_themselves(
    point: str, pods: list[tuple[str, bool]], cards: list[int], data: st.DataObject, at_start: bool
) -> None:
    gone = data.draw(st.lists(st.sampled_from([name for name, _ in pods]), max_size=4, unique=True))
    steps = story([(f"n{number}", count) for number, count in enumerate(cards)], pods, gone)
    expected = asyncio.run(outcome([step for step in steps if not is_bad(step)], at_start))
    with poisoned(OF_PODS[point]), poisoned(OF_PODS["effect"]):  # whatever is decided about them comes to nothing
        assert asyncio.run(outcome(steps, at_start)) == expected


@settings(deadline=None, max_examples=60)
@given(
    point=st.sampled_from(sorted(OF_NODES)),
    cards=st.lists(st.integers(1, 3), min_size=2, max_size=5),
    bad=st.sets(st.integers(0, 4), min_size=1),
    count=st.integers(1, 8),
    at_start=st.booleans(),
)
def test_poisoned_nodes_take_no_pods_and_others_go_on(
    point: str, cards: list[int], bad: set[int], count: int, at_start: bool
) -> None:
    nodes = [(f"{BAD if number in bad else 'n'}{number}", size) for number, size in enumerate(cards)]
    steps = story(nodes, [(f"p{number:02}", False) for number in range(count)], ["p00"])
    expected = asyncio.run(outcome([step for step in steps if not is_bad(step)], at_start))
    with poisoned(OF_NODES[point]):
        assert asyncio.run(outcome(steps, at_start)) == expected


@pytest.mark.asyncio
@pytest.mark.parametrize("point", ["running", "pod", "recorded_shares"])
async def test_a_running_pod_that_cannot_be_read_stays_charged(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node(cards=2))
        stage.pods(waiting("bad"))
        await stage.settle()
        (bind,) = stage.hands.binds
    item = bound("bad", bind)  # it runs on one of the two cards, and a scheduler starts
    if point == "recorded_shares":
        monkeypatch.setattr("dovetail.kube.conversion.records.recorded_shares", _raise)
    else:
        monkeypatch.setattr(PodReader, point, _only_bad(getattr(PodReader, point)))
    async with Stage() as stage:
        stage.nodes(gpu_node(cards=2))
        stage.pods(item, waiting("a"), waiting("b"))
        await stage.settle()
        assert stage.holders() == {"bad", "a"}  # 2 cards - 1 of bad = 1 for a; none for b
        held = stage.scheduler.ledger.held_shares("uid-bad")
        assert [share.uuid for share in held] == [share.uuid for share in bind.decision.shares]
        assert stage.driver.set_aside.total == 1
        stage.pod_gone(item)
        await stage.settle()
        assert stage.holders() == {"a", "b"}


def _raise(*_: Any) -> Any:
    raise KeyError("poison")


def _only_bad(original: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: PodReader, source: objects.Pod, *rest: Any, **more: Any) -> Any:
        return _raise() if source.metadata.name == "bad" else original(self, source, *rest, **more)

    return read


@pytest.mark.asyncio
@pytest.mark.parametrize("method", ["book_observed", "_add"])
async def test_a_running_pod_that_cannot_be_booked_stays_charged(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Booked without its labels and rules: only that is the poison."""
    original = getattr(Ledger, method)

    def book(self: Ledger, pod: Any, *rest: Any, **more: Any) -> Any:
        return _raise() if pod.labels else original(self, pod, *rest, **more)

    monkeypatch.setattr(Ledger, method, book)
    item = waiting("bad", labels={"app": "x"})
    item["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": "GPU-n-0,NVIDIA,8000,100:;"}
    item["spec"]["nodeName"] = "n"
    async with Stage() as stage:
        stage.nodes(gpu_node(cards=2))
        stage.pods(item, waiting("a"), waiting("b"))
        await stage.settle()
        assert stage.holders() == {"bad", "a"}
        assert list(contradictions(stage.scheduler.ledger)) == []


@pytest.mark.asyncio
async def test_what_people_see_of_a_pod_that_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodReader, "pod", _only_bad(PodReader.pod))
    async with Stage() as stage:
        stage.nodes(gpu_node(cards=2))
        stage.pods(waiting("bad"), waiting("good"))
        await stage.settle()
        condition = stage.hands.conditions["uid-bad"]
        assert condition.reason == "SetAside"
        assert condition.message.startswith("the scheduler failed on the pod and has set it aside: KeyError: 'poison'")
        assert [(note.pod.key, note.reason) for note in stage.hands.notes] == [("ml/bad", "SetAside")]
        assert [text for level, text, _ in stage.log.records if level == ERROR] == [
            "Pod ml/bad is set aside, as the scheduler failed on it: KeyError: 'poison'"
        ]
        assert [text for _, text, _ in stage.log.records if "test_set_aside.py" in text]  # the stack, at debug
        again = waiting("bad", version=2)  # our own write of the condition comes back: nothing new is written
        again["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", **condition._asdict()}]}
        stage.pods(again)
        await stage.settle()
        assert len(stage.hands.notes) == 1
        assert stage.holders() == {"good"}


@pytest.mark.asyncio
async def test_a_storm_of_patches_of_a_bad_pod_leaves_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[Any] = []
    async with Stage() as stage:
        with poisoned(OF_PODS["read"]):
            monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *args: timers.append(args))
            for version in range(1, 50):
                stage.pods(waiting("bad", version=version))
            assert [seconds for seconds, *_ in timers] == [60.0]
            assert stage.driver.set_aside.total == 49
        stage.nodes(gpu_node())
        for _, call, *args in timers[:]:  # 60 s later the fault is gone: the pod as it was last seen is read
            call(*args)
        for _ in range(30):
            await asyncio.sleep(0)
        assert stage.holders() == {"bad"}
        assert stage.mirror.pods["uid-bad"].version == "49"


@pytest.mark.asyncio
async def test_a_pod_that_is_set_aside_is_tried_again_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Requests, "signature", _raise)
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            stage.pods(waiting("p"), waiting("q"))
            await stage.settle()
            assert stage.holders() == set()
            assert {condition.reason for condition in stage.hands.conditions.values()} == {"SetAside"}
            patch.undo()
            stage.pods(waiting("p", version=2, labels={"changed": "yes"}))
            await stage.settle()
            assert stage.holders() == {"p"}
            for uid in ("uid-p", "uid-q"):  # its pause is over
                known = stage.mirror.pods[uid]
                stage.driver.outcomes.again(known.pod)
            await stage.settle()
            assert stage.holders() == {"p", "q"}
            stage.clock += 61
            stage.driver.safety_net.look()
            assert stage.driver.counts.rescued == 0


@pytest.mark.asyncio
async def test_the_safety_net_leaves_pods_alone_that_are_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage() as stage:
        with poisoned(OF_PODS["signature"]):
            stage.nodes(gpu_node())
            stage.pods(waiting("bad"))
            await stage.settle()
            total = stage.driver.set_aside.total
            stage.driver.safety_net.look()
            await stage.settle()
        assert (stage.driver.counts.rescued, stage.driver.set_aside.total) == (0, total)


def test_a_bad_namespace_or_pod_group_is_taken_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(PodReader({"dovetail": Settings()}), lambda: 0.0)
    group = objects.PodGroup(metadata=objects.Meta(name="g", namespace="ml"), spec=objects.PodGroupSpec(min_member=2))
    api_group = "scheduling.x-k8s.io"
    mirror.hear_pod_groups([Replaced([group], [])], api_group)
    name = GroupName(api_group, "ml", "g")
    assert mirror.gangs.minimum(name.key) == 2
    mirror.hear_pod_groups([Replaced([], [Unreadable(Ref("ml", "g", ""), "no")])], api_group)
    assert mirror.gangs.minimum(name.key) == 2
    monkeypatch.setattr("dovetail.kube.conversion.gangs.described", _raise)
    mirror.hear_pod_groups([Replaced([group], [])], api_group)
    assert mirror.gangs.minimum(name.key) == 2
    bad = objects.Namespace(metadata=objects.Meta(name="ml", labels={"a": "b"}))
    mirror.hear_namespaces([Replaced([bad], [])])
    monkeypatch.setattr(Namespaces, "_is", _raise)
    assert mirror.hear_namespaces([Replaced([bad], [])]) == []
    assert mirror.namespaces.labels == {"ml": {"a": "b"}}
    assert [(fault.kind, fault.name) for fault in mirror.faults] == [("PodGroup", "ml/g"), ("Namespace", "ml")]
