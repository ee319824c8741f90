"""Binds that queue for HAMi's lock while the node changes under them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.live.dovetail_process import scheduling
from tests.live.faults import Witness, create_all, everybody_settled
from tools.controlplane.client import Client, Object
from tools.controlplane.hami_plugin import LOCK
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import HANDSHAKE, REGISTER, cards, condition, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

HAMI = {HANDSHAKE: "Reported 2026-01-01 00:00:00"}
SHARE = gpu_limits(1, memory=1000, cores=10)
BIG = gpu_limits(1, memory=12000, cores=20)


def _lock(holder: str) -> dict[str, str]:
    return {LOCK: f"{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')},default,{holder}"}


def _bound(api: Client) -> dict[str, str]:
    return {item["metadata"]["name"]: at for item in api.list("Pod") if (at := item["spec"].get("nodeName"))}


def _annotate(api: Client, name: str, notes: dict[str, str | None]) -> None:
    api.patch("Node", name, {"metadata": {"annotations": notes}})


def _said(api: Client, name: str) -> Object:
    return condition(api.get("Pod", name), "PodScheduled") or {}


def _locked_node(api: Client, name: str = "a") -> Object:
    """A node whose lock a pod of another scheduler holds."""
    made = node(name, gpus=cards(name, 1), annotations={**HAMI, **_lock("theirs")})
    create_all(api, [made, pod("theirs", scheduler="hami")])
    return made


def _register(api: Client, **facts: object) -> None:
    _annotate(api, "a", {REGISTER: json.dumps([{**cards("a", 1)[0], **facts}])})


CHANGES: dict[str, Callable[[Client], object]] = {
    "memory shrinks": lambda api: _register(api, devmem=8000),
    "card turns sick": lambda api: _register(api, health=False),
    "card cordoned": lambda api: _annotate(api, "a", {"hami.io/device-cordon": str(cards("a", 1)[0]["id"])}),
    "unschedulable": lambda api: api.patch("Node", "a", {"spec": {"unschedulable": True}}),
    "tainted": lambda api: api.patch(
        "Node", "a", {"spec": {"taints": [{"key": "x", "value": "y", "effect": "NoSchedule"}]}}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_bind_that_queued_is_held_against_the_present(
    change: str, plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    kubelet.hami = True
    _locked_node(api)
    with scheduling(plane) as dovetail:
        api.create(pod("ours", BIG))
        api.wait_until(lambda: dovetail.metric("dovetail_binds_under_way") == 1, "the bind queues")
        CHANGES[change](api)
        api.create(pod("late", gpu_limits(9)))
        api.wait_until(lambda: _said(api, "late"), "the scheduler has seen the change")
        _annotate(api, "a", {LOCK: None})
        api.wait_until(lambda: _said(api, "ours").get("reason") == "Unschedulable", "it waits, and says why")
        assert _bound(api) == {}
        api.create(node("b", gpus=1))
        api.wait_until(lambda: _bound(api) == {"ours": "b"}, "it goes where it fits")
    assert kubelet.complaints == []


def test_a_pod_that_waits_for_a_lock_says_who_holds_it(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    kubelet.hami = True
    _locked_node(api)
    with scheduling(plane):
        api.create(pod("ours", SHARE))
        api.wait_until(lambda: _said(api, "ours").get("reason") == "NodeLocked", "it says so")
        assert "HAMi's lock on node a, held by pod default/theirs since " in _said(api, "ours")["message"]
        _annotate(api, "a", {LOCK: None})
        api.wait_until(lambda: _bound(api) == {"ours": "a"}, "its condition does not keep it from being bound")
    assert kubelet.complaints == []


def test_a_plugin_that_leaves_takes_its_lock_along(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """The handshake goes, the register stays: nothing would ever clear a lock there."""
    kubelet.kill("a")  # the first pod's lock stays
    create_all(api, [node("a", gpus=4, annotations=HAMI)])
    with scheduling(plane), Witness(api) as witness:
        create_all(api, (pod(f"p{number}", SHARE) for number in range(4)))
        api.wait_until(lambda: len(_bound(api)) == 1, "one is bound, the others queue")
        _annotate(api, "a", {HANDSHAKE: None})
        api.wait_until(lambda: len(_bound(api)) == 4, "nobody waits for a lock any more")
        api.wait_until(lambda: LOCK not in api.get("Node", "a")["metadata"]["annotations"], "none is left behind")
    assert witness.wrong == []


def test_a_node_re_created_while_binds_queue_is_never_bound_without_its_lock(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    """The plugin of the new node hands cards to one pod at a time, too: it complains of a pod that has no lock."""
    kubelet.hami = True
    made = _locked_node(api)
    with scheduling(plane) as dovetail, Witness(api) as witness:
        create_all(api, (pod(f"p{number}", SHARE) for number in range(4)))
        api.wait_until(lambda: dovetail.metric("dovetail_binds_under_way") == 4, "all queue")
        api.delete("Node", "a")
        del made["metadata"]["annotations"][LOCK]
        api.create(made)
        everybody_settled(api)
        assert len(_bound(api)) == 4
        phases = {item["metadata"]["annotations"].get("hami.io/bind-phase") for item in api.list("Pod")[:4]}
        assert phases <= {"allocating", "success"}
    assert kubelet.complaints == []
    assert witness.wrong == []
