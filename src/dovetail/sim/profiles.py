"""Profiles by the policy names of a study: `fgd`, `binpack`, or NODE/GPU such as `binpack/spread`."""

from __future__ import annotations

from dovetail.model.pod import Profile
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES
from dovetail.sim.trace import TraceError

BEST_FIT = ("best-fit",)


def profile_of(name: str) -> Profile:
    """The profile of a policy name.

    A joint policy stands alone. A node policy without a GPU policy takes the GPU policy of the same name, or best-fit.
    """
    node, slash, device = name.partition("/")
    if node not in NODE_POLICIES:
        raise TraceError(f"policy {node!r}: there is no such node policy; there is {', '.join(NODE_POLICIES)}")
    if NODE_POLICIES[node].offer is not None:
        if slash:
            raise TraceError(f"policy {name!r}: {node} chooses the GPUs itself; leave out /{device}")
        return Profile(node)
    if not slash:
        return Profile(node, (node,) if node in DEVICE_POLICIES else BEST_FIT)
    chain = tuple(device.split(","))
    for one in chain:
        if one not in DEVICE_POLICIES:
            raise TraceError(f"policy {name!r}: there is no GPU policy {one!r}; there is {', '.join(DEVICE_POLICIES)}")
    return Profile(node, chain)
