"""What a field of a trace file may hold. The same rules check CSV cells (text), JSON values, and what Dovetail writes.

The limits are far above any real cluster. A typing error or a hostile file is reported here, and not as an overflow in
the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MOST_MILLI = MOST_MIB = 1_000_000_000  # a million cores, about 950 TiB
MOST_SECONDS = 1e12
LONGEST_NAME = 253

# also "12.0": spreadsheets write it in columns with empty cells
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,18})(\.0*)?")
_NUMBER = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?")


class Wrong(ValueError):
    """A value that its field cannot hold. The message completes the sentence "`value` is not …"."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a CSV file or a key of a JSON object. An absent field takes the default of the record."""

    name: str
    parse: Callable[[object], object]  # raises Wrong
    fix: str  # advice for a wrong value
    required: bool = False


def shown(value: object) -> str:
    """The value as errors quote it: short, without characters that would disturb a terminal."""
    try:
        text = repr(value[:80] if isinstance(value, str) else value)
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= 60 else text[:57] + "…" + text[-1]


def whole(low: int, high: int) -> Callable[[object], int]:
    """A parser for whole numbers from `low` to `high`."""

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
    """A number of seconds: not negative, not NaN, not infinite."""
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
    """Like `name`, but may be empty."""
    return "" if value == "" else name(value)


def models(value: object) -> tuple[str, ...]:
    """The models in `A|B` or in a JSON list.

    Order and repetition are kept: requests are grouped by the text of the file.
    """
    parts = value.split("|") if isinstance(value, str) and value else value
    if not isinstance(parts, list | tuple):
        raise Wrong("a list of GPU models such as T4|A10")
    for part in parts:
        if not isinstance(part, str) or "|" in part or part != name(part).strip():
            raise Wrong("a list of GPU models such as T4|A10, each named, without spaces around it")
    return tuple(parts)


def one_of(*words: str) -> Callable[[object], str]:
    """A parser for one of these words, or nothing."""

    def parse(value: object) -> str:
        if value not in ("", *words):
            raise Wrong(f"one of {', '.join(words)}")
        return str(value)

    return parse
