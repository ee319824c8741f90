"""Profiles in the words of users: `binpack × spread`, or the name of a joint policy."""

from __future__ import annotations

from dovetail.model.pod import Profile
from dovetail.policies.table import NODE_POLICIES


def is_joint(profile: Profile) -> bool:
    """True where the node policy chooses the GPUs, too."""
    return NODE_POLICIES[profile.node].offer is not None


def gpu_policy(profile: Profile) -> str:
    """The GPU policies in order, or the joint policy."""
    return profile.node if is_joint(profile) else ",".join(profile.device)


def policy_title(profile: Profile) -> str:
    """`binpack × spread`; a joint policy stands alone."""
    return profile.node if is_joint(profile) else f"{profile.node} × {gpu_policy(profile)}"
