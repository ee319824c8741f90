"""Resource lists as integers in the model's units: cpu in milli, everything else unchanged. Wrong ones are problems."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dovetail.kube.objects.bounds import AMOUNT
from dovetail.kube.objects.core import Quantity
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model import quantity
from dovetail.model.node import CPU, MEMORY, STORAGE

HIGHEST_PRIORITY = 2_000_001_000  # of Kubernetes' class system-node-critical
MAX_AMOUNT = AMOUNT.most  # more than any machine has; sums of a million of these fit 128 bits, and floats stay exact


def text_of(value: Quantity) -> str:
    """The quantity as Kubernetes would have written it: 2, 0.5 and "500m" are all allowed in YAML."""
    if isinstance(value, str):
        if len(value) > 64:  # checked here, so that no cache keeps a text of 10 MB
            raise quantity.QuantityError(f"{printable(value, 40)!r} is not a quantity; it is far too long")
        return value.strip()
    if isinstance(value, float) and not math.isfinite(value):
        raise quantity.QuantityError(f"{value} is not a quantity; write a number such as 2, 500m, 1.5 or 16Gi")
    if isinstance(value, int) and abs(value) > quantity.MAX_QUANTITY:
        raise quantity.QuantityError("the number is larger than Kubernetes can hold")
    return repr(value)


def amount(name: str, value: Quantity) -> int:
    """The amount in the unit of the resource.

    Raises QuantityError if it is negative, fractional, huge or no quantity.
    """
    text = text_of(value)
    if name == CPU:
        result = quantity.parse(text, 1000)
    else:
        result = quantity.parse(text)
        if name not in (MEMORY, STORAGE) and not quantity.is_whole(text):
            raise quantity.QuantityError(
                f"{printable(text, 40)!r} is a fraction of {printable(name)}; write a whole number"
            )
    if result < 0:
        raise quantity.QuantityError(f"{printable(text, 40)!r} is negative; write 0 or more")
    if result > MAX_AMOUNT:
        raise quantity.QuantityError(f"{printable(text, 40)!r} is larger than anything that exists; is the unit right?")
    return result


def written_amount(name: str, value: int) -> str:
    """The amount as a quantity: the inverse of `amount`."""
    return f"{value}m" if name == CPU and value % 1000 else str(value // 1000 if name == CPU else value)


def amounts(where: str, path: str, given: Mapping[str, Quantity], problems: Problems) -> tuple[dict[str, int], bool]:
    """Every valid amount, and whether all were valid. The others are reported as errors."""
    result: dict[str, int] = {}
    right = True
    for name, value in given.items():
        try:
            result[name] = amount(name, value)
        except quantity.QuantityError as error:
            problems.error(where, f"{path}.{name}", str(error))
            right = False
    return result, right


def added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum by name."""
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def largest(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """The maximum by name."""
    result = dict(first)
    for name, value in second.items():
        result[name] = max(result.get(name, 0), value)
    return result


def within_priorities(value: int) -> int:
    """The priority within the API server's bounds: a 32-bit number, at most that of Kubernetes' own highest class."""
    return max(-(2**31), min(value, HIGHEST_PRIORITY))
