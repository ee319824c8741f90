"""Merges rows with the same content into one: replicas, and nodes on which nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from dovetail.model.order import as_people_count

Item = TypeVar("Item")
MAX_NAMES_LISTED = 2  # up to this many names are all written


def folded(items: Iterable[Item], key: Callable[[Item], Hashable | None]) -> list[list[Item]]:
    """Groups of items with equal keys, in the order of their first items. An item with the key None stays alone."""
    groups: dict[Hashable, list[Item]] = {}
    for number, item in enumerate(items):
        own = key(item)
        groups.setdefault((None, number) if own is None else own, []).append(item)
    return list(groups.values())


def names_of(names: Sequence[str]) -> str:
    """The names in short: `web-0`; `web-0, -1 (2)`; `web-0 … -11 (12)`.

    `node-a … other-b (9)` if they have no stem in common.
    """
    if len(names) == 1:
        return names[0]
    ordered = sorted(names, key=as_people_count)
    first, last = ordered[0], ordered[-1]
    stem = first.rpartition("-")[0]
    short = last[len(stem) :] if stem and all(name.rpartition("-")[0] == stem for name in ordered) else last
    between = ", " if len(ordered) <= MAX_NAMES_LISTED else " … "
    return f"{first}{between}{short} ({len(ordered):,})"
