"""HAMi's demo with kube-scheduler in front: configured as HAMi's chart does it, Dovetail behind the URL."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.live.assigned import faults, pieces
from tests.live.extending import NAME, ExtenderProcess, extending
from tests.live.test_demo import OUTCOMES, _demo, _nodes, _running
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane


@pytest.mark.parametrize("letter", sorted(OUTCOMES))
def test_a_demo_deployment_has_its_outcome_behind_kube_scheduler(
    letter: str, plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    for node in _nodes():
        api.create(node)
    plane.start_controller_manager()
    with extending(plane, https=True) as extender:
        item = _demo(letter)
        item["spec"]["template"]["spec"]["schedulerName"] = NAME
        api.create(item)
        pods = _running(api, 4)
        per_card = sorted(Counter(piece.card for pod in pods for piece in pieces(pod)).values(), reverse=True)
        nodes = {pod["spec"]["nodeName"] for pod in pods}
        assert (len(nodes), len(per_card), per_card) == OUTCOMES[letter], extender.words()
        assert faults(api) == []
        assert extender.metric('dovetail_extender_requests_total{verb="bind",outcome="ok"}') >= 4
        assert extender.metric("dovetail_extender_reservations_made_total") >= 4


def test_a_replica_that_does_not_lead_says_so_at_once(plane: ControlPlane, api: Client) -> None:
    api.create(_nodes()[0])
    with extending(plane) as extender:
        standby = ExtenderProcess(plane, "--identity", "standby")
        standby.start(wait=False)
        try:
            api.wait_until(lambda: standby.fetch("/healthz")[0] == 200, "the standby answers", 60)
            assert extender.fetch("/readyz") == (200, "ready\n")
            status, text = standby.fetch("/readyz")
            assert (status, "lease" in text) == (503, True)
            containers = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
            item = {"metadata": {"uid": "u"}, "spec": {"schedulerName": NAME, "containers": containers}}
            asked = {"Pod": item, "NodeNames": ["node-a"]}
            assert "this Dovetail does not serve now: " in standby.post("filter", asked)["Error"]
            binding = {"PodName": "a", "PodNamespace": "default", "PodUID": "u", "Node": "node-a"}
            assert "this Dovetail does not serve now: " in standby.post("bind", binding)["Error"]
            assert "the pod is gone, or not reported" in extender.post("filter", asked)["Error"]
            assert extender.post("filter", {"nothing": 1})["Error"] == "Pod is missing"
        finally:
            standby.stop()
