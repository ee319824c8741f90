"""A tenant who may only write pods, and a node that may only write itself, against the whole scheduler.

Measures: a canary (another tenant's pod) is bound, the process lives and its memory stays, and a restart with the
hostile object still there works. Rows of the table in issue "Hardening"; the bounds are in docs/limits.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.assigned import faults
from tests.live.dovetail_process import Dovetail, scheduling
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU, GPU_MEMORY, REGISTER, card, condition, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

MERGE = "application/merge-patch+json"
LONGEST = 10.0  # seconds for a canary: ten times the goal


def memory(dovetail: Dovetail) -> float:
    """MiB that the process has in memory."""
    assert dovetail.process is not None
    for line in Path(f"/proc/{dovetail.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            print(f"{line} (dovetail {dovetail.process.pid})")
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def canary(api: Client, name: str) -> float:
    """Seconds until another tenant's pod is bound."""
    if api.find("Namespace", "other", "") is None:
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    began = time.monotonic()
    api.create(pod(name, gpu_limits(1, memory=100), namespace="other"))
    api.wait_until(lambda: api.get("Pod", name, "other")["spec"].get("nodeName"), f"{name} is bound", LONGEST)
    return time.monotonic() - began


def why(api: Client, name: str) -> tuple[str, str]:
    """Reason and message of the pod's condition, once there is one."""

    def said() -> Object | None:
        found = condition(api.get("Pod", name), "PodScheduled")
        return found if found is not None and found.get("message") else None

    found = api.wait_until(said, f"{name} says why it waits", 30)
    return found["reason"], found["message"]


@contextmanager
def hostile(plane: ControlPlane, api: Client) -> Iterator[Dovetail]:
    """The scheduler before and after; in the end it is killed and starts again with whatever is there."""
    with scheduling(plane) as dovetail:
        canary(api, "before")
        yield dovetail
        assert dovetail.process is not None
        assert dovetail.process.running(), dovetail.words()
        assert canary(api, "after") < LONGEST
        dovetail.kill()
        dovetail.start()
        assert canary(api, "restarted") < LONGEST
        assert dovetail.process.running(), dovetail.words()
    assert "MemoryError" not in dovetail.words()
    assert faults(api) == []


