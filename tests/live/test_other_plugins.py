"""gpushare and gpu-manager pods on the real control plane, bound with the annotations that their plugins read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.live.dovetail_process import scheduling
from tests.live.plugin_annotations import GPU_MEM, VCORE, VMEMORY, Given, gpu_manager_reads, gpushare_allocates
from tests.live.test_scheduling import placed, reason
from tools.controlplane import objects
from tools.controlplane.client import MERGE, Client, Object, path_of
from tools.controlplane.plane import ControlPlane

IN_MIB = "apiVersion: dovetail.dev/v1\nkind: Config\ngpushareMemoryUnit: MiB\n"
COUNT = "aliyun.com/gpu-count"
ON_NODE3 = {"kubernetes.io/hostname": "node3"}


def several(name: str, *limits: dict[str, Any], **fields: Any) -> Object:
    """A pod with one container for each of these limits."""
    made = objects.pod(name, **fields)
    (first,) = made["spec"]["containers"]
    made["spec"]["containers"] = [
        {**first, "name": f"c{number}", "resources": {"limits": {key: str(value) for key, value in own.items()}}}
        for number, own in enumerate(limits)
    ]
    return made


def test_a_gpushare_pod_has_what_its_plugin_reads(plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(IN_MIB)
    for name in ("n1", "n2"):
        api.create(objects.node(name, resources={GPU_MEM: "32552", COUNT: "2"}))  # two cards of 16,276 MiB
    theirs = objects.pod("theirs", {GPU_MEM: 8138}, nodeName="n1", annotations={"ALIYUN_COM_GPU_MEM_IDX": "1"})
    api.create(theirs)  # the extender placed it on card 1, which has 8,138 MiB left
    with scheduling(plane, "--config", str(config)) as dovetail:
        api.create(several("p", {GPU_MEM: 2000}, {}, {GPU_MEM: 3000}))
        assert placed(api, "p") == ["n1"]
        pods = [api.get("Pod", name) for name in ("theirs", "p")]
        chosen, card, memory, whole = gpushare_allocates(pods, 5000)
        assert (chosen["metadata"]["name"], card, memory, whole) == ("p", 1, 5000, 16276)  # the fuller card
        patch = {"metadata": {"annotations": {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}}}
        api.ask("PATCH", path_of("Pod", "p", "default"), patch, MERGE)  # as the plugin does
        api.create(objects.pod("q", {GPU_MEM: 4000}))
        placed(api, "q")
        assert gpushare_allocates([api.get("Pod", "q")], 4000)[1] == 0  # 3,138 MiB are left on card 1
        api.create(objects.pod("big", {GPU_MEM: 16277}))
        assert "GPU memory short" in reason(api, "big")["message"]
        dovetail.stop()  # a second run reads what the first one wrote
        dovetail.start()
        api.create(objects.pod("r", {GPU_MEM: 3138}))
        placed(api, "r")
        assert gpushare_allocates([api.get("Pod", "r")], 3138)[1] == 1  # exactly what is left there
        assert "another client changed" not in dovetail.words()


def test_a_gpu_manager_pod_has_what_gpu_manager_reads(plane: ControlPlane, api: Client) -> None:
    for number in range(3):  # two cards with four blocks of 256 MiB each, as in gpu-admission's own test
        api.create(objects.node(f"node{number}", resources={VCORE: "200", VMEMORY: "8"}))
    with scheduling(plane) as dovetail:
        wanted = {
            "pod-0": ({VCORE: 10, VMEMORY: 1}, {VCORE: 10, VMEMORY: 1}),
            "pod-1": ({VCORE: 100, VMEMORY: 3}, {VCORE: 80, VMEMORY: 3}),
            "pod-2": ({VCORE: 200, VMEMORY: 8}, {}),
            "pod-3": ({VCORE: 10, VMEMORY: 2}, {}),
        }
        nodes = []
        for name, limits in wanted.items():
            api.create(several(name, *limits))
            nodes += placed(api, name)
        assert nodes == ["node0", "node1", "node2", "node0"]
        assert [one for name in wanted for one in gpu_manager_reads(api.get("Pod", name))] == [
            Given("pod-0", 0, (0,)),
            Given("pod-0", 1, (0,)),  # the card in use
            Given("pod-1", 0, (0,)),
            Given("pod-1", 1, (1,)),
            Given("pod-2", 0, (0, 1)),
            Given("pod-3", 0, (0,)),  # card 0 has 80 cores and 2 blocks left: the fewest that fit
        ]
        # Whole cards gpu-manager chooses itself: here card 1 for a pod that we gave card 0.
        api.create(objects.node("node3", resources={VCORE: "200", VMEMORY: "8"}))
        api.create(objects.pod("whole", {VCORE: 100, VMEMORY: 1}, nodeSelector=ON_NODE3))
        assert placed(api, "whole") == ["node3"]
        patch = {"tencent.com/predicate-gpu-idx-0": "1", "tencent.com/gpu-assigned": "true"}
        api.ask("PATCH", path_of("Pod", "whole", "default"), {"metadata": {"annotations": patch}}, MERGE)
        for attempt in range(4):  # until the change has arrived, a part of a card still goes to card 1
            api.create(objects.pod(f"part-{attempt}", {VCORE: 5, VMEMORY: 1}, nodeSelector=ON_NODE3))
            placed(api, f"part-{attempt}")
            (given,) = gpu_manager_reads(api.get("Pod", f"part-{attempt}"))
            if given.cards == (0,):
                break
        assert given.cards == (0,)
        api.create(objects.pod("odd", {VCORE: 150, VMEMORY: 1}))
        assert "neither less than 100 nor a multiple of 100" in reason(api, "odd")["message"]
        assert dovetail.metric("dovetail_objects_set_aside_total") == 0
