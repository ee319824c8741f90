"""Pods bound per second.

It is the same for all contenders: pods are created while no scheduler runs, then the contender's process is started. It
lists the objects and begins to bind when it is ready, so its start-up does not count. The clock runs from the first pod
that the benchmark's own watch sees with a node to the last one.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from bench import live_load as load
from bench.live_cluster import PODS, Sight, create, delete_pods, say, watching
from bench.live_contenders import Contender, Dovetail, cpu_seconds
from dovetail.kube.api.client import Api
from tools.controlplane.plane import ControlPlane

SECONDS = 600.0  # after which a run has failed


@dataclass(frozen=True)
class Run:
    """One run of a contender on a cluster of one size."""

    pods_per_second: float
    seconds: float
    cpu_ms_per_pod: dict[str, float]  # of the contender, the API server and etcd
    writes_per_pod: float | None = None
    events_trail: float | None = None  # seconds from the last bind to the last event


async def race(plane: ControlPlane, api: Api, contender: Contender, pods: int) -> Run:
    await create(api, PODS, load.pods(pods, contender.scheduler, contender.limits), pods, f"pods for {contender.name}")
    try:
        async with watching(plane) as sight:
            return await _measure(plane, contender, sight, pods)
    finally:
        contender.stop()
        await delete_pods(api)


async def _measure(plane: ControlPlane, contender: Contender, sight: Sight, pods: int) -> Run:
    ids: dict[str, int] = {name: plane.process(name).pid for name in ("kube-apiserver", "etcd")}
    before: dict[str, float] = {}

    def mark() -> None:
        before.update((name, cpu_seconds(pid)) for name, pid in ids.items())

    sight.first_bound = mark
    ids[contender.name] = await asyncio.to_thread(contender.start)
    said = asyncio.create_task(_progress(contender.name, sight, pods))

    def all_bound() -> bool:
        if not Path(f"/proc/{ids[contender.name]}/cmdline").read_bytes():
            raise RuntimeError(f"{contender.name} ended: {contender.last_words()}")
        return len(sight.bound) >= pods

    try:
        await sight.until(all_bound, SECONDS, f"{pods} pods bound by {contender.name}")
    finally:
        said.cancel()
    used = {name: round(1000 * (cpu_seconds(pid) - before[name]) / pods, 3) for name, pid in ids.items()}
    times = sorted(sight.bound.values())
    seconds = times[-1] - times[0]
    writes = trail = None
    if isinstance(contender, Dovetail):
        trail = await asyncio.to_thread(_trail, contender, pods)
        writes = contender.metric("dovetail_bind_writes_total") / pods
    return Run(round((pods - 1) / seconds, 1), round(seconds, 2), used, writes, trail)


def _trail(dovetail: Dovetail, pods: int) -> float:
    """Seconds until the event of every pod is sent or dropped."""
    began = time.monotonic()
    while dovetail.metric("dovetail_events_sent_total") + dovetail.metric("dovetail_events_dropped_total") < pods:
        if time.monotonic() - began > 120:
            say("  not all events were sent within two minutes")
            break
        time.sleep(0.2)
    return round(time.monotonic() - began, 1)


async def _progress(name: str, sight: Sight, pods: int) -> None:
    while True:
        await asyncio.sleep(2.0)
        say(f"  {name}: {len(sight.bound)} of {pods} bound")
        sight.news.set()
