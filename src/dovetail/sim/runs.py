"""One run as a value: what is replayed and how. It can be sent to another process, and its result can be cached."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec

from dovetail import kernel_cache
from dovetail.engine.kernel.build import builder
from dovetail.engine.scheduler import COMPILE_FROM
from dovetail.sim.clusters import parse_cluster
from dovetail.sim.generate import generate
from dovetail.sim.inflation import Progress
from dovetail.sim.inflation import replay as inflate
from dovetail.sim.lives import Costs
from dovetail.sim.orders import RATIO, Order, draw_order
from dovetail.sim.regime import DEFAULT_REGIME, Regime
from dovetail.sim.results import Result
from dovetail.sim.speed import NO_MODEL, speed_model
from dovetail.sim.trace import Job, Machine, Trace
from dovetail.sim.variants import compressed
from dovetail.sim.workload import DEFAULT_CLUSTER, WorkloadParameters

GENERATED = "generated"
INFLATION, TIME = "inflation", "time"
COMPILED, INTERPRETED = "compiled", "interpreted"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A trace that is generated in the process that needs it."""

    workload: WorkloadParameters
    cluster: str = DEFAULT_CLUSTER
    compress: float = 1.0


Stage = Trace | Recipe


@dataclass(frozen=True, slots=True)
class Setting:
    """How traces are replayed; the same for all runs of a comparison."""

    mode: str = INFLATION
    queue: str = "backfill"  # in time mode
    told: bool = True  # policies are given the typical pods of the trace; otherwise they learn them
    ratio: float = RATIO  # for orders that are drawn
    engine: str = "auto"
    speed: str = NO_MODEL.name  # in time mode, a row of sim/speed.py
    restart_cost: float = 0.0  # in time mode: seconds for which a job that is resumed, moved or resized does no work
    regime: Regime = DEFAULT_REGIME  # in time mode


@dataclass(frozen=True, slots=True, eq=False)
class RunTask:
    """One policy on one stage with one seed. Without `order`, one is drawn."""

    stage: str  # digest
    trace: str  # name
    policy: str
    seed: int
    setting: Setting  # its engine is not `auto`
    order: Order | None = None


def trace_of(stage: Stage) -> Trace:
    """The trace of a stage.

    Generated traces have the same name for all seeds: they are samples of one workload.
    """
    if isinstance(stage, Trace):
        return stage
    made = generate(stage.workload, parse_cluster(stage.cluster))
    return compressed(replace(made, name=GENERATED), stage.compress)


def run(task: RunTask, stage: Stage, progress: Progress | None = None) -> Result:
    if task.setting.engine == COMPILED:
        warm_up(task.policy, task.setting)
    return _replay(trace_of(stage), task, progress)


def _replay(trace: Trace, task: RunTask, progress: Progress | None) -> Result:
    setting = task.setting
    if setting.mode == TIME:
        from dovetail.sim.timeline import replay as run_in_time

        regime = setting.regime
        timed = run_in_time(
            trace,
            task.policy,
            task.seed,
            setting.queue,
            setting.told,
            setting.engine,
            progress,
            speed=speed_model(setting.speed),
            costs=Costs(start=setting.restart_cost, move=setting.restart_cost),
            rights=regime.rights(setting.queue),
            queues=regime.tree,
        )
        told = {"order": regime.order, "preemption": regime.preemption, "queues": regime.queues_name}
        return msgspec.structs.replace(timed, **told)
    order = draw_order(trace, task.seed, setting.ratio) if task.order is None else task.order
    return inflate(trace, order, task.policy, setting.told, setting.engine, progress)


def settled(setting: Setting, stage: Stage) -> Setting:
    """The setting with `auto` replaced by an engine.

    Interpreted if the run would be over before numba is imported, else compiled.
    """
    if setting.engine != "auto":
        return setting
    if isinstance(stage, Trace):
        work = len(stage.jobs) * len(stage.machines)
    else:
        work = stage.workload.jobs * len(parse_cluster(stage.cluster))
    return replace(setting, engine=COMPILED if work >= COMPILE_FROM else INTERPRETED)


WARM_UP = Trace(
    "warm-up",
    (Machine("a", 8000, 8192, 2, "T4", 15360), Machine("b", 8000, 8192, 1, "A10", 23028)),
    tuple(Job(f"job-{n}", 1000, 1024, 1, 500, arrival=float(n), duration=2.5) for n in range(5)),
)


@cache
def warm_up(policy: str, setting: Setting) -> None:
    """Compile what the policy needs, or read it from disk; once per process, so that no run's speed includes it."""
    kernel_cache.prepare_for_now()
    _replay(WARM_UP, RunTask("", WARM_UP.name, policy, 0, setting), None)
    if can_compile():
        kernel_cache.remember(_mark(policy, setting))


def can_compile() -> bool:
    """False if this process tried to compile, failed, and interprets instead."""
    return not builder(True, True).trouble


def is_warm(policy: str, setting: Setting) -> bool:
    """True if an earlier run left on disk what `warm_up` would compile."""
    return kernel_cache.prepare() and kernel_cache.is_warm(_mark(policy, setting))


def _mark(policy: str, setting: Setting) -> str:
    return f"replay {setting.mode} {policy}"


def digest_of(stage: Stage) -> str:
    """A hash of everything in the stage, including names."""
    kind = type(stage).__name__
    return hashlib.sha256(msgspec.msgpack.encode([kind, stage])).hexdigest()


def key_of(task: RunTask) -> str:
    """A hash that is equal for runs that must give the same result, with the current sources."""
    order: list[object] = []
    if task.order is not None:
        order = [task.order.arrivals.tobytes(), task.order.nodes.tobytes()]
    parts = [fingerprint(), task.stage, task.trace, task.policy, task.seed, task.setting, order]
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


@cache
def fingerprint() -> str:
    """A hash that changes with every source file that a result depends on."""
    digest = hashlib.sha256(kernel_cache.fingerprint().encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
