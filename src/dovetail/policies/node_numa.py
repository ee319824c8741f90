"""scheduler-plugins' NodeResourceTopologyMatch: nodes by how well an ask fits their NUMA nodes.

Source: pkg/noderesourcetopology (least_numa.go, score.go, most_allocated.go, least_allocated.go,
balanced_allocation.go). Resources of a NUMA node are the compute and memory of its cards, from the node's register and
the ledger. Upstream scores Guaranteed pods only; here every pod that asks for cards is scored, the others get 100.
"""

from __future__ import annotations

from dovetail.policies.cards import memory_on
from dovetail.policies.numa_zones import cards_of_zone, could_serve, starts_zone, zones_needed
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_COUNT,
    CARDS,
    FIRST_ASK,
    FREE_COMPUTE,
    FREE_MEMORY,
    LAST_ASK,
    NUMA,
    Ints,
    NodePolicy,
    Rows,
    Wants,
)

MOST_ZONES = 8  # as upstream: highestNUMAID
ZONE_STEP = 100 // MOST_ZONES
FILL, LEAVE, BALANCED = 0, 1, 2
NO_OPINION = 100.0


def least_zones(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    """100 − 12 × NUMA nodes, of the container that needs most, + 6.

    Upstream adds 6 only if no other set of as many NUMA nodes is closer together. Registers state no distances.
    """
    zones = 0
    for a in range(wants.shape[s, FIRST_ASK], wants.shape[s, LAST_ASK]):
        needed = zones_needed(rows, wants, i, a, wants.ask[a, ASK_COUNT])
        if needed == 0:
            return 0.0
        zones = max(zones, min(needed, MOST_ZONES))
    return float(100 - zones * ZONE_STEP + ZONE_STEP // 2) if zones > 0 else NO_OPINION


def zone_points(rows: Rows, wants: Wants, i: int, first: int, a: int, direction: int) -> int:
    """0 to 100 for one NUMA node: the part of its free compute and memory that the ask takes, or leaves, or balance."""
    compute, memory, free_compute, free_memory = 0, 0, 0, 0
    count = wants.ask[a, ASK_COUNT]
    for d in range(first, rows.fact[i, CARDS]):
        if rows.card[i, d, NUMA] == rows.card[i, first, NUMA] and could_serve(rows, wants, i, d, a):
            if count > 0:
                compute, memory = compute + wants.ask[a, ASK_COMPUTE], memory + memory_on(rows, wants, i, d, a)
                count -= 1
            free_compute += rows.free[i, d, FREE_COMPUTE]
            free_memory += rows.free[i, d, FREE_MEMORY]
    if free_compute <= 0 or free_memory <= 0:
        return 0
    if direction == BALANCED:
        one, other = float(compute) / float(free_compute), float(memory) / float(free_memory)
        mean = (one + other) / 2.0
        return int(100.0 * (1.0 - ((one - mean) ** 2 + (other - mean) ** 2) / 2.0))
    if direction == FILL:
        return int((compute * 100 // free_compute + memory * 100 // free_memory) // 2)
    return int(((free_compute - compute) * 100 // free_compute + (free_memory - memory) * 100 // free_memory) // 2)


def ask_points(rows: Rows, wants: Wants, i: int, a: int, direction: int) -> int:
    """The lowest score above 0 of the NUMA nodes that could serve the ask; 0 if none could."""
    lowest = 0
    for d in range(rows.fact[i, CARDS]):
        if starts_zone(rows, i, d) and cards_of_zone(rows, wants, i, d, a) >= wants.ask[a, ASK_COUNT]:
            points = zone_points(rows, wants, i, d, a, direction)
            if points > 0 and (lowest == 0 or points < lowest):
                lowest = points
    return lowest


def mean_points(rows: Rows, i: int, wants: Wants, s: int, direction: int) -> float:
    """The mean over the containers that ask for cards."""
    first, last = wants.shape[s, FIRST_ASK], wants.shape[s, LAST_ASK]
    if first == last:
        return NO_OPINION
    total = 0
    for a in range(first, last):
        total += ask_points(rows, wants, i, a, direction)
    return float(total // (last - first))


def most_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return mean_points(rows, i, wants, s, FILL)


def least_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return mean_points(rows, i, wants, s, LEAVE)


def balanced_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return mean_points(rows, i, wants, s, BALANCED)


LEAST_NUMA = NodePolicy(
    "least-numa", "Nodes where the cards of a container come from the fewest NUMA nodes first.", least_zones
)
NUMA_MOST = NodePolicy(
    "numa-most", "Nodes with the fullest NUMA node on which the pod fits: large ones stay free.", most_score
)
NUMA_LEAST = NodePolicy("numa-least", "Nodes with the emptiest NUMA nodes on which the pod fits.", least_score)
NUMA_BALANCED = NodePolicy(
    "numa-balanced",
    "Nodes where the pod takes equal parts of the compute and memory of a NUMA node.",
    balanced_score,
)
