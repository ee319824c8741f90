"""What a field of a trace file may hold. The same rules read CSV cells (text) and JSON values, and check what we write.

Limits are far above any cluster, so that a slip or a hostile file is found here and not as an overflow in the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MOST_MILLI = MOST_MIB = 1_000_000_000  # a million cores, about 950 TiB
MOST_SECONDS = 1e12
LONGEST_NAME = 253

_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,18})(\.0*)?")  # "12.0" too: spreadsheets write it where cells are empty
_NUMBER = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?")


class Wrong(ValueError):
    """A value that its field cannot hold; the message ends the sentence "`value` is not …"."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a CSV file or a key of a JSON object. Absent ones take the default of what is built from them."""

    name: str
    parse: Callable[[object], object]  # raises Wrong
    fix: str  # what to do about a wrong value
    required: bool = False


def shown(value: object) -> str:
    """A value as errors quote it: short, and nothing that would break a terminal."""
    try:
        text = repr(value[:80] if isinstance(value, str) else value)
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= 60 else text[:57] + "…" + text[-1]


def whole(low: int, high: int) -> Callable[[object], int]:
    """Whole numbers from `low` to `high`."""

    def parse(value: object) -> int:
        number: int | None = None
        if isinstance(value, str) and (match := _WHOLE_NUMBER.fullmatch(value.strip())):
            number = int(match[1])
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        elif isinstance(value, float) and value.is_integer():
            number = int(value)
        if number is None or not low <= number <= high:
            raise Wrong(f"a whole number from {low:,} to {high:,}")
        return number

    return parse


def seconds(value: object) -> float:
    """Neither negative nor NaN nor infinite."""
    number: float | None = None
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        number = float(value)
    elif isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        number = float(value) if abs(value) <= MOST_SECONDS else None
    if number is None or not 0 <= number <= MOST_SECONDS:
        raise Wrong(f"a number of seconds from 0 to {MOST_SECONDS:,.0f}")
    return number


def name(value: object) -> str:
    """Text of one line that a terminal can show."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
        raise Wrong(f"a text of 1 to {LONGEST_NAME} printable characters")
    return value


def label(value: object) -> str:
    """As a name, but it may be empty."""
    return "" if value == "" else name(value)


def models(value: object) -> tuple[str, ...]:
    """`A|B`, or a JSON list. Order and repetition are kept: people group by the text as it stands in the file."""
    parts = value.split("|") if isinstance(value, str) and value else value
    if not isinstance(parts, list | tuple):
        raise Wrong("a list of GPU models such as T4|A10")
    for part in parts:
        if not isinstance(part, str) or "|" in part or part != name(part).strip():
            raise Wrong("a list of GPU models such as T4|A10, each named, without spaces around it")
    return tuple(parts)
