"""liang's CMDN: CPU, memory, network, disk and network capacity together, by the method TOPSIS.

Written from a description of the project's behaviour; it has no licence. Columns are divided by their sum of squares;
classical TOPSIS divides by its square root. Loads above 80 % count as 0, as there. Loaded nodes come first, or last
with `balance: true`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dovetail.policies.kube_resources import refuse_unknown
from dovetail.policies.network import has_room, load_of
from dovetail.policies.rows import (
    CPU_LOAD,
    DISK_LOAD,
    MEMORY_LOAD,
    NETWORK_CAPACITY,
    NETWORK_LOADS,
    ColumnOf,
    Floats,
    Ints,
    NodePolicy,
    Rows,
    Wants,
)

BALANCE = 1  # in args
CRITERIA = 5
Facts = tuple[float, float, float]
TOO_HIGH = 80  # per cent: counts as 0


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return 0.0


def value(rows: Rows, i: int, column: int) -> float:
    """One of the five figures of a node: whole per cent; of the network its capacity, too."""
    if column == 4:
        return float(rows.signal[i, NETWORK_CAPACITY])
    if column == 2:
        percent = math.floor(100.0 * load_of(rows, i) + 0.5)
    else:
        signal = CPU_LOAD if column == 0 else MEMORY_LOAD if column == 1 else DISK_LOAD
        percent = math.floor(max(0, rows.signal[i, signal]) / 10.0 + 0.5)
    return 0.0 if percent > TOO_HIGH else float(percent)


def column_facts(rows: Rows, candidates: Ints, count: int, wants: Wants, s: int, column: int) -> Facts:
    """Sum of squares, lowest and highest value of a column, over nodes with room. All 0: the column does not count."""
    squares, low, high = 0.0, 2.0**62, 0.0
    for n in range(count):
        if has_room(rows, candidates[n], wants, s):
            one = value(rows, candidates[n], column)
            squares += one * one
            low, high = min(low, one), max(high, one)
    return squares, low, high


def normalise(rows: Rows, candidates: Ints, count: int, wants: Wants, s: int, args: Ints, points: Floats) -> None:
    """round(100 × d⁻ / (d⁻ + d⁺)): near the highest values and far from the lowest."""
    compared = 0
    for n in range(count):
        compared += 1 if has_room(rows, candidates[n], wants, s) else 0
    facts = (
        column_facts(rows, candidates, count, wants, s, 0),
        column_facts(rows, candidates, count, wants, s, 1),
        column_facts(rows, candidates, count, wants, s, 2),
        column_facts(rows, candidates, count, wants, s, 3),
        column_facts(rows, candidates, count, wants, s, 4),
    )
    for n in range(count):
        if not has_room(rows, candidates[n], wants, s):
            points[n] = 0.0
            continue
        points[n] = 100.0 if compared == 1 else closeness_of(rows, candidates[n], facts)
        if args[BALANCE] == 1 and compared > 1:
            points[n] = 100.0 - points[n]


def closeness_of(rows: Rows, i: int, facts: tuple[Facts, Facts, Facts, Facts, Facts]) -> float:
    below, above = 0.0, 0.0
    for column in range(CRITERIA):
        squares, low, high = facts[column]
        if squares > 0.0:
            one = value(rows, i, column)
            below += ((one - low) / squares) ** 2
            above += ((high - one) / squares) ** 2
    far, near = math.sqrt(below), math.sqrt(above)
    return math.floor(100.0 * far / (far + near) + 0.5) if far + near > 0.0 else 0.0


def arguments(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    refuse_unknown(given, ("balance",))
    balance = given.get("balance", False)
    if not isinstance(balance, bool):
        raise ValueError(f"balance: expected true or false, got {balance!r}")
    return [int(balance)]


POLICY = NodePolicy(
    "topsis",
    "The most loaded node by CPU, memory, network and disk together (TOPSIS), or the least with `balance`.",
    score,
    normalise=normalise,
    reads_signals=True,
    needs=NETWORK_LOADS,
    fallback="most-allocated",
    arguments=arguments,
)
