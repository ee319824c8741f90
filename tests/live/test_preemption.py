"""Preemption on a real control plane: who yields, who gets the place, and what both sides are told."""

from __future__ import annotations

import time

from tests.live.assigned import faults
from tests.live.dovetail_process import scheduling
from tests.live.preempting import WHOLE, allow, budget, card_of, events, furnish, pod, priority_class, runs, there
from tests.live.test_pod_groups_crd import crd, make_group
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane

GROUP = "scheduling.x-k8s.io/pod-group"


def test_a_pod_takes_exactly_the_card_it_needs_and_both_sides_say_so(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    """Two nodes with two cards. Of four pods, only `cheap` has a lower priority than all others."""
    furnish(api, a=2, b=2)
    kubelet.stop_delay = 2.0
    with scheduling(plane):
        ranks = {"one": "middle", "cheap": "low", "two": "middle", "three": "middle"}
        for name, rank in ranks.items():
            api.create(pod(name, rank))
            runs(api, name)
        card = card_of(api, "cheap")
        api.create(pod("urgent", "high"))
        ending = api.wait_until(lambda: _ending(api, "cheap"), "the victim ends", 30)
        said = objects.condition(ending, "DisruptionTarget") or {}
        assert (said["status"], said["reason"]) == ("True", "PreemptionByScheduler")
        assert "default/urgent" in said["message"]
        waiting = api.get("Pod", "urgent")
        assert waiting["status"]["nominatedNodeName"] == ending["spec"]["nodeName"]
        why = objects.condition(waiting, "PodScheduled") or {}
        assert why["reason"] == "Preempting"
        assert "default/cheap" in why["message"]
        runs(api, "urgent")
        assert card_of(api, "urgent") == card
        assert there(api, ranks) == ["one", "two", "three"]
        (told,) = api.wait_until(lambda: events(api, "Preempted"), "the event", 30)
        assert told[0] == "cheap"
        assert told[1].startswith("Preempted by default/urgent on node")
        assert [name for name, _ in events(api, "Preempting")] == ["urgent"]
        assert faults(api, sums=True) == []


def _ending(api: Client, name: str) -> Object | None:
    """The pod, once it is ending and its condition says why."""
    found = api.find("Pod", name)
    if found is None or not found["metadata"].get("deletionTimestamp"):
        return None
    said = objects.condition(found, "DisruptionTarget") or {}
    return found if said.get("reason") == "PreemptionByScheduler" else None


def test_a_pod_that_preempts_never_and_pods_of_other_schedulers(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    furnish(api, a=1, b=1)
    card = {"hami.io/vgpu-devices-allocated": "GPU-b-0,NVIDIA,15360,100:;", "hami.io/vgpu-node": "b"}
    api.create(objects.pod("theirs", WHOLE, scheduler="another", annotations=card, nodeName="b"))
    with scheduling(plane):
        api.create(pod("holds"))
        runs(api, "holds", "theirs")
        api.create({**priority_class("polite", 1000), "preemptionPolicy": "Never"})
        api.create(pod("polite", "polite"))
        time.sleep(2.0)
        assert there(api, ("holds", "theirs", "polite")) == ["holds", "theirs", "polite"]
        assert "nominatedNodeName" not in api.get("Pod", "polite")["status"]
        api.create(pod("urgent", "high"))
        runs(api, "urgent")
        assert there(api, ("holds", "theirs")) == ["theirs"]
        api.create(pod("late", "high"))
        time.sleep(2.0)
        assert there(api, ("theirs", "urgent")) == ["theirs", "urgent"]  # the same priority, and another scheduler's


def test_no_preemption_stops_nobody(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    furnish(api, a=1)
    with scheduling(plane, "--no-preemption"):
        api.create(pod("holds"))
        runs(api, "holds")
        api.create(pod("urgent", "high"))
        time.sleep(2.0)
        assert there(api, ("holds",)) == ["holds"]
        api.delete("Pod", "holds")
        runs(api, "urgent")


def test_a_budget_is_respected_and_broken_only_if_nothing_else_helps(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    furnish(api, a=1, b=1)
    budget(api, "web", 0, app="web")
    with scheduling(plane):
        api.create(pod("web", "low", labels={"app": "web"}))
        runs(api, "web")
        api.create(pod("batch", "middle"))
        runs(api, "batch")
        api.create(pod("first", "high"))
        runs(api, "first")
        assert there(api, ("web", "batch")) == ["web"]  # though `batch` has the higher priority
        api.create(pod("second", "high"))
        runs(api, "second")
        assert there(api, ("web", "first")) == ["first"]
        broken = dict(api.wait_until(lambda: _at_least(events(api, "Preempted"), 2), "events", 30))
        assert "disruption budget" in broken["web"]
        assert "disruption budget" not in broken["batch"]
        assert faults(api) == []


def _at_least(found: list[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    return found if len(found) >= count else []


def test_a_budget_that_allows_it_counts_the_eviction(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    furnish(api, a=1)
    budget(api, "web", 1, app="web")
    with scheduling(plane):
        api.create(pod("web", "low", labels={"app": "web"}))
        runs(api, "web")
        api.create(pod("urgent", "high"))
        runs(api, "urgent")
        status = api.get("PodDisruptionBudget", "web")["status"]
        assert status["disruptionsAllowed"] == 0
        assert list(status["disruptedPods"]) == ["web"]


def test_a_priority_class_protects_its_pods_for_a_while(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """minimum-preemptable-priority 500: `middle` (100) must not, `high` (1000) may; never = toleration-seconds -1."""
    furnish(api, a=1)
    prefix = "preemption-toleration.scheduling.x-k8s.io/"
    notes = {f"{prefix}minimum-preemptable-priority": "500", f"{prefix}toleration-seconds": "-1"}
    api.create(priority_class("calm", 20, **notes))
    with scheduling(plane):
        api.create(pod("calm", "calm"))
        runs(api, "calm")
        api.create(pod("middle", "middle"))
        time.sleep(2.0)
        assert there(api, ("calm",)) == ["calm"]
        api.create(pod("urgent", "high"))
        runs(api, "urgent")
        assert there(api, ("calm",)) == []


def test_a_gang_yields_as_one(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Two cards each: a gang of two on two nodes, and a pod that keeps its card. One place frees both."""
    furnish(api, a=2, b=1)
    with crd(api), scheduling(plane) as dovetail:
        make_group(api, 2)
        api.create(pod("stays", "middle"))
        runs(api, "stays")
        for n in range(2):
            api.create(pod(f"gang-{n}", "low", labels={GROUP: "gang"}))
        runs(api, "gang-0", "gang-1")
        api.create(pod("urgent", "high"))
        runs(api, "urgent")
        api.wait_until(lambda: there(api, ("gang-0", "gang-1")) == [], "the whole gang is stopped", 30)
        assert there(api, ("stays",)) == ["stays"], dovetail.words()
        assert faults(api) == []


def test_a_gang_gives_its_surplus_first(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    furnish(api, a=3)
    with crd(api), scheduling(plane):
        make_group(api, 2)
        for n in range(3):
            api.create(pod(f"gang-{n}", "low", labels={GROUP: "gang"}))
        runs(api, "gang-0", "gang-1", "gang-2")
        api.create(pod("urgent", "high"))
        runs(api, "urgent")
        assert len(there(api, ("gang-0", "gang-1", "gang-2"))) == 2


def test_a_refused_eviction_is_tried_elsewhere_or_later(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Two budgets select `held`: the Eviction API answers 500. A budget that is known to forbid is not even asked."""
    furnish(api, a=1)
    budget(api, "one", 1, app="held")
    budget(api, "two", 1, app="held")
    with scheduling(plane) as dovetail:
        api.create(pod("held", "low", labels={"app": "held"}))
        runs(api, "held")
        api.create(pod("urgent", "high"))
        api.wait_until(lambda: "is not stopped" in dovetail.words(), "it is refused", 60)
        assert there(api, ("held",)) == ["held"]
        allow(api, "two", 0)
        api.delete("PodDisruptionBudget", "one")
        api.wait_until(lambda: there(api, ("held",)) == [], "it is tried again", 120)
        runs(api, "urgent")
