"""The order of names as people count: `web-2` before `web-10`."""

from __future__ import annotations

import re

_ORDINAL = re.compile(r"(.*-)(\d{1,18})\Z", re.ASCII | re.DOTALL)

NaturalKey = tuple[str, int, str]


def natural(name: str) -> NaturalKey:
    """A number at the end counts as a number; the name itself ends the key, so the order is total."""
    match = _ORDINAL.match(name)
    return (match[1], int(match[2]), name) if match else (name, -1, name)
