"""The idle part of a node, as the policies of the FGD paper count it (hkust-adsl/kubernetes-scheduler-simulator)."""

from __future__ import annotations

from dovetail.policies.cards import milli_on
from dovetail.policies.rows import ASK_COUNT, CARDS, CPU_COLUMN, FIRST_ASK, LAST_ASK, Rows, Wants

# The largest node of the paper's cluster: amounts are divided by these.
LARGEST_CPU = 128_000.0  # milli
LARGEST_GPU = 8_000.0  # milli


def cpu_left(rows: Rows, i: int) -> int:
    return int(rows.cap[i, CPU_COLUMN] - rows.used[i, CPU_COLUMN])


def gpu_left(rows: Rows, i: int) -> int:
    """Milli left over all cards; for a card the smaller part of its free compute and free memory."""
    total = 0
    for d in range(rows.fact[i, CARDS]):
        total += rows.left[i, d]
    return int(total)


def gpu_asked(rows: Rows, i: int, wants: Wants, s: int) -> int:
    """Milli over all cards that the pod takes of this node."""
    total = 0
    if rows.fact[i, CARDS] > 0:
        for a in range(wants.shape[s, FIRST_ASK], wants.shape[s, LAST_ASK]):
            total += wants.ask[a, ASK_COUNT] * milli_on(rows, wants, i, 0, a)
    return int(total)
