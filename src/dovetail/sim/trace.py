"""What is replayed: machines, and jobs that arrive and run for a while. Every loader and the generator make these."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE = 1000  # milli of one GPU


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster that a trace is replayed on."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    model: str = ""
    gpu_memory_mib: int = 0  # of each GPU; 0 = not known, and no job asks for it


@dataclass(frozen=True, slots=True)
class Job:
    """One or more equal pods. What is asked for is per pod, and of GPUs per GPU."""

    name: str
    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_milli: int = 0  # compute of each GPU; 1000 = the GPU for itself, 0 = no claim
    gpu_memory_mib: int = 0  # of each GPU; 0 = no claim
    models: tuple[str, ...] = ()  # GPU models it accepts; () = any
    arrival: float = 0.0  # seconds since the trace began
    duration: float | None = None  # seconds it runs; None = it stays
    priority: int = 0
    pods: int = 1  # gang size: all of them run, or none
    tenant: str = ""

    @property
    def gpu_demand_milli(self) -> int:
        """Compute, of all its pods; with memory, `demand.Demand`."""
        return self.pods * self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Trace:
    """`jobs` in order of arrival."""

    name: str
    machines: tuple[Machine, ...]
    jobs: tuple[Job, ...]

    @property
    def gpu_capacity_milli(self) -> int:
        return sum(machine.gpus for machine in self.machines) * WHOLE


class TraceError(ValueError):
    """A trace that cannot be read: one line per thing that is wrong, each naming file and line."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
