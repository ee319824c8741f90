"""The requests that make up most of a workload: what joint policies prepare for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...])


class TypicalPod(NamedTuple):
    """A request and how often it comes."""

    times: int
    cpu: int
    cards: int
    parts: tuple[tuple[int, int], ...]  # (kind of card it accepts, milli it takes of each there)


def most_frequent(counted: Iterable[tuple[Key, int]], part: float = 0.95) -> list[tuple[Key, int]]:
    """From the top until they make up this part of all; of equally frequent ones those with the larger key."""
    ranked = sorted(counted, key=lambda item: (item[1], item[0]), reverse=True)
    total, so_far, kept = sum(times for _, times in ranked), 0, []
    for key, times in ranked:
        if so_far >= part * total:
            break
        kept.append((key, times))
        so_far += times
    return kept
