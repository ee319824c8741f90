"""A trace's cluster, empty, with a scheduler that is ready for the trace's jobs."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.scheduler import DEFAULT_RIGHTS, Rights, Scheduler
from dovetail.model.events import NodeChanged
from dovetail.model.pod import Pod
from dovetail.sim import cast
from dovetail.sim.profiles import profile_of
from dovetail.sim.trace import Machine, Trace


def stage(
    trace: Trace, machines: Sequence[Machine], policy: str, told: bool, mode: str, rights: Rights = DEFAULT_RIGHTS
) -> Scheduler:
    """`told`: policies that prepare for typical pods are given those of the trace, else they learn."""
    scheduler = Scheduler(mode=mode, cache=True, rights=rights)
    for node in cast.nodes_of(machines):
        scheduler.handle(NodeChanged(0.0, node))
    if told:
        scheduler.outlook.expect(expected(trace, policy))
        scheduler.kernel(profile_of(policy))  # lays out what the policy looks up, so that no decision waits for it
    return scheduler


def expected(trace: Trace, policy: str) -> list[tuple[Pod, int]]:
    """The trace's typical pods."""
    profile = profile_of(policy)
    return [(cast.pod_of(job, profile, job.name), times) for job, times in cast.typical(trace.jobs)]
