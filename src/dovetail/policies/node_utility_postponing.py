"""As utility, but a pod waits rather than take cards that are far apart (Amaral et al., SC'17: TOPO-AWARE-P).

A pod whose own utility would be below 0.5 is not placed: it waits until a better place is free.
"""

from __future__ import annotations

from dovetail.policies.node_utility import job_utility, offer_utility, worth
from dovetail.policies.rows import POSTPONED, Ints, NodePolicy, Rows, Wants

LEAST_JOB_UTILITY = 0.5


def offer_or_postpone(
    rows: Rows, i: int, wants: Wants, s: int, a: int, left: Ints, worth: float, fitting: Ints, fits: int, chosen: Ints
) -> float:
    points = offer_utility(rows, i, wants, s, a, left, worth, fitting, fits, chosen)
    if a >= 0 and job_utility(rows, i, wants, a, chosen) < LEAST_JOB_UTILITY:
        return POSTPONED
    return points


POLICY = NodePolicy(
    "utility-postponing",
    "As utility, but a pod waits rather than take cards that are far apart (Amaral et al.).",
    offer=offer_or_postpone,
    worth=worth,
)
