"""liang's BNP: the node where the network loads of all nodes become most even.

Written from a description of the project's behaviour; it has no licence. A node scores 0 if its network is not
measured, or if the pod's need would exceed its capacity.
"""

from __future__ import annotations

from dovetail.policies.network import has_room, load_of, share_asked
from dovetail.policies.rows import (
    NETWORK_LOADS,
    NETWORK_NEED,
    Floats,
    Ints,
    NodePolicy,
    Rows,
    Wants,
)

TAKEN_OUT = -10.0  # in `points`: not compared; loads are parts of 1, so no growth is below −1


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return 0.0


def normalise(rows: Rows, candidates: Ints, count: int, wants: Wants, s: int, args: Ints, points: Floats) -> None:
    """100 for the node where the variance of all loads grows least, 0 for the one where it grows most."""
    compared, total = 0, 0.0
    for n in range(count):
        points[n] = 0.0 if has_room(rows, candidates[n], wants, s) else TAKEN_OUT
        if points[n] != TAKEN_OUT:
            compared += 1
            total += load_of(rows, candidates[n])
    growths(rows, candidates, count, wants, s, points, total / max(1, compared), compared)
    scale(points, count, compared, wants.shape[s, NETWORK_NEED])


def growths(
    rows: Rows, candidates: Ints, count: int, wants: Wants, s: int, points: Floats, mean: float, compared: int
) -> None:
    """Write by how much the variance grows with the pod on each node.

    With load x, mean m of n loads and d more on x: n × growth = 2 d (x − m) + d² − d² / n. A growth may be negative.
    """
    for n in range(count):
        if points[n] != TAKEN_OUT:
            more = share_asked(rows, candidates[n], wants, s)
            away = load_of(rows, candidates[n]) - mean
            points[n] = 2.0 * more * away + more * more - more * more / compared


def scale(points: Floats, count: int, compared: int, need: int) -> None:
    low, high = 2.0**62, -(2.0**62)
    for n in range(count):
        if points[n] != TAKEN_OUT:
            low, high = min(low, points[n]), max(high, points[n])
    for n in range(count):
        if points[n] == TAKEN_OUT or need == 0:
            points[n] = 0.0
        elif compared == 1:
            points[n] = 100.0
        else:
            points[n] = float(int(100.0 - 100.0 * (points[n] - low) / (high - low))) if high > low else 0.0


POLICY = NodePolicy(
    "balanced-network",
    "The node where the network load of all nodes becomes most even.",
    score,
    normalise=normalise,
    reads_signals=True,
    needs=NETWORK_LOADS,
    fallback="least-allocated",
)
