"""Pods of one size together: parts of cards on some nodes, whole cards on others (as in the FGD paper).

75 points if the node has only pods of this size, 50 if it has others too, 25 if no pod there has a card yet; and up to
25 points for use.
"""

from __future__ import annotations

from dovetail.policies.idle import LARGEST_GPU, gpu_left
from dovetail.policies.rows import NO_CARD, SIZE, SIZE_CLASSES, Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    mine = wants.shape[s, SIZE]
    if mine == NO_CARD:
        return 0.0
    others = 0
    for size in range(NO_CARD + 1, SIZE_CLASSES):
        if size != mine:
            others += rows.hosts[i, size]
    points = float(int(25.0 * (LARGEST_GPU - gpu_left(rows, i)) / LARGEST_GPU))
    if rows.hosts[i, mine] > 0:
        return points + (75.0 if others == 0 else 50.0)
    return points + (25.0 if others == 0 else 0.0)


POLICY = NodePolicy("gpu-clustering", "Pods of one size together: parts of cards here, whole cards there.", score)
