"""Kubernetes quantities as integers: "500m", "16Gi", "1e3". Exact; rounding up as Kubernetes does."""

from __future__ import annotations

import re
from functools import lru_cache

_PATTERN = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d{1,3}|[numkKMGTPE]i?|)\Z", re.ASCII)
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
MAX_QUANTITY = 2**63 - 1


class QuantityError(ValueError):
    """The text is not a quantity, or does not fit into 64 bits."""


@lru_cache(maxsize=4096)
def parse(text: str, scale: int = 1) -> int:
    """The amount times `scale` (1000 for milli), rounded up; `parse("500m", 1000) == 500`."""
    numerator, denominator = _fraction(text)
    amount = -(-numerator * scale // denominator)
    if abs(amount) > MAX_QUANTITY:
        raise QuantityError(f"{_shown(text)} is larger than Kubernetes can hold")
    return amount


def is_whole(text: str) -> bool:
    """True for a plain integer such as "5000" or "5k", not for "16.5"."""
    numerator, denominator = _fraction(text)
    return numerator % denominator == 0


def _fraction(text: str) -> tuple[int, int]:
    match = _PATTERN.match(text) if len(text) <= 64 else None
    if match is None:
        raise QuantityError(f"{_shown(text)} is not a quantity; write a number such as 2, 500m, 1.5 or 16Gi")
    sign, digits, suffix = match.groups()
    whole, _, decimals = digits.partition(".")
    numerator = int((whole + decimals) or "0") * (-1 if sign == "-" else 1)
    denominator = 10 ** len(decimals)
    if suffix in _BINARY:
        return numerator * _BINARY[suffix], denominator
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        exponent = int(suffix[1:])
    elif suffix in _DECIMAL:
        exponent = _DECIMAL[suffix]
    else:
        raise QuantityError(f"{_shown(text)} has the unknown unit {suffix!r}; write Ki, Mi, Gi, k, M, G or none")
    if abs(exponent) > 40:
        raise QuantityError(f"{_shown(text)} is larger than Kubernetes can hold")
    return (numerator * 10**exponent, denominator) if exponent >= 0 else (numerator, denominator * 10**-exponent)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 40 else repr(text[:40]) + "…"
