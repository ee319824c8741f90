"""A trace: machines, and jobs that arrive and run for a time. All loaders and the generator produce these classes."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.model.units import WHOLE_CARD


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster on which a trace is replayed."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    model: str = ""
    gpu_memory_mib: int = 0  # of each GPU; 0 = not known, and then no job asks for it
    block: str = ""  # its block of racks
    rack: str = ""  # "" = none


@dataclass(frozen=True, slots=True)
class Job:
    """One or more equal pods. Requests are per pod, and for GPUs per GPU."""

    name: str
    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_milli: int = 0  # compute of each GPU; 1000 = a whole GPU, 0 = no claim
    gpu_memory_mib: int = 0  # of each GPU; 0 = no claim
    models: tuple[str, ...] = ()  # GPU models it accepts; () = any
    arrival: float = 0.0  # seconds since the trace began
    duration: float | None = None  # seconds it runs; None = it has no end
    priority: int = 0
    pods: int = 1  # gang size: all of them run, or none
    tenant: str = ""
    gang: str = ""  # jobs with the same name here are the roles of one gang: they arrive and start together
    required: str = ""  # block, rack or host: all pods in one of them; "" = anywhere
    preferred: str = ""  # likewise: in as few of them as possible
    least_racks: int = 0  # pods in at least so many racks
    most_per_node: int = 0  # so many pods on one node at most; 0 = any number

    @property
    def gpu_demand_milli(self) -> int:
        """Compute that all its pods ask for. `demand.Demand` also considers memory."""
        return self.pods * self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Trace:
    """Machines and jobs; `jobs` are in order of arrival."""

    name: str
    machines: tuple[Machine, ...]
    jobs: tuple[Job, ...]

    @property
    def gpu_capacity_milli(self) -> int:
        return sum(machine.gpus for machine in self.machines) * WHOLE_CARD


class TraceError(ValueError):
    """A trace that cannot be read or run: one line per problem, with file and line where they are known."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
