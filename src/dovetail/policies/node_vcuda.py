"""The node with the fewest free cores of cards, then the least free memory of cards (gpu-admission).

pkg/predicate/gpu_predicate.go deviceFilter: the first node in this order on which all containers fit.
"""

from __future__ import annotations

from dovetail.policies.rows import CARD_MEMORY, COMPUTE, IN_USE, Ints, NodePolicy, Rows, Wants

MAX_FREE_MIB = 1 << 34  # 16 PiB of card memory on one node


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    sums = rows.sums
    cores = sums[i, COMPUTE] - sums[i, IN_USE + COMPUTE]
    memory = max(0, min(sums[i, CARD_MEMORY] - sums[i, IN_USE + CARD_MEMORY], MAX_FREE_MIB - 1))
    return float(cores) * MAX_FREE_MIB + float(memory)


POLICY = NodePolicy(
    "vcuda",
    "The node with the fewest free cores of cards, then the least free memory (gpu-admission).",
    score,
    lowest_wins=True,
    sees_request=False,
)
