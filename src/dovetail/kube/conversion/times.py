"""Times of the API server → seconds since 1970; durations as Go writes them → seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

_DURATION = re.compile(r"(\d+(?:\.\d*)?)(h|ms|m|s|us|µs|ns)", re.ASCII)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
LONGEST_DURATION = 64  # characters


@lru_cache(4096)  # thousands of pods are created, placed and started in the same seconds
def seconds_of(text: str) -> float | None:
    """Seconds since 1970 of a time such as 2026-01-31T12:00:00Z; None = it cannot be read."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def duration_of(text: str) -> float | None:
    """Seconds of a Go duration: `1h30m` is 5400; None = it is none."""
    parts = _DURATION.findall(text) if len(text) <= LONGEST_DURATION else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
