"""The parameters of generated workloads and their defaults. Imports nothing heavy: `generate --help` shows them.

The defaults follow the openb trace: 13 % of its jobs have no GPU, 38 % share one, 48 % have a whole one and 1 %
several. The logarithm of the duration has a deviation of 1.9. The median of 485 s is raised and durations are limited
to a day, so that 5,000 jobs keep the default cluster busy for about a day.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from dovetail.sim.trace import TraceError

DEFAULT_CLUSTER = "24xA100-SXM4-80GB:8,16xV100M32:8,8xA10:4,16xT4:4"
DAY = 86_400
MOST_JOBS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadParameters:
    """Parameters of a workload. Shares are fractions of 1; jobs that no share covers ask for one whole GPU."""

    jobs: int = 5_000
    seed: int = 0
    load: float = 1.0  # GPU-hours asked for / GPU-hours the cluster has while jobs arrive
    cpu_only: float = 0.13  # share of all jobs
    share: float = 0.38  # likewise: a part of one GPU
    multi_gpu: float = 0.01  # likewise: 2, 4 or 8 GPUs in one pod
    gangs: float = 0.02  # share of the jobs with whole GPUs: 2 to 8 pods, of which all run or none
    one_rack: float = 0.0  # share of the gangs: all pods must be in one rack
    constrained: float = 0.1  # share of the GPU jobs: they name the models they accept
    gpu_memory: float = 0.5  # share of the jobs with a part of a GPU: they also ask for GPU memory
    median_seconds: float = 1_800.0  # half of the jobs are shorter
    sigma: float = 1.9  # deviation of the logarithm of the duration: 0 = all equal
    longest_seconds: float = float(DAY)
    rhythm: float = 0.5  # 0 = as many arrivals by night as by day, 1 = none in the early morning
    bursts: float = 0.2  # share of the jobs that arrive in bursts of similar jobs, such as parameter sweeps
    burst_size: float = 10.0  # jobs in a burst, on average
    tenants: int = 4  # the first has the most jobs; each prefers other kinds of jobs
    urgent: float = 0.05  # share of all jobs: priority 100
    impossible: float = 0.0  # share of all jobs: they ask for more GPUs than any machine has

    def __post_init__(self) -> None:
        wrong = [f"{name}: {value} is not {expected}" for name, value, expected in self._wrong()]
        if wrong:
            raise TraceError(*wrong)

    def _wrong(self) -> list[tuple[str, object, str]]:
        """Tuples of parameter, its value, and what it should be."""
        shares = [field.name for field in fields(self) if field.name in SHARE_FIELDS]
        found = [(name, getattr(self, name), "a share from 0 to 1") for name in shares]
        wrong: list[tuple[str, object, str]] = [entry for entry in found if not 0 <= entry[1] <= 1]
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                wrong.append((name, value, f"a number from {low:g} to {high:,.10g}"))
        together = self.cpu_only + self.share + self.multi_gpu
        if together > 1 + 1e-9:
            wrong.append(("cpu_only + share + multi_gpu", f"{together:g}", "at most 1"))
        return wrong


SHARE_FIELDS = frozenset(
    (
        "cpu_only",
        "share",
        "multi_gpu",
        "gangs",
        "one_rack",
        "constrained",
        "gpu_memory",
        "rhythm",
        "bursts",
        "urgent",
        "impossible",
    )
)
RANGES: dict[str, tuple[float, float]] = {
    "jobs": (1, MOST_JOBS),
    "seed": (0, 2**32 - 1),
    "load": (0.001, 1000),
    "median_seconds": (0.001, 1e9),
    "sigma": (0, 10),
    "longest_seconds": (0.001, 1e9),
    "burst_size": (2, 10_000),
    "tenants": (1, 1000),
}
