"""The one write that places a pod."""

from __future__ import annotations

import pytest

from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.live.binding import UnknownCard, binding
from dovetail.model.decision import Decision, Share
from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Container, ContainerKind, DeviceAsk, Pod
from dovetail.model.reason import Reason

ONE = DeviceAsk("NVIDIA", 1, 3000, None, 300)
INIT, APP = Container("i", ContainerKind.INIT), Container("a", asks=(ONE,))


def node(name: str = "n1", **more: object) -> Node:
    devices = (Device("GPU-a", 0, "NVIDIA", "T4", 15360, 1000, 10), Device("MLU-b", 1, "MLU", "370", 24000, 1000, 10))
    return Node(name, devices=devices, **more)  # type: ignore[arg-type]


def written(where: Node, shares: tuple[Share, ...], locked: bool = False, *containers: Container) -> dict[str, object]:
    pod = Pod("ml", "p", "uid-1", containers=containers or (INIT, APP))
    made = binding(pod, Decision("uid-1", where.name, shares, Reason.OK, 0), where, "42", DEFAULT_VENDORS, 99.7, locked)
    assert made["target"] == {"apiVersion": "v1", "kind": "Node", "name": where.name}
    meta: dict[str, object] = made["metadata"]
    return meta


def written_beside(where: Node, shares: tuple[Share, ...], *claimed: str) -> dict[str, str]:
    pod, decision = Pod("ml", "p", "uid-1", containers=(INIT, APP)), Decision("uid-1", "n1", shares, Reason.OK, 0)
    made = binding(pod, decision, where, "42", DEFAULT_VENDORS, 99.7, False, claimed)
    said: dict[str, str] = made["metadata"]["annotations"]
    return said


def test_the_pod_that_was_meant_is_a_precondition_and_the_cards_ride_along() -> None:
    assert written(node(), (Share(1, "GPU-a", 3000, 300),)) == {
        "name": "p",
        "namespace": "ml",
        "uid": "uid-1",
        "resourceVersion": "42",
        "labels": {"hami.io/vgpu-node": "n1"},
        "annotations": {
            "hami.io/vgpu-node": "n1",
            "hami.io/vgpu-time": "99",
            "hami.io/bind-time": "99",
            "hami.io/bind-phase": "success",
            "hami.io/vgpu-devices-to-allocate": ";GPU-a,NVIDIA,3000,30:;",  # the init container has none
            "hami.io/vgpu-devices-allocated": ";GPU-a,NVIDIA,3000,30:;",
        },
    }


def test_where_hamis_plugin_hands_over_the_cards_the_phase_says_so() -> None:
    said = written(node(), (Share(1, "GPU-a", 3000, 300),), locked=True)["annotations"]
    assert said["hami.io/bind-phase"] == "allocating"  # type: ignore[index]


def test_cards_of_two_vendors_are_written_apart() -> None:
    both = Container("a", asks=(ONE, DeviceAsk("MLU", 1, 24000, None, 0)))
    said = written(node(), (Share(0, "GPU-a", 3000, 300), Share(0, "MLU-b", 24000, 0)), False, both)["annotations"]
    strings = {key: value for key, value in said.items() if "allocated" in key}  # type: ignore[attr-defined]
    assert strings["hami.io/vgpu-devices-allocated"] == "GPU-a,NVIDIA,3000,30:;"
    assert len(strings) == 2


def test_a_name_too_long_for_a_label_is_no_label() -> None:
    assert "labels" not in written(node("n" * 64), (Share(1, "GPU-a", 3000, 300),))


def test_where_kubelet_picks_the_card_none_is_written_down() -> None:
    assert "annotations" not in written(node(enforcer=Enforcer.STOCK), (Share(1, "GPU-a", 15360, 1000),))


def test_a_card_that_the_node_does_not_have_is_never_left_out() -> None:
    with pytest.raises(UnknownCard, match="node n1 does not register card GPU-old"):
        written(node(), (Share(1, "GPU-old", 3000, 300),))


def test_a_pod_without_cards_carries_nothing() -> None:
    assert set(written(node(), ())) == {"name", "namespace", "uid", "resourceVersion"}


def test_what_the_pod_claimed_before_is_true_or_blank() -> None:
    ours, theirs = "hami.io/vgpu-devices-allocated", "hami.io/amd-devices-allocated"
    card = (Share(1, "GPU-a", 3000, 300),)
    said = written_beside(node(), card, ours, theirs)
    assert (said[ours], said[theirs]) == (";GPU-a,NVIDIA,3000,30:;", "")
    assert written_beside(node(), (), ours) == {ours: ""}
    assert written_beside(node(enforcer=Enforcer.STOCK), card, ours) == {ours: ""}
