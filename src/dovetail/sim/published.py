"""Published curves of the FGD paper's experiments, and the traces and orders beside them that they can be held against.

A folder has openb's lists, openb_order_TRACE.npz, and in expected/ the two tables of the paper's analysis: a row per
workload, policy and seed, and a column per percent that had arrived.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.sim.load import load_trace, trace_name
from dovetail.sim.orders import Orders
from dovetail.sim.trace import Trace, TraceError

NODES = "openb_node_list_gpu_node.csv"
ALLOCATED, FRAGMENTED = "expected/analysis_allo_discrete.csv", "expected/analysis_frag_discrete.csv"
TUNE = 1.3
COLUMNS = range(131)
POLICIES = {  # published name -> ours
    "01-Random": "random",
    "02-DotProd": "dot-product",
    "03-GpuClustering": "gpu-clustering",
    "04-GpuPacking": "gpu-packing",
    "05-BestFit": "best-fit",
    "06-FGD": "fgd",
}


@dataclass(frozen=True, slots=True)
class Curves:
    """In percent of all GPU capacity, by arrived percent."""

    allocated: tuple[float, ...]
    fragmented: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A trace with its orders, and what was published about it."""

    trace: Trace
    orders: Orders
    curves: Mapping[tuple[str, int], Curves]  # our policy, seed

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for _, seed in self.curves})


def experiments(folder: Path) -> list[Experiment]:
    """All that the folder has pods, an order and published rows of. Raises TraceError where there are none."""
    for name in (NODES, ALLOCATED, FRAGMENTED):
        if not (folder / name).is_file():
            raise TraceError(f"{folder / name}: is missing; say where the data is: make repro DATA=folder")
    allocated, fragmented = dict(_rows(folder / ALLOCATED)), dict(_rows(folder / FRAGMENTED))
    found = []
    for pods in sorted(folder.glob("openb_pod_list_*.csv*")):
        name = trace_name(pods)
        path = folder / f"openb_order_{name}.npz"
        if not path.is_file():
            continue
        orders = Orders.open(path)
        curves = {
            (policy, seed): Curves(values, fragmented[key])
            for key, values in allocated.items()
            if key in fragmented
            for workload, policy, seed in (key,)
            if workload == name and seed in orders.seeds
        }
        if curves:
            found.append(Experiment(load_trace(folder / NODES, pods)[0], orders, curves))
    if not found:
        raise TraceError(f"{folder}: no trace has pods, an order and published curves")
    return found


Key = tuple[str, str, int]  # trace, our policy, seed


def _rows(path: Path) -> Iterator[tuple[Key, tuple[float, ...]]]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            policy = POLICIES.get(row["sc_policy"])
            if policy is None or float(row["tune"]) != TUNE:
                continue
            try:
                values = tuple(float(row[str(column)]) for column in COLUMNS)
                yield (trace_name(Path(row["workload"])), policy, int(row["seed"])), values
            except ValueError as error:
                raise TraceError(f"{path}: {row['workload']}, {row['sc_policy']}: {error}") from error
