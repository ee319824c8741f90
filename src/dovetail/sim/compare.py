"""Many runs: policies × seeds × traces, on all cores. Results are kept on disk between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from dovetail.sim.executors import executor_on
from dovetail.sim.orders import Orders
from dovetail.sim.profiles import profile_of
from dovetail.sim.regime import Regime
from dovetail.sim.results import Result
from dovetail.sim.results_cache import ResultsCache
from dovetail.sim.runs import (
    COMPILED,
    GENERATED,
    INFLATION,
    INTERPRETED,
    RunTask,
    Setting,
    Stage,
    can_compile,
    digest_of,
    is_warm,
    key_of,
    settled,
    warm_up,
)
from dovetail.sim.trace import Trace, TraceError


class TraceCase:
    """A trace to replay: read from files, with or without published orders, or a recipe to generate one per seed."""

    def __init__(self, stage: Stage, orders: Orders | None = None) -> None:
        self.stage, self.orders = stage, orders
        self._digest = digest_of(stage)

    @property
    def name(self) -> str:
        return self.stage.name if isinstance(self.stage, Trace) else GENERATED

    def under(self, seed: int) -> tuple[str, Stage]:
        """The digest and the stage for this seed. A recipe makes a different workload for each seed."""
        if isinstance(self.stage, Trace):
            return self._digest, self.stage
        sown = replace(self.stage, workload=replace(self.stage.workload, seed=seed))
        return digest_of(sown), sown


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All runs of a comparison, seed by seed: after an interruption, the finished seeds can still be compared."""

    tasks: Sequence[RunTask]
    stages: Mapping[str, Stage]  # digest -> stage


def plan(
    cases: Sequence[TraceCase],
    policies: Sequence[str],
    seeds: Sequence[int],
    setting: Setting,
    regimes: Sequence[Regime] = (),
) -> RunPlan:
    """The runs to make: every policy under every regime; without regimes, that of the setting.

    Raises TraceError, before the first run, if one of them is impossible.
    """
    for policy in policies:
        profile_of(policy)
    names = [case.name for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise TraceError(f"two traces are called {name!r}, and their results could not be told apart; rename one")
    tasks: list[RunTask] = []
    stages: dict[str, Stage] = {}
    for case in cases:
        for seed in seeds:
            digest, stage = case.under(seed)
            stages[digest] = stage
            settle, order = settled(setting, stage), None
            if case.orders is not None and setting.mode == INFLATION and isinstance(stage, Trace):
                order = case.orders.order(seed, stage)
            settings = [replace(settle, regime=regime) for regime in regimes] or [settle]
            tasks += [RunTask(digest, case.name, policy, seed, one, order) for policy in policies for one in settings]
    return RunPlan(tasks, stages)


@dataclass(slots=True)
class RunResults:
    """The results so far. `results` is in the order of the plan, not in the order in which runs finished."""

    plan: RunPlan
    found: dict[int, Result] = field(default_factory=dict)  # index of the task in the plan -> result
    remembered: int = 0  # how many of them came from the cache

    @property
    def results(self) -> list[Result]:
        return [self.found[at] for at in sorted(self.found)]

    def stages_of(self, tasks: Sequence[RunTask]) -> dict[str, Stage]:
        return {task.stage: self.plan.stages[task.stage] for task in tasks}

    @property
    def missing(self) -> list[RunTask]:
        return [task for at, task in enumerate(self.plan.tasks) if at not in self.found]


Say = Callable[[str, int, int], None]  # (activity, steps done, steps in total)


def run_all(
    findings: RunResults,
    say: Say,
    *,
    on: str | None = None,
    workers: int | None = None,
    cache: ResultsCache | None = None,
) -> None:
    """Add results to `findings` as runs finish, so that an interruption keeps them."""
    keys = {id(task): key_of(task) for task in findings.plan.tasks} if cache else {}
    if cache is not None:
        recall(findings, cache, keys)
    missing = findings.missing
    if not missing:
        return
    executor = executor_on(on, workers, len(missing))
    if executor.local:
        compile_all(missing, say)
    sent = missing if can_compile() else [interpreted(task) for task in missing]
    planned = {id(task): one for task, one in zip(sent, missing, strict=True)}
    place = {id(task): at for at, task in enumerate(findings.plan.tasks)}
    say("Replaying", 0, len(missing))
    with closing(executor.results(sent, findings.stages_of(missing))) as results:
        for count, (task, result) in enumerate(results, 1):
            one = id(planned[id(task)])
            findings.found[place[one]] = result
            if cache is not None:
                cache.put(keys[one], result)
            say("Replaying", count, len(missing))


def recall(findings: RunResults, cache: ResultsCache, keys: Mapping[int, str]) -> None:
    cache.forget_old()
    for at, task in enumerate(findings.plan.tasks):
        result = cache.get(keys[id(task)])
        if result is not None:
            findings.found[at] = result
    findings.remembered = len(findings.found)


def compile_all(tasks: Sequence[RunTask], say: Say) -> None:
    """Compile the kernel of each policy once, before the workers read it from disk."""
    wanted = {task.policy: task.setting for task in tasks if task.setting.engine == COMPILED}
    cold = [(policy, setting) for policy, setting in wanted.items() if not is_warm(policy, setting)]
    for count, (policy, setting) in enumerate(cold):
        say(f"Compiling the kernel for {policy}, once", count, len(cold))
        warm_up(policy, setting)


def interpreted(task: RunTask) -> RunTask:
    """The same run without numba.

    This process could not compile and has reported it; workers need not report it again.
    """
    return replace(task, setting=replace(task.setting, engine=INTERPRETED))


def order_file(pattern: Path, trace: str) -> Path:
    """The path of a trace's order file: fills in the pattern `openb_order_{trace}.npz`."""
    return Path(str(pattern).replace("{trace}", trace))
