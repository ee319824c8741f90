"""Builds a trace's empty cluster, with a scheduler that is ready for the trace's jobs."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.scheduler import DEFAULT_RIGHTS, Rights, Scheduler
from dovetail.model.events import NodeChanged, TopologyChanged
from dovetail.model.pod import Pod
from dovetail.sim import cast
from dovetail.sim.profiles import profile_of
from dovetail.sim.racks import TOPOLOGY
from dovetail.sim.trace import Machine, Trace


def stage(
    trace: Trace, machines: Sequence[Machine], policy: str, told: bool, mode: str, rights: Rights = DEFAULT_RIGHTS
) -> Scheduler:
    """A scheduler with these nodes.

    `told`: joint policies are given the typical pods of the trace, otherwise they learn them.
    """
    scheduler = Scheduler(mode=mode, cache=True, rights=rights)
    for node in cast.nodes_of(machines):
        scheduler.handle(NodeChanged(0.0, node))
    scheduler.handle(TopologyChanged(0.0, "racks", TOPOLOGY))
    if told:
        scheduler.outlook.expect(expected(trace, policy))
        scheduler.kernel(profile_of(policy))  # build the policy's tables now, so that no decision includes it
    return scheduler


def expected(trace: Trace, policy: str) -> list[tuple[Pod, int]]:
    """The typical pods of the trace, and how often each occurs."""
    profile = profile_of(policy)
    return [(cast.pod_of(job, profile, job.name), times) for job, times in cast.typical(trace.jobs)]
