"""Scores of all candidates on a scale from 0 to 100, as `NormalizeScore` of scheduler plugins makes them."""

from __future__ import annotations

from dovetail.policies.rows import Floats, Ints, Rows, Wants

HIGHEST_POINTS = 100.0


def stretch(points: Floats, count: int) -> None:
    """The worst gets 0, the best 100, the others whole numbers between; all 0 if all are equal."""
    low, high = points[0], points[0]
    for n in range(count):
        low, high = min(low, points[n]), max(high, points[n])
    for n in range(count):
        points[n] = float(int(HIGHEST_POINTS * (points[n] - low) / (high - low))) if high > low else 0.0


def normalise(rows: Rows, candidates: Ints, count: int, wants: Wants, s: int, args: Ints, points: Floats) -> None:
    """The step of policies that only stretch: the order of the candidates stays as it is."""
    stretch(points, count)
