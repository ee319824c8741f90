"""Gangs and a scheduler that is killed between binds: each gang is completed, or released within its time-out.

The witness (tests/live/gangs.py) shares no code with the scheduler. It sees every change of every pod.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import yaml

from tests.live.assigned import faults
from tests.live.dovetail_process import Dovetail, scheduling
from tests.live.faults import create_all, more
from tests.live.gangs import (
    COSCHEDULING,
    LABELS,
    GangWitness,
    group_path,
    make_pod_group,
    pod_group_kinds,
    said_about,
    status_of,
)
from tests.live.preempting import EvictionWitness, events, furnish, pod, runs, there
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import condition
from tools.controlplane.plane import ControlPlane

SEED = 20261119
LABEL = LABELS[COSCHEDULING]
WHOLE = objects.gpu_limits(1, memory=15360, cores=100)
TIME_OUT = 5  # seconds: scheduleTimeoutSeconds
SLACK = 120.0  # seconds on a busy machine for the restart, its 10 s without releases, and the evictions
SLOW = ("--no-preemption", "--binds-at-once", "1")
LEASE = ("--lease-seconds", "60")  # the same process lives through a restart of the API server


def member(name: str, gang: str, **spec: Any) -> Object:
    return objects.pod(name, WHOLE, labels={LABEL: gang}, **spec)


def bound(api: Client) -> list[str]:
    return sorted(one["metadata"]["name"] for one in api.list("Pod") if one["spec"].get("nodeName"))


def make_gang(api: Client, name: str, minimum: int) -> None:
    make_pod_group(api, COSCHEDULING, name, minMember=minimum, scheduleTimeoutSeconds=TIME_OUT)


def half_bound(api: Client) -> None:
    """A gang of three as a scheduler leaves it that dies after two binds; the third card is taken meanwhile."""
    api.create(objects.node("n", gpus=2))
    make_gang(api, "train", 3)
    create_all(api, (member(f"train-{n}", "train") for n in range(3)))
    cards = [one["id"] for one in objects.cards("n", 2)]
    for number, card in enumerate(cards):
        record = {"hami.io/vgpu-devices-allocated": f"{card},NVIDIA,15360,100:;"}
        status, said = api.bind(f"train-{number}", "n", annotations=record)
        assert status == 201, said


def test_members_that_were_bound_without_hope_are_evicted_after_the_time_out(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    kubelet.stop_delay = 3.0  # long enough to see the condition of a pod that ends
    with pod_group_kinds(api, COSCHEDULING), EvictionWitness(api) as witness:
        half_bound(api)
        runs(api, "train-0", "train-1")
        with scheduling(plane) as dovetail:
            api.wait_until(lambda: dovetail.metric("dovetail_gangs_below_minimum") == 1, "it is seen", 30)
            assert status_of(api, COSCHEDULING, "train").get("scheduled", 2) == 2
            api.wait_until(lambda: len(ended(api)) == 2, "both end", 60)
            said = api.wait_until(lambda: gang_condition(api, "train-0"), "the condition says why", 20)
            text = "2 of 3 members of default/train have a node; 1 more did not get one within 5 s"
            assert said["message"] == text
            api.wait_until(lambda: bound(api) == [], "their places are free", 30)
            assert dovetail.metric("dovetail_gangs_released_total") == 1
            assert dovetail.metric("dovetail_gang_members_released_total") == 2
            api.wait_until(lambda: len(events(api, "GangBelowMinimum")) == 3, "events", 20)
            assert ("GangBelowMinimum", f"Members are evicted: {text}.") in said_about(api, "train")
        assert sorted(witness.evicted) == ["train-0", "train-1"]


def ended(api: Client) -> list[str]:
    left = there(api, ("train-0", "train-1"))
    return [name for name in ("train-0", "train-1") if name not in left]


def gang_condition(api: Client, name: str) -> Object | None:
    found = api.find("Pod", name)
    said = condition(found, "DisruptionTarget") if found is not None else None
    return said if said is not None and said.get("reason") == "GangBelowMinimum" else None


def test_a_restarted_scheduler_continues_the_clock_and_completes_what_it_can(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The gang's own time-out is long over when the scheduler starts; a card gets free within its first seconds."""
    with pod_group_kinds(api, COSCHEDULING), EvictionWitness(api) as witness:
        half_bound(api)
        runs(api, "train-0", "train-1")
        time.sleep(TIME_OUT + 1)
        with scheduling(plane) as dovetail:
            api.create(objects.node("m", gpus=1))
            runs(api, "train-2")
            dovetail.kill()
            dovetail.start()
            time.sleep(14)  # longer than the first seconds of a leader
            assert bound(api) == ["train-0", "train-1", "train-2"]
        assert witness.evicted == []


