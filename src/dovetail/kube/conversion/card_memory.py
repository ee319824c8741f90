"""The GPU memory that a quantity means: a plain number is MiB, a number with a unit of memory is bytes.

HAMi reads every number as MiB, so `16Gi` is 17,179,869,184 MiB there and the whole request is dropped silently. The API
server writes thousands as `k` (`8000` is stored as `8k`), so `k` is not a unit of memory here.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.kube.conversion.amounts import text_of
from dovetail.kube.objects.bounds import CARD_NUMBER
from dovetail.kube.objects.core import Quantity
from dovetail.kube.objects.problems import printable
from dovetail.model import quantity

MIB = 1 << 20
FEW_MIB = 64  # less memory than a CUDA context takes: probably not intended
INSTEAD = "write MiB per card, such as 16384, or a unit, such as 16Gi"


class CardMemory(NamedTuple):
    """MiB per card, and what people should know about how it was read."""

    mib: int
    note: str = ""  # a unit was read
    doubt: str = ""  # the amount is probably not intended


def card_memory(value: Quantity, factor: int = 1) -> CardMemory:
    """The memory: `8192` and `8Gi` are both 8,192 MiB. Raises QuantityError where it is no amount of GPU memory.

    `factor`: MiB per unit of a plain number (HAMi's memoryFactor); it does not apply to a number with a unit.
    """
    text = text_of(value)
    amount, said = quantity.parse(text), printable(text, 40)
    if amount < 0:
        raise quantity.QuantityError(f"{said} is negative; {INSTEAD}")
    if has_memory_unit(text):
        return _with_unit(amount, said)
    if not quantity.is_whole(text):
        raise quantity.QuantityError(f"{said} is not a whole number of MiB; {INSTEAD}")
    if amount > CARD_NUMBER.most // factor:
        meant = f"if these are bytes, write {-(-amount // MIB)}Mi" if amount >= MIB else INSTEAD
        raise quantity.QuantityError(f"{said} is a plain number, so MiB, and no card has as many; {meant}")
    mib = amount * factor
    return CardMemory(mib, doubt=_doubt(mib, said))


def has_memory_unit(text: str) -> bool:
    """Whether the text has a unit of memory: `8Gi`, `8G`, `512Mi`.

    Also True for a plain number that the API server would store with such a unit.
    """
    if text.endswith(("i", "M", "G", "T", "P", "E")):
        return True
    plain = text.lstrip("+").isdigit() or "e" in text.lower()
    return plain and quantity.is_whole(text) and quantity.parse(text) > 0 and quantity.parse(text) % 1_000_000 == 0


def quota_memory(value: Quantity, factor: int = 1) -> int:
    """MiB that a namespace may have. Decimal units are MiB up to HAMi's limit: `1000000` is stored as `1M`."""
    text = text_of(value)
    amount = quantity.parse(text)
    if text.endswith("i") or (amount > CARD_NUMBER.most // factor and has_memory_unit(text)):
        return amount // MIB
    return amount * factor


def _with_unit(amount: int, said: str) -> CardMemory:
    mib = -(-amount // MIB)
    if amount and (amount < MIB or (amount < FEW_MIB * MIB and amount % MIB)):
        raise quantity.QuantityError(f"{said} is {amount:,} bytes, too little to be an amount of GPU memory; {INSTEAD}")
    if mib > CARD_NUMBER.most:
        raise quantity.QuantityError(f"{said} is {mib:,} MiB, more than any card has; {INSTEAD}")
    note = f"{said} is read as {mib:,} MiB per card; HAMi's own scheduler needs the plain number"
    return CardMemory(mib, note, _doubt(mib, said))


def _doubt(mib: int, said: str) -> str:
    if not 0 < mib < FEW_MIB:
        return ""
    return f"{said} is {mib} MiB per card, which is hardly meant; for {mib} GiB write {mib}Gi"