def test_two_billion_cards_are_refused(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """The process died with MemoryError (96 GiB) in 0.5 s, and again after each restart."""
    api.create(node("a", gpus=4))
    with hostile(plane, api) as dovetail:
        before = memory(dovetail)
        api.create(pod("huge", {GPU: "2147483647"}))
        reason, message = why(api, "huge")
        assert reason == "LimitExceeded"
        assert "2,147,483,647 cards are asked for by one container; at most 256 are read" in message
        events = api.list("Event")
        assert any("at most 256 are read" in each["message"] for each in events if each["type"] == "Warning")
        assert memory(dovetail) < before + 30


def test_gpu_memory_with_a_unit_is_held_against_the_quota(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """`gpumem: 16Gi` under a quota of 2,000 MiB: GPUs beyond the quota, and more pods than cards.

    The stock node gives whole cards only, so that no part of a card fits there; on the other node 16,384 MiB are
    beyond the quota, and 2 × 1,000 MiB are not.
    """
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "15360"}
    api.create(node("stock", labels=labels, resources={GPU: "2"}))
    api.create(node("shared", gpus=[card("GPU-s-0", memory=40_960), card("GPU-s-1", 1, memory=40_960)]))
    hard = {f"limits.{GPU_MEMORY}": "2000"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    quota["metadata"]["namespace"] = "default"  # type: ignore[index]
    api.request("POST", "/api/v1/namespaces/default/resourcequotas", quota)
    with hostile(plane, api):
        for number in range(4):
            api.create(pod(f"huge-{number}", {GPU: "1", GPU_MEMORY: "16Gi"}))
        for number in range(3):
            api.create(pod(f"small-{number}", {GPU: "1", GPU_MEMORY: "1000Mi"}))
        for number in range(4):
            why(api, f"huge-{number}")

        def bound() -> list[str]:
            return sorted(each["metadata"]["name"] for each in api.list("Pod") if each["spec"].get("nodeName"))

        api.wait_until(lambda: len(bound()) == 2, "two small pods are bound", 30)
        assert bound() == ["small-0", "small-1"]  # 2 × 1,000 of 2,000 MiB
        for number in range(4):  # whole cards: the quota counts all of a card's memory
            api.create(pod(f"whole-{number}", {GPU: "1"}))
            why(api, f"whole-{number}")
        assert bound() == ["small-0", "small-1"]


def test_a_large_annotation_patched_again_and_again(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """400 patches of 240 kB kept 126 MiB, as keys and as what was read of them; 180 would keep 57 MiB."""
    api.create(node("a", gpus=4))
    with hostile(plane, api) as dovetail:
        api.create(pod("p", gpu_limits(1, memory=100), nodeSelector={"nowhere": "yes"}))
        path = "/api/v1/namespaces/default/pods/p"

        def patch(number: int) -> None:
            text = f"{number}-" + "x" * 240_000
            notes = {"nvidia.com/use-gputype": text, "hami.io/note": ""}
            if number % 2:
                notes = {"nvidia.com/use-gputype": "", "hami.io/note": text}
            api.request("PATCH", path, {"metadata": {"annotations": notes}}, MERGE)

        for number in range(20):  # what decoding takes once
            patch(number)
        canary(api, "warm")
        before = memory(dovetail)
        for number in range(20, 200):
            patch(number)
        assert canary(api, "patched") < LONGEST
        assert memory(dovetail) < before + 25
        assert why(api, "p")[0]
        api.delete("Pod", "p", gracePeriodSeconds=0)


def test_many_types_after_many_kinds_of_card(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """A node registers ever new UUIDs and models, then a pod names 1,000 types: scheduling stopped for > 150 s."""
    api.create(node("a", gpus=4))
    api.create(node("bad", gpus=1))
    with hostile(plane, api) as dovetail:
        before = 0.0
        for number in range(60):
            cards = [card(f"GPU-{number}-{n}", n, model=f"NVIDIA M{number}-{n}") for n in range(256)]
            change = {"metadata": {"annotations": {REGISTER: json.dumps(cards, separators=(",", ":"))}}}
            api.request("PATCH", "/api/v1/nodes/bad", change, MERGE)
            if number == 9:
                canary(api, "registered")
                before = memory(dovetail)
        for name, count in (("many", 1_000), ("allowed", 64)):
            types = ",".join(f"X{n}" for n in range(count))
            api.create(pod(name, gpu_limits(1), annotations={"nvidia.com/use-gputype": types}))
        assert canary(api, "typed") < LONGEST
        reason, message = why(api, "many")
        assert (reason, "1,000 types in one list; at most 64 are read" in message) == ("LimitExceeded", True)
        assert why(api, "allowed")[0] == "Unschedulable"
        assert memory(dovetail) < before + 30


@pytest.mark.parametrize("count", [28_000])
def test_a_pod_with_28_000_resources(plane: ControlPlane, api: Client, kubelet: Kubelet, count: int) -> None:
    """419 → 1,083 MiB with 1,000 nodes, for ever; here with 50, what a column of each would take is 22 MiB."""
    for number in range(50):
        api.create(node(f"n{number}", gpus=1))
    with hostile(plane, api) as dovetail:
        before = memory(dovetail)
        api.create(pod("many", {f"e.x/{n}": "1" for n in range(count)}))
        reason, message = why(api, "many")
        assert (reason, "different resources are named; at most 64 are read" in message) == ("LimitExceeded", True)
        assert memory(dovetail) < before + 60  # decoding 1 MB of JSON takes some
