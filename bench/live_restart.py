"""A restart in a large cluster: the time from the start of the process to ready, and the memory that it uses then.

The pods have their nodes and cards. They are not `Running`, but that makes no difference to a scheduler.
"""

from __future__ import annotations

import asyncio
import time

from bench import live_load as load
from bench.live_cluster import PODS, create, delete_pods, say
from bench.live_contenders import Dovetail, cpu_seconds, memory_mb
from dovetail.kube.api.client import Api
from tools.controlplane.plane import ControlPlane


async def restart(plane: ControlPlane, api: Api, nodes: int, pods: int) -> tuple[float, float]:
    """Seconds, and MB of resident memory."""
    await create(api, PODS, load.running(pods, nodes), pods, "pods that run")
    try:
        await _start(plane, "first")  # leaves compiled kernels on disk, and stops cleanly
        return await _start(plane, "second")
    finally:
        await delete_pods(api)


async def _start(plane: ControlPlane, which: str) -> tuple[float, float]:
    dovetail, began = Dovetail(plane), time.monotonic()
    pid = dovetail.start()
    try:
        await asyncio.to_thread(dovetail.wait_ready)
        seconds, cpu = time.monotonic() - began, cpu_seconds(pid)
        resident, peak = memory_mb(pid), memory_mb(pid, "VmHWM")
        say(
            f"  {which} start: ready after {seconds:.1f} s ({cpu:.1f} s of CPU); {resident:.0f} MB resident, "
            f"{peak:.0f} MB at the peak"
        )
        return round(seconds, 2), round(resident, 1)
    finally:
        dovetail.stop()
