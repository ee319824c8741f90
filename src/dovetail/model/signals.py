"""Measured load of nodes and cards, in addition to what their pods asked for."""

from __future__ import annotations

import msgspec

MAX_NETWORK_KBIT = 10**9  # a terabit per second


class CardSignals(msgspec.Struct, frozen=True):
    """One card, in per mille of what it has; None = not measured."""

    uuid: str
    compute: int | None = None
    memory: int | None = None
    compute_deviation: int | None = None
    memory_deviation: int | None = None


class NodeSignals(msgspec.Struct, frozen=True):
    """One measurement of a node, in per mille of what it has: mean and standard deviation over the time measured.

    None = not measured; the same holds for a card that is not in the list. Use may exceed 1,000, e.g. CPU above the
    allocatable amount. A measurement replaces the one before it as a whole; one without values means that nothing is
    known.
    """

    measured_at: float  # in the clock of events
    cpu: int | None = None
    cpu_deviation: int | None = None
    memory: int | None = None
    memory_deviation: int | None = None
    cards: tuple[CardSignals, ...] = ()
    disk: int | None = None
    network_kbit: int | None = None  # kbit/s that its network card moves now
    network_capacity_kbit: int | None = None  # kbit/s that the card can move
