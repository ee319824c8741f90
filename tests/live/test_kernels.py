"""Policies that no pod used before are compiled while others are placed: nobody else waits for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dovetail.kube.live.kernels import FEW_NODES
from tests.live.dovetail_process import Dovetail
from tools.controlplane import objects
from tools.controlplane.access import grant_dovetail
from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane

GOAL = 1.0  # seconds from creating a pod to its node, whatever else goes on
COLD_START = 600.0  # seconds for kernels that nobody compiled before, on a machine that is busy with other tests
CONFIGURED = 2  # pairs: of pods with devices, and of those without
NEW = (("gpu-packing", "numa,binpack"), ("best-fit", "mutex"))


def policies(node: str, gpu: str) -> dict[str, str]:
    return {"hami.io/node-scheduler-policy": node, "hami.io/gpu-scheduler-policy": gpu}


def is_placed(api: Client, name: str) -> bool:
    return bool(api.get("Pod", name)["spec"].get("nodeName"))


def compiling(dovetail: Dovetail, nodes: int) -> bool:
    """Whether kernels of the configuration are not there yet, or, on a large cluster, those of the new pods.

    A small cluster compiles policies only after many pods have named them.
    """
    wanted = CONFIGURED + (len(NEW) if nodes > FEW_NODES else 0)
    return dovetail.metric("dovetail_kernels_compiled_total") < wanted


def time_to_node(api: Client, name: str) -> float:
    """Of a pod with the default policies."""
    started = time.monotonic()
    api.create(objects.pod(name, objects.gpu_limits(1)))
    api.wait_until(lambda: is_placed(api, name), f"{name} has a node", 20 * GOAL)
    return time.monotonic() - started


@pytest.mark.parametrize("nodes", [4, FEW_NODES + 10])
def test_others_are_placed_at_once_while_new_policies_are_compiled(
    plane: ControlPlane, api: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))  # nothing was ever compiled
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)  # other tests of this process set it
    for n in range(nodes):
        api.create(objects.node(f"n{n:03}", gpus=8 if nodes < FEW_NODES else 1))
    grant_dovetail(api)
    dovetail = Dovetail(plane, interpreted=False)
    try:
        dovetail.start(wait=False)
        api.wait_until(dovetail.is_ready, "the scheduler is ready", COLD_START)
        if nodes > FEW_NODES:  # a small cluster is served, interpreted, while these are still being compiled
            assert dovetail.metric("dovetail_kernels_compiled_total") > 0
        times, said = [time_to_node(api, "first")], set()
        for n, pair in enumerate(NEW):
            api.create(objects.pod(f"new-{n}", objects.gpu_limits(1), annotations=policies(*pair)))
        deadline = time.monotonic() + COLD_START
        while (
            len(times) < 8 or not all(is_placed(api, f"new-{n}") for n in range(len(NEW))) or compiling(dovetail, nodes)
        ):
            assert time.monotonic() < deadline, dovetail.words()
            times.append(time_to_node(api, f"canary-{len(times)}"))
            said |= {(objects.condition(api.get("Pod", "new-1"), "PodScheduled") or {}).get("reason")}
            api.delete("Pod", f"canary-{len(times) - 1}", gracePeriodSeconds=0)
        spent = dovetail.metric("dovetail_kernel_compile_seconds_total")
        print(
            f"{nodes} nodes, {spent:.0f} s of compiling: of {len(times)} pods the slowest had its node after"
            f" {max(times):.2f} s, the median after {sorted(times)[len(times) // 2]:.2f} s"
        )
        assert spent > 0
        if nodes <= FEW_NODES:
            assert dovetail.metric("dovetail_kernels_compiled_total") == CONFIGURED
        assert max(times) < 10 * GOAL
        if nodes > FEW_NODES:
            assert "PoliciesNotCompiled" in said
    finally:
        dovetail.stop()
