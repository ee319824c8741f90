"""Reads a cluster for `compare --live`, and tries policies on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail.cli import planning
from dovetail.cli.options import ClusterOptions
from dovetail.cli.planning import Case
from dovetail.cli.sources import gather
from dovetail.engine.kernel.collector import collector_off
from dovetail.engine.usage import usage
from dovetail.model.pod import Profile
from dovetail.policies.table import NODE_POLICIES
from dovetail.sim.profiles import profile_of
from dovetail.whatif.policy_trials import (
    ClusterRoom,
    EmptiedCluster,
    PolicyTrial,
    cluster_room,
    emptied_cluster,
    try_policy,
)
from dovetail.whatif.situation import start

OWN_POLICIES = "own"  # each pod's own policies


@dataclass(frozen=True, slots=True)
class TriedPolicies:
    """The cluster as it is, and what each policy would make of it, by name in the order in which they were asked."""

    case: Case
    emptied: EmptiedCluster
    today: ClusterRoom
    trials: dict[str, PolicyTrial]


def profiles_of(names: Sequence[str]) -> dict[str, Profile | None]:
    """The pods' own policies first, then those that are asked for. Raises TraceError for an unknown policy."""
    return {OWN_POLICIES: None, **{name: profile_of(name) for name in names}}


def without_load(profiles: dict[str, Profile | None]) -> list[str]:
    """A note for each policy that needs measured load, which a cluster's objects do not have."""
    needy = {one.node: NODE_POLICIES[one.node].fallback for one in profiles.values() if one is not None}
    return [
        f"{name} needs measured load, which is not read here; {instead} decides in its place"
        for name, instead in needy.items()
        if instead
    ]


def read(asked: ClusterOptions) -> tuple[Case, EmptiedCluster]:
    """Raises Refused."""
    find = sys.stdin.buffer
    case, found = planning.read_sources(asked, lambda settings, problems: gather(asked, settings, problems, find))
    names = found.schedulers or asked.scheduler_names
    return case, emptied_cluster(case.given, frozenset(names) if names else None)


@collector_off()
def tried(
    case: Case, emptied: EmptiedCluster, profiles: dict[str, Profile | None], told: Callable[[str, int, int], None]
) -> TriedPolicies:
    """Try each policy. `told` hears what is done, how many are, and of how many. Raises Refused."""
    options = planning.runnable(case)
    trials: dict[str, PolicyTrial] = {}
    try:
        today = cluster_room(usage(start(case.given, options).scheduler))
        for done, (name, profile) in enumerate(profiles.items()):
            told("Placing", done, len(profiles))
            trials[name] = try_policy(case.given, emptied, profile, options)
    except ValueError as error:
        raise planning.refused_arguments(case, error) from error
    return TriedPolicies(case, emptied, today, trials)
