"""The published curves of the FGD paper's experiments, with the traces and orders to compare them with.

A folder has a list of nodes, and lists of pods with an order each. Its subfolder expected/ has the two tables of the
paper's analysis: a row per workload, policy and seed, and a column per percent that had arrived.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail import files
from dovetail.sim.load import POD_LIST, load_trace, trace_name
from dovetail.sim.openb import is_node_list, is_pod_list
from dovetail.sim.orders import Orders
from dovetail.sim.trace import Trace, TraceError

NODE_LIST, ORDER = "openb_node_list", "openb_order_"
WITH_GPUS = "gpu_node"  # preferred if there are several node lists: the paper uses the machines with GPUs
ALLOCATED_FILE, FRAGMENTED_FILE = "expected/analysis_allo_discrete.csv", "expected/analysis_frag_discrete.csv"
TUNE = 1.3
COLUMNS = range(131)
POLICY_OF_PUBLISHED = {  # published name -> ours
    "01-Random": "random",
    "02-DotProd": "dot-product",
    "03-GpuClustering": "gpu-clustering",
    "04-GpuPacking": "gpu-packing",
    "05-BestFit": "best-fit",
    "06-FGD": "fgd",
}


@dataclass(frozen=True, slots=True)
class PublishedCurves:
    """Published curves in percent of all GPU capacity, by arrived percent."""

    allocated: tuple[float, ...]
    fragmented: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A trace with its orders, and the curves that were published for it."""

    trace: Trace
    orders: Orders
    curves: Mapping[tuple[str, int], PublishedCurves]  # our policy, seed

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for _, seed in self.curves})


def experiments(folder: Path) -> tuple[list[Experiment], list[str]]:
    """The experiments with pods, an order and published rows, and a message for each list of pods that lacks one.

    Raises TraceError if there is no experiment, or if a file is wrong.
    """
    nodes = _node_list(folder)
    for name in (ALLOCATED_FILE, FRAGMENTED_FILE):
        if not (folder / name).is_file():
            raise _missing(folder / name)
    allocated, fragmented = dict(_rows(folder / ALLOCATED_FILE)), dict(_rows(folder / FRAGMENTED_FILE))
    found, lacking = [], []
    for pods, order in _pod_lists(folder).items():
        if order is None:
            lacking.append(f"{pods}: has no order and is left aside; call it {ORDER}{trace_name(pods)}.npz")
            continue
        orders = Orders.open(order)
        curves = {
            (policy, seed): PublishedCurves(values, fragmented[key])
            for key, values in allocated.items()
            if key in fragmented
            for workload, policy, seed in (key,)
            if workload == trace_name(pods) and seed in orders.seeds
        }
        if curves:
            found.append(Experiment(load_trace(nodes, pods)[0], orders, curves))
        else:
            lacking.append(f"{pods}: nothing is published about it under the seeds of {order.name}; it is left aside")
    if not found:
        raise TraceError(f"{folder}: no trace has pods, an order and published curves", *lacking)
    return found, lacking


def _node_list(folder: Path) -> Path:
    lists = [path for path in _tables(folder) if path.name.startswith(NODE_LIST)]
    preferred = [path for path in lists if WITH_GPUS in path.name] or lists
    if not preferred:
        raise _missing(folder / f"{NODE_LIST}_{WITH_GPUS}.csv")
    if len(preferred) > 1:
        names = ", ".join(path.name for path in preferred)
        raise TraceError(f"{folder}: which machines? there are {names}; leave one of them")
    return preferred[0]


def _missing(path: Path) -> TraceError:
    return TraceError(f"{path}: is missing; say where the data is: make repro DATA=folder")


def _pod_lists(folder: Path) -> dict[Path, Path | None]:
    """The lists of pods, with their orders or None.

    A table with other columns counts only if an order has its name.
    """
    orders = {_ordered(path): path for path in sorted(folder.glob("*.npz"), key=_by_prefix)}
    found: dict[Path, Path | None] = {}
    for path in _tables(folder):
        order = orders.get(trace_name(path))
        is_named = path.name.startswith(POD_LIST) or is_pod_list(path)
        if is_named or (order is not None and not is_node_list(path)):
            found[path] = order
    return found


def _tables(folder: Path) -> list[Path]:
    """The CSV files of the folder. A file beside its own .gz counts once."""
    plain = sorted(folder.glob("*.csv"))
    return plain + [path for path in sorted(folder.glob("*.csv.gz")) if path.with_suffix("") not in plain]


def _ordered(path: Path) -> str:
    """The trace of an order file: `default` for openb_order_default.npz, `mine` for mine.npz."""
    return path.stem.removeprefix(ORDER)


def _by_prefix(path: Path) -> bool:
    """Sort key: orders with the full name come last, and so win over others for the same trace."""
    return path.name.startswith(ORDER)


Key = tuple[str, str, int]  # trace, our policy, seed


def _rows(path: Path) -> Iterator[tuple[Key, tuple[float, ...]]]:
    """The rows of known policies with the paper's ratio."""
    for line, row in _records(path):
        try:
            policy = POLICY_OF_PUBLISHED.get(row["sc_policy"])
            if policy is None or float(row["tune"]) != TUNE:
                continue
            values = tuple(float(row[str(column)]) for column in COLUMNS)
            yield (trace_name(Path(row["workload"])), policy, int(row["seed"])), values
        except ValueError as error:
            raise TraceError(f"{path}:{line}: {row['workload']}, {row['sc_policy']}: {error}") from error


def _records(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells of each row."""
    header: list[str] = []
    try:
        with io.TextIOWrapper(files.open_input(path), encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for cells in reader:
                place = f"{path}:{reader.line_num}"
                if not header:
                    header = _checked_header(cells, place)
                elif len(cells) not in (0, len(header)):
                    raise TraceError(f"{place}: has {len(cells)} cells, the header has {len(header)}")
                elif cells:
                    yield reader.line_num, dict(zip(header, cells, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    if not header:
        raise TraceError(f"{path}: is empty")


def _checked_header(cells: Sequence[str], place: str) -> list[str]:
    needed = ("workload", "sc_policy", "tune", "seed", *map(str, COLUMNS))
    if missing := [name for name in needed if name not in cells]:
        some = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise TraceError(f"{place}: the header lacks {some}; it needs {', '.join(needed[:5])} to {needed[-1]}")
    return list(cells)
