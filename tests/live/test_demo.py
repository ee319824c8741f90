"""The four strategies of HAMi's demo, live: four Deployments on a real control plane give the demo's outcomes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.live.assigned import faults, pieces
from tests.live.dovetail_process import scheduling
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane

DEMO = Path(__file__).parents[2] / "examples" / "demo"

# scenario -> (nodes used, GPUs used, pods per GPU)
OUTCOMES = {
    "a": (1, 2, [2, 2]),
    "b": (2, 2, [2, 2]),
    "c": (1, 4, [1, 1, 1, 1]),
    "d": (2, 4, [1, 1, 1, 1]),
}


def _demo(letter: str) -> Object:
    item: Object = yaml.safe_load((DEMO / f"demo-{letter}.yaml").read_text(encoding="utf-8"))
    item["spec"]["template"]["spec"]["schedulerName"] = "dovetail"
    item["metadata"]["namespace"] = "default"
    return item


def _nodes() -> list[Object]:
    return list(yaml.safe_load_all((DEMO / "cluster.yaml").read_text(encoding="utf-8")))


def _running(api: Client, count: int) -> list[Object]:
    def all_run() -> list[Object]:
        pods = api.list("Pod", namespace=None)
        done = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
        return done if len(done) == len(pods) == count else []

    return api.wait_until(all_run, f"{count} pods run", 60)


def _labelled(api: Client) -> bool:
    pods = api.list("Pod", namespace=None)
    return all(pod["metadata"]["labels"].get("hami.io/vgpu-node") == pod["spec"]["nodeName"] for pod in pods)


@pytest.mark.parametrize("letter", sorted(OUTCOMES))
def test_a_demo_deployment_has_its_outcome_and_has_it_again(
    letter: str, plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    for node in _nodes():
        api.create(node)
    plane.start_controller_manager()
    with scheduling(plane) as dovetail:
        for _ in range(2):
            api.create(_demo(letter))
            pods = _running(api, 4)
            held = [piece for pod in pods for piece in pieces(pod)]
            per_card = sorted(Counter(piece.card for piece in held).values(), reverse=True)
            nodes = {pod["spec"]["nodeName"] for pod in pods}
            assert (len(nodes), len(per_card), per_card) == OUTCOMES[letter], dovetail.words()
            assert faults(api) == []
            api.wait_until(lambda: _labelled(api), "each pod has the label that HAMi's monitor selects on", 30)
            api.delete("Deployment", f"demo-{letter}", "default")
            api.wait_until(lambda: not api.list("Pod"), "the pods are gone", 60)
        # One write per pod; a server before 1.35 drops a Binding's labels, which costs another.
        assert dovetail.metric("dovetail_bind_writes_total") == (8 if plane.version >= (1, 35) else 16)
