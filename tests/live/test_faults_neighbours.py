"""Other schedulers fill the same nodes at the same time, and kubelet refuses what does not fit after all."""

from __future__ import annotations

import random
import threading

from tests.live.assigned import faults
from tests.live.dovetail_process import scheduling
from tests.live.faults import Witness, create_all, more
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import condition, deployment, gpu_limits, node, pod, pod_spec
from tools.controlplane.plane import ControlPlane

STOCK = "default-scheduler"


def _running(api: Client, app: str) -> list[Object]:
    return [
        item for item in api.list("Pod", labelSelector=f"app={app}") if item.get("status", {}).get("phase") == "Running"
    ]


def _reasons(api: Client) -> set[str]:
    return {event["reason"] for event in api.ask("GET", "/apis/events.k8s.io/v1/events")["items"]}


def test_kubelet_refuses_again_and_again(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Replacements wait longer and longer and say why, until kubelet takes them."""
    kubelet.refuse(lambda item: item["metadata"]["labels"].get("app") == "web")
    create_all(api, [node("a", gpus=4)])
    plane.start_controller_manager()
    with scheduling(plane), Witness(api) as witness:
        api.create(deployment("web", 1, pod_spec(gpu_limits(1, memory=1000))))
        api.create(deployment("other", 2, pod_spec(gpu_limits(1, memory=1000))))

        def backed_off() -> bool:
            said = [condition(item, "PodScheduled") for item in api.list("Pod", labelSelector="app=web")]
            return any(one is not None and one.get("reason") == "BackedOff" for one in said)

        api.wait_until(backed_off, "a replacement says that it is held back")
        api.wait_until(lambda: "RefusedByKubelet" in _reasons(api), "people are told")
        api.wait_until(lambda: len(_running(api, "other")) == 2, "others are not held back")
        kubelet.admit_all()
        api.wait_until(lambda: len(_running(api, "web")) == 1, "it runs in the end", 120)
    assert witness.wrong == []


def test_nodes_that_kube_scheduler_and_another_one_fill_at_the_same_time(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    """CPU is contended: whoever comes last is refused by kubelet, replaced by its owner, and finds its place."""
    kubelet.counts = True
    dice = random.Random(5)
    names = [f"n{number}" for number in range(6)]
    create_all(api, (node(name, gpus=4, resources={"cpu": "8"}) for name in names))
    plane.start_controller_manager()
    plane.start_scheduler()

    def bind_blindly() -> None:
        """A third scheduler, which does not look."""
        for number in range(more(20, 400)):
            api.create(pod(f"blind-{number}", {"cpu": "250m"}, scheduler="blind"))
            status, said = api.bind(f"blind-{number}", dice.choice(names))
            if status >= 400:
                raise ApiError(status, said, "bind")

    third = threading.Thread(target=bind_blindly, daemon=True)
    with scheduling(plane), Witness(api) as witness:
        third.start()
        share = {**gpu_limits(1, memory=2000, cores=20), "cpu": "500m"}
        api.create(deployment("cpu", 40, pod_spec({"cpu": "500m"}, scheduler=STOCK)))
        api.create(deployment("gpu", 40, pod_spec(share)))  # 48 CPUs: 20 + 20 + 5 and a little left
        third.join()
        api.wait_until(lambda: len(_running(api, "gpu")) == len(_running(api, "cpu")) == 40, "all run", 180)
        assert faults(api, sums=True) == []
    assert witness.wrong == []
