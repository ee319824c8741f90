"""How evenly policies load a cluster: `python -m bench.load_balance NODES PODS POLICY…`.

Pods arrive in the order of a seed until they ask for half of the GPU capacity. Then the nodes are measured by the load
model of the simulator (docs/simulator.md#the-load-model), whether the policy reads measurements or not. Prints the mean
load and its standard deviation over nodes with GPUs, the part of them above 80 %, and how many of them are idle.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from dovetail.policies.rows import CARD_LOAD, CARDS, CPU_LOAD
from dovetail.sim import cast
from dovetail.sim.load import load_trace
from dovetail.sim.load_model import MEASURE_EVERY, LoadModel
from dovetail.sim.orders import draw_order
from dovetail.sim.profiles import profile_of
from dovetail.sim.stage import stage
from dovetail.sim.trace import Trace

SEED = 42
PART = 0.5  # of the GPU capacity
HOT = 800  # per mille


def loads(trace: Trace, policy: str) -> tuple[float, float, float, float, float]:
    """(mean GPU load, its deviation, its part above HOT, idle nodes, deviation of the CPU load), all in per cent."""
    order = draw_order(trace, SEED, 1.3)
    machines = order.machines(trace)
    scheduler = stage(trace, machines, policy, told=True, mode="compiled")
    model, after = LoadModel(scheduler, policy), LoadModel(scheduler, policy)
    profile, asked = profile_of(policy), 0
    groups = []
    for job in order.jobs(trace):
        asked += job.gpus * job.gpu_milli * job.pods
        if asked > PART * trace.gpu_capacity_milli:
            break
        groups.append(cast.group_of(job, [cast.pod_of(job, profile, uid) for uid in cast.uids(job)]))
    for start in range(0, len(groups), MEASURE_EVERY):
        model.measure(float(start))
        scheduler.place(groups[start : start + MEASURE_EVERY])
    after.active = True
    after.measure(float(len(groups)) + MEASURE_EVERY)
    rows, size = scheduler.ledger.rows, len(scheduler.ledger.nodes)
    with_cards = rows.fact[:size, CARDS] > 0
    of_cards = np.maximum(rows.card_signal[:size, :, CARD_LOAD], 0).sum(axis=1)[with_cards]
    gpu, cpu = of_cards / rows.fact[:size, CARDS][with_cards], rows.signal[:size, CPU_LOAD][with_cards]
    return (
        float(gpu.mean()) / 10,
        float(gpu.std()) / 10,
        100 * float((gpu > HOT).mean()),
        100 * float((gpu == 0).mean()),
        float(cpu.std()) / 10,
    )


def main(nodes: str, pods: str, *policies: str) -> None:
    trace, _ = load_trace(Path(nodes), Path(pods))
    print(f"{'policy':<28}{'GPU mean':>10}{'deviation':>11}{'above 80':>10}{'idle':>8}{'CPU deviation':>15}")
    for policy in policies:
        mean, deviation, hot, idle, cpu = loads(trace, policy)
        print(f"{policy:<28}{mean:>9.1f}%{deviation:>10.1f}%{hot:>9.1f}%{idle:>7.1f}%{cpu:>14.1f}%", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
