"""Reads manifests and makes plans for `plan`, `explain` and `demo`, with all problems of the input."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from dovetail import kernel_cache
from dovetail.cli.errors import ALL_PLACED, BAD_INPUT, SOMETHING_PENDING, Refused
from dovetail.cli.options import ClusterOptions
from dovetail.cli.output.terminal import tell_unused_folders
from dovetail.cli.settings import settle, with_vendors
from dovetail.cli.sources import GatheredInput, clock, gather
from dovetail.engine.kernel.build import builder
from dovetail.engine.kernel.collector import collector_off
from dovetail.kube.conversion import cluster
from dovetail.kube.conversion.cluster import ClusterInput
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files.decode import NotPlaced
from dovetail.kube.objects.problems import InputError, Problem, Problems
from dovetail.model.events import Warn
from dovetail.model.reason import Reason
from dovetail.policies.titles import policy_title
from dovetail.policies.yielding import YIELD_BY_PRIORITY
from dovetail.whatif import plan as whatif
from dovetail.whatif.plan import Plan
from dovetail.whatif.situation import EngineOptions, compiled_profiles

MOST_COMPLAINTS = 20
COMPILE_SECONDS = 15  # per kernel, measured on two cores


@dataclass(frozen=True, slots=True)
class Case:
    """The input: a cluster, the pods to place on it, and how to run policies."""

    given: ClusterInput
    arguments: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # policy name -> its arguments
    engine: str = "auto"
    config: str = ""  # the file of the arguments, for error messages
    device_resources: tuple[str, ...] = ()  # counted by cards, not by the node's allocatable
    existing: frozenset[str] = frozenset()  # uids of pods that the API server has accepted
    preempts: bool = True  # running pods may be stopped for others
    minimum_run: float = 0.0  # seconds that a pod runs before it may be stopped
    now: float = 0.0  # seconds since the epoch

    @property
    def options(self) -> EngineOptions:
        yielding = YIELD_BY_PRIORITY if self.preempts else None
        return EngineOptions(
            self.arguments,
            self.engine,
            self.device_resources,
            yielding=yielding,
            minimum_run=self.minimum_run,
            now=self.now,
        )


@dataclass(frozen=True, slots=True)
class PlanReport(Plan):
    """A plan, and the problems of the input."""

    problems: tuple[Problem, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)  # kind -> how many
    not_placed: tuple[NotPlaced, ...] = ()  # objects that make pods, where these pods are not in the plan
    existing: frozenset[str] = frozenset()  # as in Case

    def said(self, severity: str) -> list[str]:
        return of_severity(self.problems, severity)


def of_severity(problems: Sequence[Problem], severity: str) -> list[str]:
    return [str(problem) for problem in problems if problem.severity == severity]


def beyond_notes(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """The errors and warnings, for commands that have no place for notes."""
    return tuple(problem for problem in problems if problem.severity != "note")


def read(asked: ClusterOptions, stdin: IO[bytes] | None = None) -> Case:
    """Read everything that the command line names. Raises Refused with all problems at once."""
    return read_sources(asked, lambda settings, problems: gather(asked, settings, problems, stdin or sys.stdin.buffer))[
        0
    ]


@collector_off()
def read_sources(
    asked: ClusterOptions, sources: Callable[[Settings, Problems], GatheredInput]
) -> tuple[Case, GatheredInput]:
    """As `read`, with the documents."""
    problems = Problems(asked.strict)
    config, settings = settle(asked, problems)
    try:
        settings = with_vendors(settings, asked.device_config or config.device_config, problems)
        input_ = sources(settings, problems)
        if not input_.documents and not input_.complete:
            problems.stop_if_fatal()
            raise Refused("the input holds no objects:", *_complaints(map(str, problems.found())))
        settings = input_.settings(settings)
        given = cluster.load(input_.documents, settings, problems, everything=input_.complete)
    except InputError as error:
        raise _refused(error) from error
    found = input_.documents
    counted = tuple(settings.vendors.by_count)
    pods = {document.where: document.uid for document in found if document.kind == "Pod" and document.uid}
    if not asked.strict:
        given = dataclasses.replace(given, problems=tuple(_demoted(problem, pods) for problem in given.problems))
    case = Case(
        given,
        config.policy_arguments,
        asked.engine,
        asked.config or "",
        counted,
        frozenset(pods.values()),
        asked.preemption and config.preemption.enabled,
        config.preemption.minimum_run_seconds,
        clock() if input_.taken is None else input_.taken,
    )
    return case, input_


def _demoted(problem: Problem, existing: Collection[str]) -> Problem:
    """A wrong pod that exists already is a fact of the cluster, and no mistake in what is planned."""
    return (
        problem._replace(severity="warning") if problem.severity == "error" and problem.where in existing else problem
    )


def runnable(case: Case) -> EngineOptions:
    """The engine's options. Compiled kernels are kept on disk if possible."""
    cache = case.engine != "interpreted" and kernel_cache.prepare()
    tell_unused_folders()
    return dataclasses.replace(case.options, cache=cache)


