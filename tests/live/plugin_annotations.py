"""What the plugins of gpushare and gpu-manager read of a pod: written from their specification, shares nothing with us.

gpushare-device-plugin: pkg/gpu/nvidia/allocate.go, podutils.go; gpu-manager: pkg/services/allocator/nvidia.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tools.controlplane.client import Object

GPU_MEM, VCORE, VMEMORY = "aliyun.com/gpu-mem", "tencent.com/vcuda-core", "tencent.com/vcuda-memory"


@dataclass(frozen=True)
class Given:
    """The cards that the plugin would hand out."""

    pod: str
    container: int
    cards: tuple[int, ...]


def limits(container: Object, name: str) -> int:
    text = str(container["resources"].get("limits", {}).get(name, "0"))  # the API server stores 2000 as 2k
    return int(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)


def gpushare_allocates(pods: Iterable[Object], amount: int) -> tuple[Object, int, int, int]:
    """`Allocate(amount)`: the pod with this amount that was assumed first; its card, its memory, the card's memory."""
    candidates = []
    for pod in pods:
        notes = pod["metadata"].get("annotations", {})
        asked = sum(limits(container, GPU_MEM) for container in pod["spec"]["containers"])
        assumed = asked > 0 and "ALIYUN_COM_GPU_MEM_ASSUME_TIME" in notes
        if assumed and notes.get("ALIYUN_COM_GPU_MEM_ASSIGNED") == "false" and asked == amount:
            candidates.append((int(notes["ALIYUN_COM_GPU_MEM_ASSUME_TIME"]), pod))
    _, chosen = min(candidates, key=lambda candidate: candidate[0])
    notes = chosen["metadata"]["annotations"]
    return (
        chosen,
        int(notes["ALIYUN_COM_GPU_MEM_IDX"]),
        int(notes["ALIYUN_COM_GPU_MEM_POD"]),
        int(notes["ALIYUN_COM_GPU_MEM_DEV"]),
    )


def gpu_manager_reads(pod: Object) -> list[Given]:
    """The cards of each container that asks, of a pod that was predicated and not assigned yet."""
    notes = pod["metadata"]["annotations"]
    assert int(notes["tencent.com/predicate-time"]) > 10**18  # nanoseconds since 1970
    assert notes["tencent.com/gpu-assigned"] == "false"
    assert notes["tencent.com/predicate-node"] == pod["spec"]["nodeName"]
    found = []
    for number, container in enumerate(pod["spec"]["containers"]):
        cores, blocks = limits(container, VCORE), limits(container, VMEMORY)
        if cores <= 0 or (cores < 100 and blocks <= 0):
            assert f"tencent.com/predicate-gpu-idx-{number}" not in notes
            continue
        cards = tuple(int(text) for text in notes[f"tencent.com/predicate-gpu-idx-{number}"].split(","))
        assert len(cards) == len(set(cards)) == max(1, cores // 100)
        found.append(Given(pod["metadata"]["name"], number, cards))
    return found
