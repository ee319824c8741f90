"""Divide an integer by weights, exactly: the largest-remainder method (Hamilton), as Koordinator and KAI use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def split(amount: int, weights: Sequence[int], ties: Sequence[Any]) -> list[int]:
    """Parts in proportion to the weights; they sum to the amount exactly. No weight above 0: all parts are 0.

    Every part is rounded down. What is left goes, one unit each, to the largest remainders; equal ones by `ties`.
    """
    total = sum(weights)
    if amount <= 0 or total <= 0:
        return [0] * len(weights)
    parts = [amount * weight // total for weight in weights]
    order = sorted(range(len(weights)), key=lambda n: (-(amount * weights[n] % total), ties[n]))
    for n in order[: amount - sum(parts)]:
        parts[n] += 1
    return parts


def scaled(amounts: Sequence[int], total: int, ties: Sequence[Any]) -> list[int]:
    """The amounts, reduced in proportion if they sum to more than the total: the cluster has lost nodes."""
    return list(amounts) if sum(amounts) <= total else split(total, amounts, ties)
