"""The order of names with numbers: `web-2` before `web-10`."""

from __future__ import annotations

import re
from collections.abc import Iterable

_DIGITS = re.compile(r"(\d{1,18})", re.ASCII)
_ORDINAL = re.compile(r"(.*-)(\d{1,18})\Z", re.ASCII | re.DOTALL)

NaturalKey = tuple[str, int, str]


def natural(name: str) -> NaturalKey:
    """A sort key: a number at the end counts as a number. The name ends the key, so the order is total."""
    match = _ORDINAL.match(name)
    return (match[1], int(match[2]), name) if match else (name, -1, name)


def numbered(stem: str, names: Iterable[str]) -> dict[str, str]:
    """Old name -> `STEM-001`, …, in the natural order of the old names, so that the order stays the same."""
    ordered = sorted(names, key=natural)
    digits = len(str(len(ordered)))
    return {name: f"{stem}-{number:0{digits}}" for number, name in enumerate(ordered, 1)}


def as_people_count(name: str) -> tuple[tuple[str | int, ...], str]:
    """A sort key for displayed lists: every number in a name counts as a number, `node2` before `node10`."""
    parts: list[str | int] = [*_DIGITS.split(name)]
    parts[1::2] = [int(part) for part in parts[1::2]]
    return tuple(parts), name
