"""The most frequent requests of a workload: joint policies prepare for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...])


class TypicalPod(NamedTuple):
    """A request and its frequency."""

    times: int
    cpu: int
    cards: int
    parts: tuple[tuple[int, int], ...]  # (kind of card that it accepts, milli that it takes of each card of that kind)


def most_frequent(counted: Iterable[tuple[Key, int]], part: float = 0.95) -> list[tuple[Key, int]]:
    """The most frequent keys, until they make up `part` of all; among equals those with the larger key."""
    ranked = sorted(counted, key=lambda item: (item[1], item[0]), reverse=True)
    total, so_far, kept = sum(times for _, times in ranked), 0, []
    for key, times in ranked:
        if so_far >= part * total:
            break
        kept.append((key, times))
        so_far += times
    return kept