def test_a_member_that_goes_is_replaced_beside_the_others(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Only the missing member is planned again: the others keep their nodes."""
    for name in ("a", "b"):
        api.create(objects.node(name, gpus=3))
    with pod_group_kinds(api, COSCHEDULING), scheduling(plane), EvictionWitness(api) as witness:
        make_gang(api, "train", 4)
        create_all(api, (member(f"train-{n}", "train") for n in range(4)))
        names = [f"train-{n}" for n in range(4)]
        runs(api, *names)
        before = {one["metadata"]["uid"]: one["spec"]["nodeName"] for one in api.list("Pod")}
        for turn in range(3):
            witness.delete(f"train-{turn}", gracePeriodSeconds=0)
            api.create(member(f"again-{turn}", "train"))
            runs(api, f"again-{turn}")
        after = {one["metadata"]["uid"]: one["spec"]["nodeName"] for one in api.list("Pod")}
        kept = [uid for uid in before if uid in after]
        assert len(kept) == 1
        assert all(before[uid] == after[uid] for uid in kept)
        assert witness.evicted == []
        assert faults(api) == []


def test_preemption_takes_the_surplus_and_gives_it_back(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """An elastic gang: 4 members run, 2 are needed. Two urgent pods take two places; a new node brings them back."""
    furnish(api, n=4)
    with pod_group_kinds(api, COSCHEDULING), scheduling(plane), EvictionWitness(api) as witness:
        make_gang(api, "elastic", 2)
        create_all(api, (pod(f"e-{n}", "low", labels={LABEL: "elastic"}) for n in range(4)))
        runs(api, *(f"e-{n}" for n in range(4)))
        create_all(api, (pod(f"urgent-{n}", "high") for n in range(2)))
        runs(api, "urgent-0", "urgent-1")
        left = there(api, [f"e-{n}" for n in range(4)])
        assert (len(left), len(witness.evicted)) == (2, 2)
        create_all(api, (pod(f"again-{n}", "low", labels={LABEL: "elastic"}) for n in range(2)))
        time.sleep(TIME_OUT + 3)  # the gang has its minimum: nothing is released
        assert there(api, left) == left
        api.create(objects.node("m", gpus=2))
        runs(api, "again-0", "again-1", *left)
        assert len(witness.evicted) == 2
    assert witness.wrong == []


def test_two_gangs_of_60_per_cent(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """10 cards, two gangs of 6, their pods in turn: one runs whole, the other waits whole."""
    for name in ("a", "b"):
        api.create(objects.node(name, gpus=5))
    with pod_group_kinds(api, COSCHEDULING), GangWitness(api, LABEL) as witness, scheduling(plane, *SLOW):
        witness.minimums |= {"one": 6, "two": 6}
        for gang in ("one", "two"):
            make_gang(api, gang, 6)
        for number in range(6):
            for gang in ("one", "two"):
                api.create(member(f"{gang}-{number}", gang))
        api.wait_until(lambda: len(bound(api)) == 6, "one gang is bound", 30)
        time.sleep(2)
        runs_whole = bound(api)[0].partition("-")[0]
        waits_whole = "two" if runs_whole == "one" else "one"
        assert bound(api) == [f"{runs_whole}-{n}" for n in range(6)]
        for number in range(6):
            api.delete("Pod", f"{runs_whole}-{number}", gracePeriodSeconds=0)
        api.wait_until(lambda: bound(api) == [f"{waits_whole}-{n}" for n in range(6)], "then the other", 30)
    assert witness.longest() < TIME_OUT


def test_random_mixes_with_kills_in_between(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Gangs, lone pods and pods of other schedulers; the scheduler, or the API server, is killed after some binds."""
    mixes, dice, kills = more(20, 100), random.Random(SEED), 0
    for name in "abcd":
        api.create(objects.node(name, gpus=4))
    with (
        pod_group_kinds(api, COSCHEDULING, rights=False),
        scheduling(plane, *SLOW, *LEASE) as dovetail,
        GangWitness(api, LABEL) as witness,
    ):
        for number in range(mixes):
            kills += _mix(plane, api, dovetail, witness, dice, number)
            _clear(api)
        halves = len([one for one in witness.below if one[1] > 0.5])
        released = len({gang for gang, _ in witness.below} - witness.whole)
        assert witness.now_below() == []
        assert witness.longest() < TIME_OUT + SLACK, sorted(witness.below, key=lambda one: -one[1])[:5]
    print(
        f"{mixes} mixes, {kills} kills: {len(witness.below)} times a gang was below its minimum, {halves} of them for "
        f"more than 0.5 s, {witness.longest():.1f} s at most; {len(witness.whole)} gangs started, {released} released"
    )
    assert kills >= mixes
    assert witness.whole


def _mix(
    plane: ControlPlane, api: Client, dovetail: Dovetail, witness: GangWitness, dice: random.Random, number: int
) -> int:
    """One mix on 16 cards; returns the number of kills. At its end, each gang is whole or has no node."""
    sizes = {f"g{number}-{n}": dice.randrange(3, 11) for n in range(dice.randrange(2, 4))}
    pods = [member(f"{gang}-{n}", gang) for gang, size in sizes.items() for n in range(size + dice.randrange(0, 2))]
    pods += [objects.pod(f"lone{number}-{n}", WHOLE) for n in range(dice.randrange(0, 4))]
    dice.shuffle(pods)
    witness.minimums |= sizes
    for gang, size in sizes.items():
        make_gang(api, gang, size)
    create_all(api, pods)
    kills = 0
    for _ in range(dice.choice((1, 1, 2))):
        _until_some_are_bound(api, dice.randrange(1, 6))
        kills += 1
        if dice.random() < 0.15:  # the API server dies instead
            plane.restart_api_server(grace=0)
            continue
        dovetail.kill()
        if dice.random() < 0.3:  # another scheduler takes what is free: a gang may have no hope any more
            _take_what_is_free(api, number * 10 + kills)
        dovetail.start()
    api.wait_until(lambda: _settled(api, sizes), f"mix {number} is settled", TIME_OUT + SLACK)
    assert faults(api) == []
    return kills


def _until_some_are_bound(api: Client, count: int) -> None:
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and len(bound(api)) < count:
        pass


def _take_what_is_free(api: Client, number: int) -> None:
    held = {one["metadata"]["uid"]: one["spec"]["nodeName"] for one in api.list("Pod") if one["spec"].get("nodeName")}
    for name in "abcd":
        for n in range(4 - sum(node == name for node in held.values())):
            # It asks for no card by name: the node's plugin would give it one that is free.
            api.create(objects.pod(f"thief{number}-{name}-{n}", WHOLE, "other", nodeName=name))


def _settled(api: Client, sizes: dict[str, int]) -> bool:
    items = api.list("Pod")
    for gang, size in sizes.items():
        members = [one for one in items if one["metadata"].get("labels", {}).get(LABEL) == gang]
        has = [one for one in members if one["spec"].get("nodeName")]
        if any(one["metadata"].get("deletionTimestamp") for one in members) or 0 < len(has) < size:
            return False
    return True


def _clear(api: Client) -> None:
    for item in api.list("Pod"):
        api.delete("Pod", item["metadata"]["name"], gracePeriodSeconds=0)
    for group in api.ask("GET", group_path(COSCHEDULING))["items"]:
        api.ask("DELETE", group_path(COSCHEDULING, group["metadata"]["name"]))
    api.wait_until(lambda: not api.list("Pod"), "nothing is left", 30)


def test_places_are_kept_for_a_gang_of_half_the_cluster(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    """4 cards; single pods come whenever a card is free. A gang of two never starts, until places are kept for it."""
    started = {kept: _starves(plane, api, tmp_path, kept) for kept in (False, True)}
    print(f"half the cluster under steady load: starts without kept places {started[False]}, with them {started[True]}")
    assert started == {False: False, True: True}


def _starves(plane: ControlPlane, api: Client, folder: Path, kept: bool) -> bool:
    """Whether the gang starts while each single pod that ends is followed by another one that waits already."""
    config: dict[str, Any] = {"apiVersion": "dovetail.dev/v1", "kind": "Config"}
    if kept:
        config["preemption"] = {"keepPlacesAfterSeconds": 2}
    path = folder / f"{kept}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    api.create(objects.node("n", gpus=4))
    with pod_group_kinds(api, COSCHEDULING, rights=False), scheduling(plane, "--config", str(path)):
        create_all(api, (objects.pod(f"small-{n}", WHOLE) for n in range(4)))
        api.wait_until(lambda: len(bound(api)) == 4, "the node is full", 30)
        make_gang(api, "large", 2)
        create_all(api, (member(f"large-{n}", "large") for n in range(2)))
        for number in range(4, 16):
            api.create(objects.pod(f"small-{number}", WHOLE))  # it waits before a card gets free
            time.sleep(0.7)
            running = [name for name in bound(api) if name.startswith("small-")]
            api.delete("Pod", min(running, key=lambda name: int(name[6:])), gracePeriodSeconds=0)
            time.sleep(0.3)
        started = "large-0" in bound(api)
        for item in api.list("Pod"):
            api.delete("Pod", item["metadata"]["name"], gracePeriodSeconds=0)
        api.wait_until(lambda: not api.list("Pod"), "nothing is left", 30)
    api.delete("Node", "n")
    return started
