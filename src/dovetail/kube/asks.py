"""What one container asks of cards, by HAMi's rules exactly (pkg/device/nvidia/device.go:417-450, 520-600).

Limits before requests; memory in MiB per card as a plain integer; percentages clamped; what HAMi's webhook fills in
(the count, exclusive cores for whole cards) is filled in and noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.kube.amounts import text_of
from dovetail.kube.objects import Quantity, Resources
from dovetail.kube.problems import Problems, printable
from dovetail.kube.register import LARGEST, MILLI_PER_CORE
from dovetail.kube.vendors import Vendor, Vendors
from dovetail.model import quantity
from dovetail.model.pod import CardResources, DeviceAsk

WHOLE = 100  # per cent


class AskError(ValueError):
    """The container's request is wrong: (field, message)."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(slots=True)
class Asked:
    """A container's cards, the counts that admission would have written, and why it cannot be placed (or "")."""

    asks: tuple[DeviceAsk, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)  # count resource -> cards
    wrong: str = ""


def asked(resources: Resources, vendors: Vendors, path: str, where: str, problems: Problems) -> Asked:
    """The asks of one container over all vendors, in the table's order."""
    result = Asked()
    asks = []
    for vendor in vendors.concerned((*resources.requests, *resources.limits)):
        reader = _Reader(resources, vendor, f"{path}.resources", where, problems)
        try:
            ask = reader.ask()
        except AskError as error:
            problems.error(where, reader.field(error.name), str(error))
            result.wrong = result.wrong or f"{error.name}: {error}"
            continue
        if reader.count:
            result.counts[vendor.count] = reader.count
        if ask is not None:
            asks.append(ask)
    result.asks = tuple(asks)
    return result


def count_by_webhook(resources: Resources, vendor: Vendor) -> int:
    """The cards that HAMi's webhook writes down where a part of a card is asked for and no number; else 0."""
    stated = vendor.count in resources.limits or vendor.count in resources.requests
    return vendor.default_count if vendor.webhook and not stated and _limits_a_part(resources, vendor) else 0


def _limits_a_part(resources: Resources, vendor: Vendor) -> bool:
    return any(name in resources.limits for name in (vendor.memory, vendor.percentage, vendor.core) if name)


class _Reader:
    """One container, one vendor."""

    def __init__(self, resources: Resources, vendor: Vendor, path: str, where: str, problems: Problems) -> None:
        self.resources = resources
        self.limits: Mapping[str, Quantity] = resources.limits
        self.requests: Mapping[str, Quantity] = resources.requests
        self.vendor, self.path, self.where, self.problems = vendor, path, where, problems
        self.count = 0

    def ask(self) -> DeviceAsk | None:
        self.count = self._count()
        if self.count == 0:
            return None
        memory, readable = self._memory()
        if not readable:
            return None
        percent = self._percentage()
        compute = self._cores(percent) * MILLI_PER_CORE
        if not memory and percent is None and self.vendor.default_memory:
            memory = self.vendor.default_memory
            self._note(self.vendor.memory, f"{memory} MiB per card, by defaultMemory")
        part = None if memory else WHOLE if percent is None else percent
        vendor = self.vendor
        plain = not self._states(vendor.memory, vendor.percentage, vendor.core)
        return DeviceAsk(vendor.word, self.count, memory, part, compute, plain, _resources(vendor))

    def field(self, name: str) -> str:
        return f"{self.path}.{'requests' if name in self.requests and name not in self.limits else 'limits'}.{name}"

    def _given(self, name: str) -> Quantity | None:
        return self.limits.get(name, self.requests.get(name)) if name else None

    def _states(self, *names: str) -> bool:
        return any(self._given(name) is not None for name in names)

    def _number(self, name: str) -> tuple[int, bool] | None:
        """(amount, is it whole), or None where nothing is said."""
        value = self._given(name)
        if value is None:
            return None
        try:
            text = text_of(value)
            return quantity.parse(text), quantity.is_whole(text)
        except quantity.QuantityError as error:
            raise AskError(name, str(error)) from None

    def _count(self) -> int:
        vendor = self.vendor
        given = self._number(vendor.count)
        if given is None:
            filled = count_by_webhook(self.resources, vendor)
            if filled:
                self._note(vendor.count, f"{filled}, by HAMi's webhook, as a part of a card is asked for")
            elif _limits_a_part(self.resources, vendor):
                self._warn(vendor.count, "is missing, so the part of a card asked for is not a request; write how many")
            return filled
        count, whole = given
        if not whole or not 0 <= count <= LARGEST:
            raise AskError(vendor.count, f"{printable(str(self._given(vendor.count)), 40)} is not a number of cards")
        return count

    def _memory(self) -> tuple[int, bool]:
        """MiB per card, and False where HAMi would silently drop the whole request (`16Gi`, decimals)."""
        name = self.vendor.memory
        given = self._number(name)
        if given is None:
            return 0, True
        value, whole = given
        said = printable(str(self._given(name)), 40)
        if value < 0:
            raise AskError(name, f"{said} is negative; write MiB per card, such as 16384")
        if not whole or value > LARGEST // self.vendor.memory_factor:
            self._warn(name, f"{said} is not a plain number of MiB, so HAMi sees no GPU request; {_advice(value)}")
            return 0, False
        if isinstance(self._given(name), str) and said[-1:] == "i":
            self._warn(name, f"{said} is read as {value} MiB per card; {_advice(value)}")
        return value * self.vendor.memory_factor, True

    def _percentage(self) -> int | None:
        """1 to 100, or None where unset. HAMi clamps more to 100 and takes 0 or less as unset."""
        name = self.vendor.percentage
        given = self._number(name)
        if given is None:
            return None
        value, whole = given
        if not whole:
            raise AskError(name, "must be a whole number between 1 and 100")
        if value > WHOLE:
            self._warn(name, f"{value} is more than 100 per cent; 100 is used")
            return WHOLE
        if value <= 0:
            self._warn(name, f"{value} counts as not set; write 1 to 100")
            return None
        return value

    def _cores(self, percent: int | None) -> int:
        vendor = self.vendor
        given = self._number(vendor.core)
        if given is not None:
            value, whole = given
            if not whole or value < 0:
                raise AskError(vendor.core, "must be a whole number between 0 and 100: per cent of a card's compute")
            if value > WHOLE:
                self._warn(vendor.core, f"{value} is more than a card has; 100 is used")
            return min(value, WHOLE)
        stated = self._states(vendor.memory, vendor.percentage)
        exclusive = not stated or not vendor.memory or (percent == WHOLE and self._stated_percent() == WHOLE)
        if vendor.webhook and exclusive:
            self._note(vendor.core, "100, by HAMi's webhook: a whole card is exclusive")
            return WHOLE
        return min(vendor.default_cores, WHOLE)

    def _stated_percent(self) -> int:
        given = self._number(self.vendor.percentage)
        return given[0] if given else 0

    def _warn(self, name: str, message: str) -> None:
        self.problems.warning(self.where, self.field(name), message)

    def _note(self, name: str, message: str) -> None:
        self.problems.note(self.where, self.field(name), message)


def _resources(vendor: Vendor) -> CardResources:
    shared = min(vendor.default_cores, WHOLE) * MILLI_PER_CORE
    return CardResources(vendor.count, vendor.memory, vendor.percentage, vendor.core, vendor.memory_factor, shared)


def _advice(value: int) -> str:
    return f"write {value >> 20} for {value >> 20} MiB" if value >= 1 << 20 else "write MiB per card, such as 16384"