def refused_arguments(case: Case, error: ValueError) -> Refused:
    """The error for a wrong policy argument, with the file of the configuration."""
    return Refused(f"{case.config}: {error}" if case.config else str(error))


def warned(case: Case, warnings: Sequence[Warn]) -> tuple[Problem, ...]:
    """The problems of the input, and the engine's warnings about running pods."""
    return (*case.given.problems, *(Problem("warning", each.subject, "", each.message) for each in warnings))


def kernels(case: Case) -> list[str]:
    """`binpack × spread` for every profile that will run compiled."""
    return sorted({policy_title(profile) for profile in compiled_profiles(case.given, case.options)})


def activity(case: Case) -> str:
    """What takes the time, for the progress line: placing, or compiling kernels that no earlier run has compiled."""
    wanted = kernels(case)
    if wanted and kernel_cache.prepare():
        wanted = [kernel for kernel in wanted if not kernel_cache.is_warm(kernel)]
    if not wanted:
        return "Placing"
    what = f"the kernel for {wanted[0]}" if len(wanted) == 1 else f"{len(wanted)} kernels"
    return f"Compiling {what}, once: about {COMPILE_SECONDS * len(wanted)} s"


@collector_off()
def plan(case: Case) -> PlanReport:
    """Place all pods, in the order of the groups, and find what each pending pod lacks at the end."""
    options = runnable(case)
    try:
        made = whatif.plan(case.given, options)
    except ValueError as error:
        raise refused_arguments(case, error) from error
    for kernel in kernels(case):
        if not builder(True, options.cache).trouble:
            kernel_cache.remember(kernel)
    given = case.given
    return PlanReport(
        made.outcomes,
        made.before,
        made.after,
        made.warnings,
        made.evictions,
        warned(case, made.warnings),
        given.ignored,
        given.not_placed,
        case.existing,
    )


def exit_code(plan: PlanReport) -> int:
    invalid = (outcome.pod for outcome in plan.outcomes if outcome.decision.reason == Reason.INVALID_REQUEST)
    if any(pod.uid not in plan.existing for pod in invalid) or plan.said("error"):
        return BAD_INPUT
    return SOMETHING_PENDING if plan.pending or plan.not_placed else ALL_PLACED


def _refused(error: InputError) -> Refused:
    lines = _complaints(str(problem) for problem in error.problems if problem.severity == "error")
    return Refused(*lines or [str(error)])


def _complaints(said: Iterable[str]) -> list[str]:
    lines = list(said)
    if len(lines) > MOST_COMPLAINTS:
        lines = [*lines[:MOST_COMPLAINTS], f"and {len(lines) - MOST_COMPLAINTS:,} more like these"]
    return lines
