"""AntMan's open-source plug-in: opportunistic pods on the card with the lowest recent utilisation, busy or not.

Source: alibaba/GPU-scheduler-for-deep-learning. A card is eligible if its mean utilisation is below 80 % and less than
16 GiB of its memory are in use. A pod is opportunistic if its profile has this policy. It must fit like any other pod:
opportunistic pods ask for little or no memory and compute, and use what is left.
"""

from __future__ import annotations

from dovetail.policies.rows import (
    ASK_COUNT,
    CARD_LOAD,
    CARD_LOADS,
    CARD_MEMORY,
    CARD_MEMORY_LOAD,
    Ints,
    NodePolicy,
    Rows,
    Wants,
)

BUSY_CARD = 800  # per mille
MAX_MEMORY_IN_USE = 16 * 1024  # MiB
NOT_ELIGIBLE = 10**7  # more than any load


def load_to_compare(rows: Rows, i: int, d: int) -> int:
    """The measured utilisation of an eligible card in per mille, or NOT_ELIGIBLE. Memory that is not measured is 0."""
    load, memory = rows.card_signal[i, d, CARD_LOAD], rows.card_signal[i, d, CARD_MEMORY_LOAD]
    in_use = max(0, memory) * rows.card[i, d, CARD_MEMORY] // 1000
    return int(load) if 0 <= load < BUSY_CARD and in_use < MAX_MEMORY_IN_USE else NOT_ELIGIBLE


def worth(rows: Rows, i: int) -> float:
    return 0.0


def offer(
    rows: Rows, i: int, wants: Wants, s: int, a: int, left: Ints, worth: float, fitting: Ints, fits: int, chosen: Ints
) -> float:
    """100 − the utilisation in per cent of the least used card; of several cards, of the busiest that is taken."""
    if a < 0:
        return 0.0
    busiest = 0
    for n in range(wants.ask[a, ASK_COUNT]):
        best = -1
        for m in range(fits):
            if is_chosen(fitting[m], chosen, n):
                continue
            if best < 0 or load_to_compare(rows, i, fitting[m]) < load_to_compare(rows, i, best):
                best = fitting[m]
        chosen[n] = best
        busiest = max(busiest, load_to_compare(rows, i, best))
    return 100.0 - busiest / 10.0 if busiest < BUSY_CARD else 0.0


def is_chosen(card: int, chosen: Ints, count: int) -> bool:
    found = False
    for n in range(count):
        found = found or chosen[n] == card
    return found


POLICY = NodePolicy(
    "opportunistic",
    "The card with the lowest measured utilisation, busy or not, for pods that use what is left.",
    offer=offer,
    worth=worth,
    reads_signals=True,
    needs=CARD_LOADS,
    fallback="spread",
)
