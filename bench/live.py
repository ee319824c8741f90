"""Dovetail on a real control plane, beside the stock kube-scheduler and a bare loop of Bindings.

    python -m bench.live [--sizes 1000,5000] [--pods 2000] [--only race,wait,…] [--contenders …]

What is measured and how: docs/bench-live.md. The last line is JSON. Ctrl-C stops everything that was started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from bench import live_extender, live_gang, live_race
from bench import live_load as load
from bench.live_cluster import NODES, client, create, heartbeats, say
from bench.live_contenders import Bare, Contender, Dovetail, KubeScheduler
from bench.live_reclaim import Figures, reclaim
from bench.live_restart import restart
from bench.live_wait import waits
from dovetail.kube.api.client import Api
from tools.controlplane.access import ROLES, grant_dovetail
from tools.controlplane.plane import ControlPlane

PARTS = ("race", "wait", "restart", "reclaim", "gang", "extender")
OWN_CLUSTER = {"reclaim", "gang", "extender"}  # parts with a control plane of their own
CONTENDERS = ("dovetail", "kube_scheduler", "bare")
EVERY = 10.0  # seconds between two heartbeats of a node, if this machine can sustain it
MOST_BEATS = 50.0  # per second, of all nodes together; a kubelet without changes reports only every five minutes
RUNNING = 20_000  # pods at the restart


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.live", description=__doc__, allow_abbrev=False)
    parser.add_argument("--sizes", default="1000,5000", help="numbers of nodes")
    parser.add_argument("--pods", type=int, default=2000, help="that wait at the start of a race")
    parser.add_argument("--running", type=int, default=RUNNING, help="pods that run at the restart")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help=f"of {', '.join(CONTENDERS)}, in this order")
    parser.add_argument("--rounds", type=int, default=1, help="races of each contender; the median counts")
    return parser.parse_args()


def main() -> None:
    wanted = asked()
    try:
        print(json.dumps(asyncio.run(measure(wanted))))
    except KeyboardInterrupt:
        say("stopped")
        raise SystemExit(130) from None


async def measure(wanted: argparse.Namespace) -> dict[str, Any]:
    sizes, parts = [int(size) for size in wanted.sizes.split(",")], wanted.only.split(",")
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {live_race.__doc__}")
    results = Results()
    for size in sizes if set(parts) - OWN_CLUSTER else ():
        with ControlPlane() as plane:
            # Without the admission policy: kube-scheduler, the other contender, has none (docs/live.md, Rights).
            grant_dovetail(plane.client(), *ROLES)
            async with client(plane) as api:
                await create(api, NODES, load.nodes(size), size, "nodes")
                beats = min(size / EVERY, MOST_BEATS)
                say(f"{size} nodes × {load.CARDS} GPUs, {beats:.0f} heartbeats a second (a node: {size / beats:.0f} s)")
                async with heartbeats(plane, size, beats):
                    await _one_size(plane, api, size, wanted, parts, results)
                    if "wait" in parts and size == sizes[0]:
                        say(f"waits with {size} nodes")
                        results.rooms, results.reasons = await waits(plane, api)
                        say(f"  room to bound {results.rooms}, arrival to reason {results.reasons}")
                    if "restart" in parts and size == sizes[-1]:
                        say(f"restart with {size} nodes and {wanted.running} pods that run")
                        results.restart = await restart(plane, api, size, wanted.running)
    if "reclaim" in parts:
        say("reclaim: urgent pods on 500 full nodes")
        with ControlPlane() as plane:
            grant_dovetail(plane.client(), *ROLES)
            async with client(plane) as api:
                results.reclaim = await reclaim(plane, api)
    if "gang" in parts:
        say(f"gang: {live_gang.MEMBERS} pods on {live_gang.SIZE} nodes")
        with ControlPlane() as plane:
            grant_dovetail(plane.client(), *ROLES)
            async with client(plane) as api:
                results.gang = await live_gang.gang(plane, api)
    if "extender" in parts:
        say(f"extender: {live_extender.COUNT} pods behind kube-scheduler on {live_extender.SIZE} nodes")
        results.extender = live_extender.summary(await live_extender.extender_runs())
    return results.summary()


async def _one_size(
    plane: ControlPlane, api: Api, size: int, wanted: argparse.Namespace, parts: list[str], results: Results
) -> None:
    if "race" not in parts:
        return
    all_three: list[Contender] = [Dovetail(plane), KubeScheduler(plane), Bare(plane)]
    made = {each.name: each for each in all_three}
    if "dovetail" in wanted.contenders:
        await _rehearse(made["dovetail"])
    for round in range(wanted.rounds):
        # forward, then backward, so that noise affects all contenders alike
        for name in wanted.contenders.split(",")[:: 1 - 2 * (round % 2)]:
            say(f"race, {size} nodes, round {round + 1}: {name}")
            run = await live_race.race(plane, api, made[name], wanted.pods)
            results.add(name, size, run)
            say(f"  {name}: {run}")


async def _rehearse(dovetail: Contender) -> None:
    """Start once without pods: kernels are compiled and kept on disk."""
    assert isinstance(dovetail, Dovetail)
    dovetail.start()
    say(f"  kernels are warm after {await asyncio.to_thread(dovetail.wait_ready):.1f} s")
    dovetail.stop()


class Results:
    def __init__(self) -> None:
        self._runs: dict[str, dict[str, list[live_race.Run]]] = {}  # contender -> nodes -> runs
        self.rooms: dict[str, float] | None = None
        self.reasons: dict[str, float] | None = None
        self.restart: tuple[float, float] | None = None
        self.reclaim: Figures | None = None
        self.gang: live_gang.Figures | None = None
        self.extender: list[dict[str, Any]] = []

    def add(self, name: str, size: int, run: live_race.Run) -> None:
        self._runs.setdefault(name, {}).setdefault(str(size), []).append(run)

    def summary(self) -> dict[str, Any]:
        middle = {
            name: {size: sorted(runs, key=lambda run: run.pods_per_second)[len(runs) // 2] for size, runs in by.items()}
            for name, by in self._runs.items()
        }
        rates = {name: {size: run.pods_per_second for size, run in by.items()} for name, by in middle.items()}
        writes = [run.writes_per_pod for by in self._runs.values() for runs in by.values() for run in runs]
        return {
            "pods_per_second": rates,
            "cpu_ms_per_pod": {name: {size: r.cpu_ms_per_pod for size, r in by.items()} for name, by in middle.items()},
            "writes_per_pod": max((each for each in writes if each is not None), default=None),
            "events_trail_seconds": {size: run.events_trail for size, run in middle.get("dovetail", {}).items()},
            "room_to_bound_seconds": self.rooms,
            "arrival_to_reason_seconds": self.reasons,
            "restart_seconds": self.restart and self.restart[0],
            "reclaim": self.reclaim,
            "gang": self.gang,
            "extender": self.extender,
            "resident_mb": self.restart and self.restart[1],
            "ratios": {
                f"dovetail/{other}": {
                    size: round(rate / rates[other][size], 2) for size, rate in rates.get("dovetail", {}).items()
                }
                for other in CONTENDERS[1:]
                if other in rates
            },
            "machine": {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "cpu": _cpu()},
        }


def _cpu() -> str:
    """The name of the CPU, as the kernel reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
