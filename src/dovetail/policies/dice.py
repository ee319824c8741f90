"""Random numbers from a hash of seed and number: a pod draws the same in any order and after any retry.

Multiply-xorshift rounds in 31 bits: no product exceeds an int64, so interpreted and compiled code agree.
"""

from __future__ import annotations

LOW = 0x7FFFFFFF
_MULTIPLIER = 0x45D9F3B
_GOLDEN = 0x1E3779B1


def mix(draw: int, n: int) -> int:
    """A number from 0 to 2³¹ − 1 that depends on every bit of both."""
    x = (draw ^ ((n & LOW) * _GOLDEN)) & LOW
    x = ((x >> 16) ^ x) * _MULTIPLIER & LOW
    x = ((x >> 15) ^ x) * _MULTIPLIER & LOW
    return int((x >> 16) ^ x)
