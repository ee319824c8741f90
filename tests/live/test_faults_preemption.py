"""Faults in the middle of a preemption: nobody is stopped twice for one place, no card is given twice, nobody is lost.

Every card is taken. A pod of a higher priority needs one card, so exactly one pod must be stopped for it, whatever
happens meanwhile. A witness that shares no code with the scheduler follows every change of every pod.
"""

from __future__ import annotations

import random
import time

from tests.live.assigned import faults
from tests.live.dovetail_process import Dovetail, scheduling
from tests.live.faults import more
from tests.live.preempting import EvictionWitness, budget, furnish, pod, runs, there
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane

SEED = 20261118
STAYS = "example.com/stays"  # a finalizer


def held(name: str, finalizer: bool = False, **more_spec: object) -> Object:
    made = pod(name, "low", **more_spec)
    made["metadata"]["finalizers"] = [STAYS] if finalizer else []
    return made


def ending(api: Client) -> list[str]:
    return [one["metadata"]["name"] for one in api.list("Pod") if one["metadata"].get("deletionTimestamp")]


def release(api: Client) -> None:
    """Take the finalizers from all pods that end."""
    for name in ending(api):
        try:
            api.patch("Pod", name, {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.status != 404:  # 404: it has ended meanwhile
                raise


def test_killed_between_eviction_and_bind(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    rounds, dice = more(20, 100), random.Random(SEED)
    furnish(api, a=2, b=2)
    with scheduling(plane) as dovetail:
        fillers = [f"filler-{n}" for n in range(4)]
        for name in fillers:
            api.create(held(name, finalizer=True))
        runs(api, *fillers)
        with EvictionWitness(api) as witness:
            for number in range(rounds):
                _one_round(api, kubelet, dovetail, dice, number)
                assert len(witness.evicted) == number + 1, (number, witness.evicted, dovetail.words()[-4000:])
                witness.delete(f"urgent-{number}", gracePeriodSeconds=0)
                api.create(held(f"again-{number}", finalizer=dice.random() < 0.5))
                runs(api, f"again-{number}")
                assert faults(api, sums=True) == []
    assert witness.wrong == []
    print(f"{rounds} kills, {len(witness.evicted)} evicted for {rounds} pods")


def _one_round(api: Client, kubelet: Kubelet, dovetail: Dovetail, dice: random.Random, number: int) -> None:
    """One pod takes a place; the scheduler is killed at a random moment, sometimes again while it starts."""
    kubelet.stop_delay = dice.choice((0.0, 0.5, 3.0))
    api.create(pod(f"urgent-{number}", "high"))
    time.sleep(dice.uniform(0.0, dice.choice((0.15, 0.6, 2.0))))
    dovetail.kill()
    if dice.random() < 0.3:
        dovetail.start(wait=False)
        time.sleep(dice.uniform(0.5, 2.0))
        dovetail.kill()
    dovetail.start()
    api.wait_until(lambda: ending(api) or _has_node(api, f"urgent-{number}"), "a victim ends", 60)
    time.sleep(dice.uniform(0.0, 1.0))
    api.wait_until(lambda: _released(api, f"urgent-{number}"), "the pod runs", 60)


def _has_node(api: Client, name: str) -> bool:
    return bool(api.get("Pod", name)["spec"].get("nodeName"))


def _released(api: Client, name: str) -> bool:
    """Take finalizers away until the pod runs."""
    release(api)
    return bool(api.get("Pod", name)["status"].get("phase") == "Running")


def test_a_victim_that_does_not_end_is_waited_for(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    furnish(api, a=2)
    with scheduling(plane) as dovetail, EvictionWitness(api) as witness:
        api.create(held("stubborn", finalizer=True))
        runs(api, "stubborn")
        api.create(pod("other", "middle"))
        runs(api, "other")
        api.create(pod("urgent", "high"))
        api.wait_until(lambda: ending(api), "the victim ends", 30)
        time.sleep(3.0)
        dovetail.kill()
        dovetail.start()
        time.sleep(3.0)
        assert (ending(api), there(api, ("other",))) == (["stubborn"], ["other"])
        assert api.get("Pod", "urgent")["status"]["nominatedNodeName"] == "a"
        release(api)
        runs(api, "urgent")
        assert set(witness.evicted) == {"stubborn"}
    assert witness.wrong == []


def test_a_preemptor_that_is_deleted_leaves_the_place_to_others(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    """The victim is lost, but no second one: its place goes to the pod that waits."""
    furnish(api, a=1)
    kubelet.stop_delay = 3.0
    with scheduling(plane), EvictionWitness(api) as witness:
        api.create(held("victim"))
        runs(api, "victim")
        api.create(held("waits"))
        api.create(pod("urgent", "high"))
        api.wait_until(lambda: ending(api), "the victim ends", 30)
        witness.delete("urgent")
        runs(api, "waits")
        assert set(witness.evicted) == {"victim"}
    assert witness.wrong == []


def test_a_node_that_is_lost_meanwhile(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """The place is gone with its node. The pod takes another one, and its nomination follows."""
    furnish(api, a=1, b=1)
    with scheduling(plane), EvictionWitness(api) as witness:
        for n in range(2):
            api.create(held(f"low-{n}", finalizer=True))
        runs(api, "low-0", "low-1")
        api.create(pod("urgent", "high"))
        (first,) = api.wait_until(lambda: ending(api), "the victim ends", 30)
        lost = api.get("Pod", first)["spec"]["nodeName"]
        api.delete("Node", lost)
        other = api.wait_until(lambda: [name for name in ending(api) if name != first], "another place", 60)
        assert api.wait_until(lambda: _nominated_elsewhere(api, lost), "another nomination", 30)
        release(api)
        runs(api, "urgent")
        assert set(witness.evicted) == {first, *other}
    assert witness.wrong == []


def _nominated_elsewhere(api: Client, lost: str) -> bool:
    return bool(api.get("Pod", "urgent")["status"].get("nominatedNodeName", lost) != lost)


def test_a_budget_that_the_api_server_does_not_grant(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Its status is older than its spec: it seems to allow one pod, the Eviction API says 429, and another yields."""
    furnish(api, a=1, b=1)
    budget(api, "web", 1, app="web")
    api.patch("PodDisruptionBudget", "web", {"spec": {"minAvailable": 1}})  # generation 2, status of generation 1
    with scheduling(plane) as dovetail, EvictionWitness(api) as witness:
        api.create(held("web", labels={"app": "web"}))
        runs(api, "web")
        api.create(pod("batch", "middle"))
        runs(api, "batch")
        api.create(pod("urgent", "high"))
        runs(api, "urgent")
        assert "disruption budget" in dovetail.words()
        assert set(witness.evicted) == {"batch"}
        assert there(api, ("web",)) == ["web"]
    assert witness.wrong == []
