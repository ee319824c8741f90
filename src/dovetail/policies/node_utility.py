"""The place with the highest utility: near cards, on a node with little left (Amaral et al., SC'17: TOPO-AWARE).

Marcelo Amaral et al., *Topology-aware GPU scheduling for learning workloads in cloud environments*, SC 2017; their code
is HiEST/gpu-topo-aware. The utility is 1 / Σ cost^w with equal weights, divided by the highest possible one. The costs:

    communication   Σ distances of pairs (1 in one NUMA node, 20 across) beyond the least possible, of the worst case
    interference    0.01, the least: measured slowdowns of pairs of jobs are not known here, and count so in their code
    fragmentation   mean over the NUMA nodes of what is left, of all

Their recursive bi-partitioning looks for the set of cards with the highest utility; here it is found directly, because
only the number of cards in each NUMA node counts.
"""

from __future__ import annotations

from dovetail.model.units import WHOLE_CARD
from dovetail.policies.cards import milli_on
from dovetail.policies.rows import ASK_COUNT, CARDS, NUMA, Ints, NodePolicy, Rows, Wants
from dovetail.policies.topology_tree import is_of_vendor

LEAST_COST = 0.01
NEAR_DISTANCE, FAR_DISTANCE = 1, 20  # distances of the paper's machine
WORST_PAIR = 40.0  # its worst case for two cards; for more, all pairs far
UTILITY_STEPS = 1e9  # scores are rounded: interpreted and compiled code must agree in every digit


def worth(rows: Rows, i: int) -> float:
    return 0.0


def offer_utility(
    rows: Rows, i: int, wants: Wants, s: int, a: int, left: Ints, worth: float, fitting: Ints, fits: int, chosen: Ints
) -> float:
    """The utility for the system, in steps of one billionth."""
    if a < 0:  # the pod asks for no card
        return 0.0
    choose_near(rows, i, left, fitting, fits, wants.ask[a, ASK_COUNT], chosen)
    distance = communication(rows, i, wants, a, wants.ask[a, ASK_COUNT], chosen)
    spare = fragmentation(rows, i, wants, a, left, chosen)
    power = 1.0 / 3.0
    cost = distance**power + LEAST_COST**power + spare**power
    return float(int(UTILITY_STEPS * 3.0 * LEAST_COST**power / cost + 0.5))


def job_utility(rows: Rows, i: int, wants: Wants, a: int, chosen: Ints) -> float:
    """The utility for the pod: without fragmentation, whose weight goes to the other two costs."""
    distance = communication(rows, i, wants, a, wants.ask[a, ASK_COUNT], chosen)
    return float(2.0 * LEAST_COST**0.5 / (distance**0.5 + LEAST_COST**0.5))


def choose_near(rows: Rows, i: int, left: Ints, fitting: Ints, fits: int, count: int, chosen: Ints) -> None:
    """Write the cards with the least sum of distances into `chosen`.

    That is the NUMA node with the fewest cards that fit and are enough; else the one with the most, and then the rest.
    A single card is the one with the least left.
    """
    got = 0
    while got < count:
        best, most = -1, 0
        for n in range(fits):
            if is_among(chosen, got, fitting[n]):
                continue
            there = 0
            for m in range(fits):
                same = rows.card[i, fitting[m], NUMA] == rows.card[i, fitting[n], NUMA]
                if same and not is_among(chosen, got, fitting[m]):
                    there += 1
            enough, better = there >= count - got, most >= count - got
            if best < 0 or (enough and (not better or there < most)) or (not enough and not better and there > most):
                best, most = fitting[n], there
        got = take_near(rows, i, left, fitting, fits, count, best, got, chosen)


def take_near(
    rows: Rows, i: int, left: Ints, fitting: Ints, fits: int, count: int, first: int, got: int, chosen: Ints
) -> int:
    """Add cards of the NUMA node of `first` to `chosen`, the fullest first; returns how many are chosen then."""
    start = got
    while got < count:
        best = -1
        for n in range(fits):
            d = fitting[n]
            if rows.card[i, d, NUMA] != rows.card[i, first, NUMA] or is_among(chosen, got, d):
                continue
            if best < 0 or left[d] < left[best]:
                best = d
        if best < 0:
            break
        chosen[got] = best
        got += 1
    return got if got > start else count


def is_among(chosen: Ints, got: int, d: int) -> bool:
    times = 0
    for n in range(got):
        times += 1 if chosen[n] == d else 0
    return bool(times > 0)


def communication(rows: Rows, i: int, wants: Wants, a: int, count: int, chosen: Ints) -> float:
    """The sum of distances beyond the least possible on this node, as a part of the worst case; at least 0.01."""
    if count < 2:
        return LEAST_COST
    near = 0
    for n in range(count):
        for m in range(n):
            if rows.card[i, chosen[n], NUMA] == rows.card[i, chosen[m], NUMA]:
                near += 1
    pairs = count * (count - 1) // 2
    beyond = (FAR_DISTANCE - NEAR_DISTANCE) * (most_near_pairs(rows, i, wants, a, count) - near)
    worst = WORST_PAIR if count == 2 else float(FAR_DISTANCE * pairs)
    return float(max(LEAST_COST, beyond / worst))


def most_near_pairs(rows: Rows, i: int, wants: Wants, a: int, count: int) -> int:
    """The pairs inside NUMA nodes, if the cards fill as few of them as possible."""
    largest = 1
    for c in range(rows.fact[i, CARDS]):
        size = 0
        for d in range(rows.fact[i, CARDS]):
            if is_of_vendor(rows, i, wants, a, d) and rows.card[i, d, NUMA] == rows.card[i, c, NUMA]:
                size += 1
        largest = max(largest, size)
    full, rest = count // largest, count % largest
    return int(full * (largest * (largest - 1) // 2) + rest * (rest - 1) // 2)


def fragmentation(rows: Rows, i: int, wants: Wants, a: int, left: Ints, chosen: Ints) -> float:
    """The mean over the NUMA nodes of what is left after the pod, as a part of all; at least 0.01."""
    total, sockets = 0.0, 0
    for c in range(rows.fact[i, CARDS]):
        if not is_of_vendor(rows, i, wants, a, c):
            continue
        spare, size, is_first = 0, 0, True
        for d in range(rows.fact[i, CARDS]):
            if not is_of_vendor(rows, i, wants, a, d) or rows.card[i, d, NUMA] != rows.card[i, c, NUMA]:
                continue
            is_first = is_first and d >= c
            size += WHOLE_CARD
            taken = milli_on(rows, wants, i, d, a) if is_among(chosen, wants.ask[a, ASK_COUNT], d) else 0
            spare += max(0, left[d] - taken)
        if is_first:
            total += spare / size
            sockets += 1
    return float(max(LEAST_COST, total / max(1, sockets)))


POLICY = NodePolicy(
    "utility",
    "Near cards, on a node with little left: the highest utility for job and system (Amaral et al.).",
    offer=offer_utility,
    worth=worth,
)
