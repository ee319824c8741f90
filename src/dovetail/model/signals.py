"""Measured load of nodes and cards: what they really do, beside what their pods asked for."""

from __future__ import annotations

import msgspec


class CardSignals(msgspec.Struct, frozen=True):
    """One card, in per mille of what it has; None = not measured."""

    uuid: str
    compute: int | None = None
    memory: int | None = None


class NodeSignals(msgspec.Struct, frozen=True):
    """One measurement of a node, in per mille of what it has: mean and standard deviation over the time measured.

    None = not measured, and so is a card that is not in the list. Use may be more than 1,000, e.g. CPU beyond what is
    allocatable. A measurement replaces the one before it as a whole; one without values says that nothing is known.
    """

    measured_at: float  # in the clock of events
    cpu: int | None = None
    cpu_deviation: int | None = None
    memory: int | None = None
    memory_deviation: int | None = None
    cards: tuple[CardSignals, ...] = ()
