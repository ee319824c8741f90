"""Names of profiles for display: `binpack × spread`, or the name of a joint policy."""

from __future__ import annotations

from dovetail.model.pod import Profile
from dovetail.policies.table import NODE_POLICIES


def is_joint(profile: Profile) -> bool:
    """Whether the node policy also chooses the GPUs."""
    return NODE_POLICIES[profile.node].offer is not None


def gpu_policy(profile: Profile) -> str:
    """The GPU policies in order, or the joint policy."""
    return profile.node if is_joint(profile) else ",".join(profile.device)


def policy_title(profile: Profile) -> str:
    """`binpack × spread`; for a joint policy only its name."""
    return profile.node if is_joint(profile) else f"{profile.node} × {gpu_policy(profile)}"
