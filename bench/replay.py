"""How fast traces are replayed, and how long compilation takes with an empty cache.

Uses the published trace if it is available ($DOVETAIL_DATA, or ../shared/data beside the clone), else a generated one
of the same size.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

from dovetail.sim.clusters import parse_cluster
from dovetail.sim.generate import generate
from dovetail.sim.inflation import replay
from dovetail.sim.load import load_trace
from dovetail.sim.orders import Order, Orders, draw_order
from dovetail.sim.runs import COMPILED, Setting, warm_up
from dovetail.sim.trace import Trace
from dovetail.sim.workload import WorkloadParameters

SEED, ROUNDS, TILES = 42, 60, 10  # a round of the smaller cluster takes 20 ms
ROOT = Path(__file__).parents[1]
LIKE_OPENB = "549xG2:8,105xT4:8,39xG3:8,133xP100:2,51xV100M32:4,49xV100M16:4"
COLD = "from dovetail.sim.runs import *; from time import perf_counter as now; t = now(); "
COLD += "warm_up({policy!r}, Setting(engine=COMPILED)); print(now() - t)"


def trace_and_order() -> tuple[Trace, Order]:
    folder = Path(os.environ.get("DOVETAIL_DATA") or Path(__file__).parents[2] / "shared/data") / "openb"
    folder = folder if folder.exists() else folder.parent
    pods = folder / "openb_pod_list_default.csv"
    if not pods.exists():
        print("the published trace is not at hand; a generated one of its size takes its place")
        trace = generate(WorkloadParameters(jobs=8152, seed=SEED), parse_cluster(LIKE_OPENB))
        return trace, draw_order(trace, SEED)
    trace, _ = load_trace(folder / "openb_node_list_gpu_node.csv", pods)
    return trace, Orders.open(folder / "openb_order_default.npz").order(SEED, trace)


def tiled(trace: Trace, times: int) -> Trace:
    """The cluster and the jobs of the trace, repeated `times` times."""
    machines = [replace(m, name=f"{m.name}-{n}") for n in range(times) for m in trace.machines]
    jobs = [replace(job, name=f"{job.name}-{n}") for n in range(times) for job in trace.jobs]
    Random(SEED).shuffle(jobs)
    return Trace(f"{trace.name} × {times}", tuple(machines), tuple(jobs))


def rate(trace: Trace, order: Order, policy: str, rounds: int = ROUNDS) -> float:
    """Decisions per second: the best of several runs, because other processes use the machine too."""
    return max(replay(trace, order, policy).decisions_per_second for _ in range(rounds))


def cold_start(policy: str) -> float:
    """Seconds for the first use of a policy in a new process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | {"DOVETAIL_CACHE_DIR": folder}
        command = [sys.executable, "-c", COLD.format(policy=policy)]
        return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def measured_apart() -> dict[str, object]:
    """Run `measure` in its own process, like `dovetail replay`: earlier measurements left a heap of a gigabyte."""
    ran = subprocess.Popen([sys.executable, "-m", "bench.replay"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert ran.stdout is not None
    last = ""
    for line in ran.stdout:
        print(last, end="", flush=True)
        last = line
    if ran.wait():
        raise SystemExit(ran.returncode)
    found: dict[str, object] = json.loads(last)
    return found


def measure() -> dict[str, object]:
    trace, order = trace_and_order()
    large = tiled(trace, TILES)
    large_order = draw_order(large, SEED)
    for policy in ("fgd", "snug", "best-fit"):
        warm_up(policy, Setting(engine=COMPILED))
    gc.collect()
    gc.freeze()
    print(f"\nreplay of {trace.name}, inflation, decisions per second on one core")
    found: dict[str, dict[str, int]] = {}
    for title, on, by, policies in (
        (f"{len(trace.machines):,} nodes", trace, order, ("fgd", "snug", "best-fit")),
        (f"{len(large.machines):,} nodes", large, large_order, ("fgd", "snug")),
    ):
        for policy in policies:
            speed = rate(on, by, policy, ROUNDS if on is trace else ROUNDS // TILES)
            print(f"{title:14} {policy:10} {speed:12,.0f}", flush=True)
            found.setdefault(str(len(on.machines)), {})[policy] = round(speed)
    cold = {policy: round(cold_start(policy), 1) for policy in ("fgd", "snug")}
    print("cold start of the compiler, seconds: " + ", ".join(f"{policy} {s}" for policy, s in cold.items()))
    return {"replay_per_second": found, "cold_start_seconds": cold}


if __name__ == "__main__":
    print(json.dumps(measure()))
