"""The node with the fewest pods of the same owner first, then HAMi's spread.

HAMi's spread looks only at use, so a nearly empty node may get a whole Deployment.
"""

from __future__ import annotations

from dovetail.policies.hami_score import node_busyness
from dovetail.policies.rows import OWNER, Ints, NodePolicy, Rows, Wants

BUSIEST = 30.0  # the highest node_busyness of a node that is not over-allocated


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    owner = wants.shape[s, OWNER]
    siblings = rows.peers[owner, i] if owner >= 0 else 0
    return siblings * (BUSIEST + 1.0) + min(node_busyness(rows, i), BUSIEST)


POLICY = NodePolicy(
    "spread-replicas",
    "Fewest pods of the same owner first, then the least busy node: replicas really spread.",
    score,
    lowest_wins=True,
    counts_owner=True,
)
