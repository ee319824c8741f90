"""HAMi's device plugin on the nodes: one pod at a time from lock to Allocate, and locks that nobody clears."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.live.dovetail_process import scheduling
from tests.live.faults import Witness, create_all, everybody_settled
from tools.controlplane.client import Client
from tools.controlplane.hami_plugin import LOCK
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import HANDSHAKE, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

HAMI = {HANDSHAKE: "Reported 2026-01-01 00:00:00"}


def _lock(holder: str) -> dict[str, str]:
    return {LOCK: f"{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')},default,{holder}"}


def _bound(api: Client) -> list[str]:
    return sorted(item["metadata"]["name"] for item in api.list("Pod") if item["spec"].get("nodeName"))


def test_twenty_pods_on_one_node_go_one_at_a_time(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    kubelet.hami = True
    kubelet.start_delay = 0.05
    create_all(api, [node("a", gpus=4, annotations=HAMI)])
    with scheduling(plane) as dovetail, Witness(api) as witness:
        create_all(api, (pod(f"p{number}", gpu_limits(1, memory=2000, cores=10)) for number in range(20)))
        api.wait_until(lambda: len(_bound(api)) == 10, "half of them are bound")
        dovetail.kill()  # it may have left its lock behind
        dovetail.start()
        everybody_settled(api)
        assert len(_bound(api)) == 20
        api.wait_until(lambda: LOCK not in api.get("Node", "a")["metadata"]["annotations"], "the lock is free")
    assert kubelet.complaints == []
    assert witness.wrong == []


def test_locks_left_behind_are_taken_over(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """By a pod that is gone, by one of ours that went elsewhere, and by one whose lock is older than HAMi waits."""
    kubelet.hami = True
    old = {LOCK: "2026-01-01T00:00:00Z,default,elsewhere"}
    locks = [_lock("nobody"), _lock("elsewhere"), old]
    create_all(
        api,
        [
            *(
                node(f"n{i}", gpus=1, labels={"n": str(i)}, annotations={**HAMI, **lock})
                for i, lock in enumerate(locks)
            ),
            node("free", gpus=1, labels={"n": "free"}),
        ],
    )
    with scheduling(plane):
        where = ["free", "0", "1", "2"]
        names = ["elsewhere", "p0", "p1", "p2"]
        create_all(
            api,
            (pod(name, gpu_limits(1), nodeSelector={"n": at}) for name, at in zip(names, where, strict=True)),
        )
        everybody_settled(api, sums=False)
        assert _bound(api) == sorted(names)
    assert kubelet.complaints == []


def test_a_lock_of_another_schedulers_pod_is_waited_for(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """HAMi's scheduler locks the node before it binds: its pod has no node yet."""
    kubelet.hami = True
    create_all(api, [node("a", gpus=2, annotations={**HAMI, **_lock("theirs")}), pod("theirs", scheduler="hami")])
    with scheduling(plane):
        api.create(pod("ours", gpu_limits(1, memory=1000)))
        api.create(pod("late", gpu_limits(9)))
        api.wait_until(lambda: api.get("Pod", "late")["status"].get("conditions"), "the scheduler has looked at both")
        assert _bound(api) == []
        api.patch("Node", "a", {"metadata": {"annotations": {LOCK: None}}})
        api.wait_until(lambda: _bound(api) == ["ours"], "ours is next")
    assert kubelet.complaints == []


def test_a_plugin_that_never_answers_holds_up_its_own_node_only(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    """Until the pod that it does not take is deleted, or its node is."""
    kubelet.kill("deaf")
    create_all(api, [node("deaf", gpus=4, annotations=HAMI, labels={"n": "deaf"}), node("well", gpus=4)])
    with scheduling(plane), Witness(api) as witness:
        share = gpu_limits(1, memory=1000, cores=10)
        create_all(api, (pod(f"p{i}", share, nodeSelector={"n": "deaf"}) for i in range(5)))
        api.wait_until(lambda: len(_bound(api)) == 1, "one is bound")
        create_all(api, (pod(f"q{i}", share, nodeSelector={"kubernetes.io/hostname": "well"}) for i in range(5)))
        api.wait_until(lambda: len(_bound(api)) == 6, "the other node is not held up")
        first = next(name for name in _bound(api) if name.startswith("p"))
        api.delete("Pod", first, gracePeriodSeconds=0)
        api.wait_until(lambda: len(_bound(api)) == 6, "the next one is bound")
        api.delete("Node", "deaf")
        api.create(node("new", gpus=4, labels={"n": "deaf"}))
        api.wait_until(lambda: len(_bound(api)) == 9, "the rest go to the node that takes its place")
    assert witness.wrong == []
