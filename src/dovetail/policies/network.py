"""Network load of a node, as parts of what its network card can move."""

from __future__ import annotations

from dovetail.policies.rows import NETWORK_CAPACITY, NETWORK_LOAD, NETWORK_NEED, Rows, Wants


def has_room(rows: Rows, i: int, wants: Wants, s: int) -> bool:
    """Whether the network of the node is measured and has room for what the pod states."""
    load, capacity = rows.signal[i, NETWORK_LOAD], rows.signal[i, NETWORK_CAPACITY]
    return bool(load >= 0 and capacity > 0 and load + wants.shape[s, NETWORK_NEED] <= capacity)


def load_of(rows: Rows, i: int) -> float:
    return float(rows.signal[i, NETWORK_LOAD]) / float(rows.signal[i, NETWORK_CAPACITY])


def share_asked(rows: Rows, i: int, wants: Wants, s: int) -> float:
    return float(wants.shape[s, NETWORK_NEED]) / float(rows.signal[i, NETWORK_CAPACITY])
