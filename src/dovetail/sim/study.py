"""Sorts results into studies: one trace in one mode, several policies, the same seeds for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dovetail.sim.results import Inflation, Result, Timed

R = TypeVar("R", Inflation, Timed)


@dataclass(frozen=True, slots=True)
class Study(Generic[R]):
    """A study. `runs` keeps the order of the policies in the results; seeds are sorted."""

    trace: str
    baseline: str
    runs: Mapping[str, Mapping[int, R]]  # policy -> seed -> result

    @property
    def policies(self) -> list[str]:
        return list(self.runs)

    @property
    def others(self) -> list[str]:
        """The policies that are compared with the baseline."""
        return [policy for policy in self.runs if policy != self.baseline]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for runs in self.runs.values() for seed in runs})

    @property
    def gpus(self) -> int:
        """The GPUs of the cluster, which is the same in every run."""
        return sum(model.gpus for model in self.first.models.values())

    @property
    def nodes(self) -> int:
        return len(self.first.map)

    @property
    def first(self) -> R:
        return first_seed(next(iter(self.runs.values())))


def first_seed(runs: Mapping[int, R]) -> R:
    """The run that represents its policy where only one can be shown."""
    return runs[min(runs)]


# What runs of one policy can differ in, in the words of a table.
RIGHTS: tuple[Callable[[Timed], str], ...] = (
    lambda run: run.queue,
    lambda run: f"order {run.order}",
    lambda run: "no preemption" if run.preemption == "none" else f"preemption {run.preemption}",
    lambda run: run.queues or "no queues",
)


def inflation_studies(results: Sequence[Result], baseline: str | None = None) -> list[Study[Inflation]]:
    """Studies by trace, in the order of the results. The baseline is the first policy unless it is given."""
    runs = [result for result in results if isinstance(result, Inflation)]
    return _studies([(result.policy, result) for result in runs], baseline)


def time_studies(results: Sequence[Result], baseline: str | None = None) -> list[Study[Timed]]:
    """Studies of time mode, likewise. If runs differ in their queue or rights, a policy appears once with each."""
    runs = [result for result in results if isinstance(result, Timed)]
    varied = [part for part in RIGHTS if len({part(run) for run in runs}) > 1]
    return _studies([(", ".join((run.policy, *(part(run) for part in varied))), run) for run in runs], baseline)


def _studies(labelled: Sequence[tuple[str, R]], baseline: str | None) -> list[Study[R]]:
    found: dict[str, dict[str, dict[int, R]]] = {}  # trace -> policy -> seed -> result
    for label, result in labelled:
        seeds = found.setdefault(result.trace, {}).setdefault(label, {})
        if result.seed in seeds:
            raise ValueError(f"two results for trace {result.trace}, policy {label}, seed {result.seed}")
        seeds[result.seed] = result
    return [Study(trace, _baseline(runs, baseline), _in_order(runs)) for trace, runs in found.items()]


def _baseline(runs: Mapping[str, Mapping[int, R]], wanted: str | None) -> str:
    """The run with this label or policy name; else the first one."""
    for label, seeds in runs.items():
        if wanted in (label, first_seed(seeds).policy):
            return label
    return next(iter(runs))


def _in_order(runs: Mapping[str, Mapping[int, R]]) -> dict[str, dict[int, R]]:
    return {policy: dict(sorted(seeds.items())) for policy, seeds in runs.items()}
