"""Hostile annotations on nodes and pods of a real API server: sound pods are placed on sound nodes all the same."""

from __future__ import annotations

import random

from tests.kube.live.hostile import ON_NODES, ON_PODS, values
from tests.live.assigned import faults
from tests.live.dovetail_process import scheduling
from tests.live.faults import create_all, more
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane


def test_some_hundred_hostile_annotations(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    dice = random.Random(2)
    sound = {"sound": "yes"}
    create_all(api, [node("sound", gpus=4, labels=sound), *(node(f"bad-{number}", gpus=2) for number in range(10))])
    with scheduling(plane) as dovetail:
        for number, value in enumerate(values(2, more(400, 4_000))):
            if number % 2:
                change: Object = {"metadata": {"annotations": {dice.choice(ON_NODES): value}}}
                api.request("PATCH", f"/api/v1/nodes/bad-{number % 10}", change, "application/merge-patch+json")
            else:
                item = pod(f"p{number}", gpu_limits(1, memory=1000), annotations={dice.choice(ON_PODS): value})
                item["spec"]["nodeSelector"] = {"sound": "no"} if dice.random() < 0.5 else {}
                api.request("POST", "/api/v1/namespaces/default/pods", item)  # what the server itself refuses is fine
                if number > 40:
                    api.delete("Pod", f"p{number - 40}", gracePeriodSeconds=0)
        whole = gpu_limits(1, memory=1000)
        create_all(api, (pod(f"sound-{number}", whole, nodeSelector=sound) for number in range(8)))

        def all_placed() -> bool:
            return all(api.get("Pod", f"sound-{number}")["spec"].get("nodeName") for number in range(8))

        api.wait_until(all_placed, "sound pods are placed", 120)
        assert dovetail.process is not None
        assert dovetail.process.running(), dovetail.words()
        assert max(len(line) for line in dovetail.words().splitlines()) < 4_000
    on_sound = [wrong for wrong in faults(api) if "GPU-sound" in wrong]
    assert on_sound == []
