"""The order of arrivals and of nodes in ties: the two draws of an experiment of the FGD paper (Weng et al., ATC'23).

Orders are read from a file of published draws, or drawn here by the same protocol with our own generator. Indices count
jobs and machines sorted by name, whatever their order in the trace.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from dovetail import files
from dovetail.model.units import WHOLE_CARD
from dovetail.sim.chance import Chance
from dovetail.sim.demand import Demand
from dovetail.sim.pod_names import CopyNames
from dovetail.sim.trace import Job, Machine, Trace, TraceError

RATIO = 1.3  # demand of all arrivals / GPU capacity, as in the paper
MOST_ARRIVALS = 5_000_000
MAX_ARRAY_BYTES = 8 * MOST_ARRIVALS + 2**16  # unpacked, with numpy's header: a small .npz can unpack to gigabytes
Indices = npt.NDArray[np.int64]

_by_name = attrgetter("name")
_UNREADABLE = (OSError, ValueError, EOFError, KeyError, NotImplementedError, MemoryError, BadZipFile, zlib.error)


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The order of arrivals, and of nodes in ties, for one run."""

    seed: int
    arrivals: Indices  # indices of the jobs sorted by name; a repeated index is a copy
    nodes: Indices  # indices of the machines sorted by name; of equally good nodes the first one is taken

    def jobs(self, trace: Trace) -> Iterator[Job]:
        """Jobs in order of arrival. The second arrival of a job is a copy called NAME-copy-2, and so on."""
        named, copies = sorted(trace.jobs, key=_by_name), CopyNames(trace.jobs)
        seen: set[int] = set()
        for index in self.arrivals.tolist():
            job = named[index]
            yield replace(job, name=copies.next(job)) if index in seen else job
            seen.add(index)

    def machines(self, trace: Trace) -> list[Machine]:
        """Machines in tie-break order."""
        named = sorted(trace.machines, key=_by_name)
        return [named[index] for index in self.nodes.tolist()]


@dataclass(frozen=True, slots=True)
class Orders:
    """A file `openb_order_TRACE.npz` with the arrays arrivals_SEED and nodes_SEED."""

    path: Path
    seeds: tuple[int, ...]

    @classmethod
    def open(cls, path: Path) -> Orders:
        names = set(_names(path))
        seeds = sorted(int(name[9:]) for name in names if name.startswith("arrivals_") and name[9:].isdecimal())
        both = tuple(seed for seed in seeds if f"nodes_{seed}" in names)
        if not both:
            raise TraceError(f"{path}: holds no orders; it needs arrays called arrivals_SEED and nodes_SEED")
        return cls(path, both)

    def order(self, seed: int, trace: Trace) -> Order:
        """The order of one seed, checked against its trace."""
        if seed not in self.seeds:
            there = ", ".join(map(str, self.seeds))
            raise TraceError(f"{self.path}: has no order for seed {seed}; there are {there}")
        arrivals = self._indices(f"arrivals_{seed}", len(trace.jobs), "jobs")
        if not len(arrivals):
            raise TraceError(f"{self.path}: arrivals_{seed} is empty; write at least one job")
        nodes = self._indices(f"nodes_{seed}", len(trace.machines), "machines")
        if len(nodes) != len(trace.machines) or len(np.unique(nodes)) != len(nodes):
            raise TraceError(
                f"{self.path}: nodes_{seed} does not name each of the {len(trace.machines):,} machines once; "
                "take the node list that the order was drawn for"
            )
        return Order(seed, arrivals, nodes)

    def _indices(self, name: str, count: int, what: str) -> Indices:
        array = _array(self.path, name)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise TraceError(f"{self.path}: {name} is not a list of whole numbers")
        indices = array.astype(np.int64)
        wrong = np.flatnonzero((indices < 0) | (indices >= count))
        if len(wrong):
            raise TraceError(
                f"{self.path}: {name}[{wrong[0]}] is {indices[wrong[0]]}, but the trace has {count:,} {what} "
                f"(0 to {count - 1}); take the lists that the order was drawn for"
            )
        return indices


def _names(path: Path) -> list[str]:
    try:
        with files.open_input(path) as raw, np.load(raw, allow_pickle=False) as file:
            return list(file.files)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: there is no such file") from error
    except (*_UNREADABLE, AttributeError, TypeError) as error:  # the last two: a single array instead of an archive
        raise TraceError(f"{path}: cannot be read as a file of orders (.npz): {_reason(error)}") from error


def _array(path: Path, name: str) -> npt.NDArray[np.generic]:
    try:
        with files.open_input(path) as raw, np.load(raw, allow_pickle=False) as file:
            size = file.zip.getinfo(f"{name}.npy").file_size  # zipfile unpacks at most this much
            if size > MAX_ARRAY_BYTES:
                raise ValueError(f"it holds {size:,} bytes once unpacked, more than {MAX_ARRAY_BYTES:,}")
            array = np.asarray(file[name])
    except _UNREADABLE as error:
        raise TraceError(f"{path}: {name} cannot be read: {_reason(error)}") from error
    if array.size > MOST_ARRIVALS:
        raise TraceError(f"{path}: {name} has {array.size:,} entries, more than {MOST_ARRIVALS:,}")
    return array


def _reason(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__).splitlines()[0][:200]


def draw_order(trace: Trace, seed: int, ratio: float = RATIO) -> Order:
    """An order by the paper's protocol: shuffled jobs, with a total demand of `ratio` times the GPU capacity.

    If the demand is too low, copies of uniformly drawn jobs are added at the end, unshuffled. If it is too high,
    uniformly drawn jobs are removed.
    """
    if not 0 < ratio <= 100:
        raise TraceError(f"ratio {ratio} is not a number above 0 and up to 100")
    chance = Chance(seed)
    jobs = sorted(trace.jobs, key=_by_name)
    cap = ratio * trace.gpu_capacity_milli
    asks = Demand(trace.machines)
    demand = [asks.of(job) for job in jobs]
    arrivals = chance.permutation(len(jobs))
    if sum(demand) < cap:
        arrivals += _copies(chance, demand, [asks.share(job) if job.gpus else 0 for job in jobs], cap)
    else:
        _remove(chance, arrivals, demand, cap)
    if not arrivals:
        raise TraceError(
            f"{trace.name}: jobs were removed until they asked for no more than {ratio:g} times the "
            f"{trace.gpu_capacity_milli // WHOLE_CARD:,} GPUs, and none is left: the last asked for more at once; "
            "raise --ratio, or take a bigger cluster"
        )
    nodes = chance.permutation(len(trace.machines))
    return Order(seed, np.array(arrivals, np.int64), np.array(nodes, np.int64))


def _copies(chance: Chance, demand: list[int], of_one_gpu: list[int], cap: float) -> list[int]:
    """Copies, until the next would exceed the cap.

    The next one counts with one of its GPUs only, as in the paper's simulator.
    """
    total = sum(demand)
    if not total:
        return []  # no job asks for GPUs, so copies cannot help
    expected = (cap - total) / (total / len(demand))
    if expected > MOST_ARRIVALS:
        raise TraceError(f"the jobs ask for so little that {expected:,.0f} copies would be needed; add jobs")
    copies: list[int] = []
    while True:
        index = chance.below(len(demand))
        if total + of_one_gpu[index] > cap:
            return copies
        copies.append(index)
        total += demand[index]


def _remove(chance: Chance, arrivals: list[int], demand: list[int], cap: float) -> None:
    total = sum(demand)
    while total > cap:
        total -= demand[arrivals.pop(chance.below(len(arrivals)))]
