"""Formats numbers for readers: 95.1 %, +0.62 points, 3.4 h, 1,234 GPU-hours."""

from __future__ import annotations

from collections.abc import Sequence

SPACE = "\u00a0"  # between a number and its unit, where no line may break
MINUS = "\u2212"
# unit, shortest duration in seconds that uses it, its seconds
DURATIONS = (("d", 2 * 86400.0, 86400.0), ("h", 2 * 3600.0, 3600.0), ("min", 120.0, 60.0))


def amount(value: float, unit: str, scale: float | None = None) -> str:
    """A value of a measure with its unit. Counts have none: the title of the measure names it.

    `scale` is the value that chooses the unit of a duration, so that neighbouring values have the same unit.
    """
    if unit == "%":
        return f"{decimals(value, 1)}{SPACE}%"
    if unit == "s":
        return duration(value, value if scale is None else scale)
    return decimals(value, _places(value))


def change(value: float, unit: str, scale: float | None = None) -> str:
    """A difference, with its sign. `scale` is the value that chooses the unit of a duration."""
    if unit == "%":
        return signed(value, 2) + f"{SPACE}points"
    if unit == "s":
        return _with_plus(duration(value, value if scale is None else scale))
    return signed(value, _places(value))


def with_unit(text: str, unit: str) -> str:
    """A number from `amount` or `change` with the counted noun, for places without a title such as headlines."""
    if unit in ("%", "s", ""):
        return text
    noun = unit.removesuffix("s") if text.lstrip("+" + MINUS) == "1" else unit
    return f"{text}{SPACE}{noun}"


def _places(number: float) -> int:
    """Decimals of a mean of counts: 0 if it is whole or large, else 1."""
    return 0 if abs(number) >= 100 or float(number).is_integer() else 1


def interval(low: float, high: float, unit: str, scale: float) -> str:
    """Both ends with one unit: `+0.81 to +0.97 points`."""
    first, last = change(low, unit, scale), change(high, unit, scale)
    _, space, name = last.partition(SPACE)
    return f"{first.removesuffix(space + name)} to {last}"


def decimals(value: float, places: int) -> str:
    """The number with `places` decimals. A value that rounds to 0 has no sign."""
    text = f"{abs(value):,.{places}f}"
    return text if value >= 0 or not text.strip("0.") else MINUS + text


def signed(value: float, places: int) -> str:
    return _with_plus(decimals(value, places))


def _with_plus(text: str) -> str:
    """The text with a plus sign, unless the number is negative or rounds to 0."""
    number = text.partition(SPACE)[0]
    return text if number.startswith(MINUS) or not number.strip("0.") else f"+{text}"


def duration(seconds: float, scale: float) -> str:
    for unit, least, size in DURATIONS:
        if abs(scale) >= least:
            return f"{decimals(seconds / size, 2 if unit == 'd' else 1)}{SPACE}{unit}"
    return f"{decimals(seconds, 0 if abs(scale) >= 10 else 1)}{SPACE}s"


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `3 policies`."""
    if number == 1:
        return f"1{SPACE}{noun}"
    plural = noun[:-1] + "ies" if noun.endswith("cy") else noun + "s"
    return f"{number:,}{SPACE}{plural}"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def seeds_of(seeds: Sequence[int]) -> str:
    """The seeds as text: `42 to 51` for consecutive ones, else a list."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return listed([str(seed) for seed in seeds])
