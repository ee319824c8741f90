"""Fair to others: what one namespace asks for delays the pod of another by a bounded amount of work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.ledger.audit import contradictions
from dovetail.engine.wake import MAX_LISTED_INTERPRETED
from dovetail.kube.live.arrivals import MANY, Arrivals
from dovetail.kube.live.driver import LONGEST_BUSY, PORTION, RETRIED, RETRIED_AT_ONCE, SAFETY_NET
from dovetail.kube.live.turns import Turns
from dovetail.model.events import QuotaChanged
from dovetail.model.pod import Group, Pod, Quota
from tests.kube.live.stage import Stage, gpu_node, waiting
from tests.kube.live.test_set_aside import apart
from tests.kube.manifests import Object


def lone(namespace: str, name: str, priority: int = 0, created: float = 0.0) -> Group:
    pod = Pod(namespace, name, f"{namespace}/{name}", priority=priority, created=created)
    return Group(pod.key, (pod,))


def popped(arrivals: Arrivals, count: int) -> list[str]:
    return [group.name for _ in range(count) if (group := arrivals.pop()) is not None]


def line_of(*groups: Group) -> Arrivals:
    arrivals = Arrivals()
    for group in groups:
        arrivals.add(group)
    return arrivals


def test_a_short_line_goes_by_priority_and_age_whatever_the_namespace() -> None:
    groups = [lone("ab"[n % 2], f"p{n:02}", created=float(n // 4)) for n in range(MANY)]
    in_order = [group.name for group in sorted(groups, key=lambda group: group.order)]
    assert popped(line_of(*groups), MANY) == in_order


def test_in_a_long_line_namespaces_take_turns_and_keep_their_own_order() -> None:
    many = [lone("many", f"p{n:03}", created=float(n)) for n in range(100)]
    few = [lone("few", f"q{n}", created=1000.0 + n) for n in range(3)]  # all of them younger
    assert popped(line_of(*many, *few), 7) == [
        *("many/p000", "few/q0", "many/p001", "few/q1", "many/p002", "few/q2", "many/p003")
    ]


def named(namespace: str, name: str, written: str) -> Group:
    """A group whose name says another namespace than its pod has: Koordinator's gangs that start together."""
    pod = Pod(namespace, name, f"{namespace}/{name}", group=f"PodGroup/{written}/g+{namespace}:{name}@k")
    return Group(pod.group, (pod,))


def test_a_group_stands_in_the_line_of_its_pods_whatever_namespace_its_name_says() -> None:
    many = [named("many", f"p{n:03}", "few") for n in range(40)]
    mine = [lone("few", f"q{n}", created=1.0) for n in range(2)]
    found = popped(line_of(*many, *mine), 4)
    assert [name for name in found if name.startswith("few/")] == ["few/q0", "few/q1"]
    assert {group.order[3] for group in many} == {"many"}


def test_priority_decides_before_turns() -> None:
    many = [lone("many", f"p{n:03}", priority=10) for n in range(40)]
    arrivals = line_of(lone("few", "q"), *many)
    assert popped(arrivals, 41)[-1] == "few/q"


def test_a_group_that_comes_again_unchanged_keeps_its_place_and_costs_no_memory() -> None:
    arrivals = line_of(*(lone("many", f"p{n}") for n in range(50)))
    for _ in range(100):
        arrivals.add(lone("many", "p7"))
    assert sum(len(line) for lines in arrivals._lines.values() for line in lines.values()) == 50
    assert len(popped(arrivals, 60)) == 50


def other(name: str, number: int = 0) -> Object:
    """A pod of another namespace that asks for no card."""
    item = waiting(name, limits={})
    item["metadata"] |= {"namespace": "other", "uid": f"uid-{name}-{number}"}
    return item


@pytest.mark.asyncio
async def test_five_thousand_pods_of_one_namespace_stand_before_another_by_one_portion() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node(cards=4))
        stage.pods(*(waiting(f"p{n:04}") for n in range(5_000)))
        for number in range(5):
            stage.pods(other(f"canary-{number}", number))
            before, turns = len(stage.driver.arrivals), 0
            while not any(bind.pod.name == f"canary-{number}" for bind in stage.hands.binds):
                await asyncio.sleep(0)
                turns += 1
            assert turns <= 3
            assert before - len(stage.driver.arrivals) <= 3 * PORTION  # of 5,000


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["gangs", "rules", "requests"])
async def test_one_change_that_wakes_thousands_tries_a_portion_a_turn(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node("full", 1))
        stage.pods(waiting("first"))
        await stage.settle()
        stage.pods(*(_waiter(kind, number) for number in range(400)))
        await _until_idle(stage)
        tried: list[str] = []
        original = stage.scheduler.try_waiting

        def counted(at: float, group: Group) -> Any:
            tried.append(group.name)
            return original(at, group)

        monkeypatch.setattr(stage.scheduler.retries, "_try", counted)
        stage.nodes(gpu_node("late", 1))
        per_turn = []
        while stage.driver._inbox or stage.scheduler.has_retries:
            before = len(tried)
            await asyncio.sleep(0)
            per_turn.append(len(tried) - before)
        assert max(per_turn) <= RETRIED + RETRIED_AT_ONCE
        at_once = [len(keys) for keys, _ in stage.scheduler.wake._lists]
        assert max(at_once, default=0) <= MAX_LISTED_INTERPRETED  # 256 requests took 50 ms and more, without a break
        if kind == "gangs":
            assert len(tried) == 400  # any change might help a gang
        assert len(stage.hands.binds) == (1 if kind == "gangs" else 2)  # the new card has one taker


@pytest.mark.asyncio
async def test_a_watch_with_much_to_read_gets_several_reads_a_turn() -> None:
    """64 reads of 256 KiB, as of large pods of one tenant, stand before a canary. A turn of deciding takes 20 ms and a
    read 1 ms: with one read a turn the canary would wait for 64 turns, which is more than a second."""
    async with Stage() as stage:
        stage.nodes(gpu_node(cards=4))
        stage.pods(*(waiting(f"p{n:04}") for n in range(5_000)))
        turns: list[float] = []
        place_some = stage.driver._place_some

        def counted() -> None:
            turns.append(stage.clock)
            stage.clock += 0.02
            place_some()

        stage.driver._place_some = counted  # type: ignore[method-assign]
        for _ in range(64):
            await asyncio.sleep(0)
            stage.clock += 0.001
        stage.pods(other("canary"))
        assert 64 // 20 <= len(turns) <= 8


@pytest.mark.asyncio
async def test_a_loop_that_never_rests_looks_after_lost_pods_all_the_same() -> None:
    """The safety net came only after the last turn: a tenant who keeps the loop busy puts it off for ever."""
    async with Stage() as stage:
        stage.nodes(gpu_node())
        await stage.settle()
        looked: list[float] = []
        stage.driver.safety_net.look = lambda: looked.append(stage.clock)  # type: ignore[method-assign]
        number = 0
        while stage.clock < 1000.0 + SAFETY_NET + 2 * LONGEST_BUSY:
            stage.clock += 0.25
            number += 1
            stage.pods(waiting(f"p{number}"))
            await asyncio.sleep(0)
        assert looked


def test_what_is_to_be_said_goes_by_turns_of_the_namespaces() -> None:
    turns: Turns[int] = Turns()
    for number in range(1_000):
        turns.put("many", f"m{number}", number)
    turns.put("few", "f", -1)
    turns.put("many", "m1", -2)  # newer, in its old place
    assert [turns.pop(str(turns.first())) for _ in range(4)] == [0, -1, -2, 2]
    turns.discard("m3")
    turns.discard("unknown")
    assert (turns.first(), turns.first(but={"m4"}), len(turns)) == ("m4", "m5", 996)


def test_where_there_is_too_much_to_say_the_namespace_with_most_loses_its_oldest() -> None:
    turns: Turns[int] = Turns()
    turns.put("few", "f", 0)
    for number in range(3):
        turns.put("many", f"m{number}", number)
    turns.put("other", "o", 0)
    for _ in range(2):
        turns.drop_one()
    assert ("f" in turns and "o" in turns, "m0" in turns, "m1" in turns, "m2" in turns) == (True, False, False, True)


def _waiter(kind: str, number: int) -> Object:
    name = f"p{number:03}"
    if kind == "rules":
        return apart(name, f"app-{number}")
    labels = {"scheduling.x-k8s.io/pod-group": name} if kind == "gangs" else {}
    item = waiting(name, labels=labels)
    item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{number + 1}m"}
    return item


async def _until_idle(stage: Stage) -> None:
    while stage.driver._has_work():
        await asyncio.sleep(0)


# ---- what is tried in portions ends as what is tried at once --------------------------------------------------------

kinds = st.sampled_from(["whole", "part", "apart", "quota"])
steps = st.one_of(
    st.tuples(st.just("pod"), st.integers(0, 14), kinds),
    st.tuples(st.just("node"), st.integers(0, 3), st.integers(1, 3)),
    st.tuples(st.just("gone"), st.integers(0, 14), st.just("")),
    st.tuples(st.just("node gone"), st.integers(0, 3), st.just("")),
    st.tuples(st.just("limit"), st.sampled_from([4_000, 9_000, 20_000]), st.just("")),
)


def made(number: int, kind: str) -> Object:
    if kind == "apart":
        return apart(f"p{number}", f"a{number % 3}")
    item = waiting(f"p{number}")
    if kind == "part":
        item["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000 + number}
    if kind == "quota":
        item["metadata"]["namespace"] = "limited"
    return item


async def story(steps: list[tuple[str, int, Any]], deferred: bool) -> list[dict[str, str]]:
    """Who is where after each step."""
    seen, known = [], dict[int, Object]()
    async with Stage() as stage:
        stage.scheduler.retries.deferred = deferred
        for kind, number, more in steps:
            if kind == "pod" and number not in known:
                known[number] = made(number, more)
                stage.pods(known[number])
            elif kind == "node":
                stage.nodes(gpu_node(f"n{number}", more))
            elif kind == "gone" and number in known:
                stage.pod_gone(known.pop(number))
            elif kind == "node gone":
                stage.node_gone(f"n{number}")
            elif kind == "limit":
                quota = Quota("limited", "q", {}, {"NVIDIA": number})
                stage.driver.happened((QuotaChanged(0.0, "limited", "q", quota),))
            await _until_idle(stage)
            ledger = stage.scheduler.ledger
            assert list(contradictions(ledger)) == []
            seen.append({ledger.pods.pod(uid).name: ledger.node_of(uid) for uid in ledger.pods})
    return seen


@settings(deadline=None, max_examples=150)
@given(steps=st.lists(steps, min_size=4, max_size=30), listed=st.sampled_from([1, 2, 256]))
def test_retries_in_portions_end_as_retries_at_once(steps: list[tuple[str, int, Any]], listed: int) -> None:
    expected = asyncio.run(story(steps, False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.engine.wake.MAX_LISTED_INTERPRETED", listed)  # few requests fill many lists
        assert asyncio.run(story(steps, True)) == expected
        assert asyncio.run(story(steps, False)) == expected
