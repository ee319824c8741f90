"""The cards that one container requests, by HAMi's rules (pkg/device/nvidia/device.go:417-450, 520-600).

Limits go before requests; percentages are clamped. What HAMi's webhook fills in (the count, exclusive cores for whole
cards) is filled in and noted. GPU memory may have a unit (card_memory.py), which HAMi does not understand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.kube.conversion.amounts import text_of
from dovetail.kube.conversion.bounded import Excess
from dovetail.kube.conversion.card_memory import card_memory
from dovetail.kube.conversion.plugin_amounts import AskError
from dovetail.kube.conversion.plugins import PLUGINS
from dovetail.kube.conversion.register import MILLI_PER_CORE
from dovetail.kube.conversion.vendors import Vendor, Vendors
from dovetail.kube.objects.bounds import CARDS_PER_CONTAINER
from dovetail.kube.objects.core import Quantity, Resources
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model import quantity
from dovetail.model.pod import CardResources, DeviceAsk

WHOLE_PERCENT = 100  # of a card


class TooManyCards(ValueError):
    """More cards than any node can have here."""


@dataclass(slots=True)
class ContainerAsks:
    """A container's cards, the counts that admission would have written, and why it cannot be placed (or "")."""

    asks: tuple[DeviceAsk, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)  # count resource -> cards
    written: dict[str, int] = field(default_factory=dict)  # resource -> amount that the webhook writes into limits
    wrong: str = ""
    denied: str = (
        ""  # why HAMi's webhook denies the pod, although its scheduler would read the request ("" = it does not)
    )
    excess: Excess | None = None  # more cards than the bound; `asks` has as many as the bound


def asked(
    resources: Resources, vendors: Vendors, path: str, where: str, problems: Problems, init: bool = False
) -> ContainerAsks:
    """The asks of one container for all vendors, in the table's order. `init`: it is an init container."""
    result = ContainerAsks()
    asks = []
    for vendor in vendors.concerned((*resources.requests, *resources.limits)):
        reader = (_PluginReader if vendor.plugin else _Reader)(
            resources, vendor, f"{path}.resources", where, problems, init
        )
        try:
            ask = reader.ask()
        except AskError as error:
            problems.error(where, reader.field(error.name), str(error))
            result.wrong = result.wrong or f"{error.name}: {error}"
            ask = reader.whole_cards()  # if the pod runs nevertheless, it holds no less than its cards
        except TooManyCards:
            result.excess = Excess(reader.field(vendor.count or vendor.core), CARDS_PER_CONTAINER, reader.excess)
            reader.count = CARDS_PER_CONTAINER.most
            ask = reader.whole_cards()  # the same, up to the bound
        if reader.count and vendor.count:
            result.counts[vendor.count] = reader.count
        result.written |= reader.written
        result.denied = result.denied or reader.denied
        if ask is not None:
            asks.append(ask)
    result.asks = tuple(asks)
    return result


def count_by_webhook(resources: Resources, vendor: Vendor) -> int:
    """The number of cards that HAMi's webhook writes where only a part of a card is requested; else 0."""
    stated = vendor.count in resources.limits or vendor.count in resources.requests
    return vendor.default_count if vendor.webhook and not stated and _limits_a_part(resources, vendor) else 0


def _limits_a_part(resources: Resources, vendor: Vendor) -> bool:
    return any(name in resources.limits for name in (vendor.memory, vendor.percentage, vendor.core) if name)


class _Reader:
    """Reads the request of one container for one vendor."""

    def __init__(
        self, resources: Resources, vendor: Vendor, path: str, where: str, problems: Problems, init: bool
    ) -> None:
        self.resources, self.init = resources, init
        self.limits: Mapping[str, Quantity] = resources.limits
        self.requests: Mapping[str, Quantity] = resources.requests
        self.vendor, self.path, self.where, self.problems = vendor, path, where, problems
        self.count = 0
        self.excess = 0  # cards, if there are more than the bound
        self.written: dict[str, int] = {}  # resource -> amount
        self.denied = ""

    def ask(self) -> DeviceAsk | None:
        self.count = self._count()
        if self.count == 0:
            self._doubt_part_of_no_card()
            return None
        memory = self._memory()
        percent = self._percentage()
        compute = self._cores(percent) * MILLI_PER_CORE
        if not memory and percent is None and self.vendor.default_memory:
            memory = self.vendor.default_memory
            self._note(self.vendor.memory, f"{memory} MiB per card, by defaultMemory")
        part = None if memory else WHOLE_PERCENT if percent is None else percent
        vendor = self.vendor
        plain = not self._states(vendor.memory, vendor.percentage, vendor.core)
        return DeviceAsk(vendor.word, self.count, memory, part, compute, plain, _resources(vendor))

    def _doubt_part_of_no_card(self) -> None:
        """Warn of a request for a part of a card but for no card: nothing is given, which is probably not intended."""
        vendor = self.vendor
        parts = [name for name in (vendor.memory, vendor.percentage, vendor.core) if self._is_wanted(name)]
        if parts and self._states(vendor.count):
            text = f"is 0, so that the pod gets no card and {', '.join(parts)} counts for nothing"
            advice = f"write {vendor.count}: 1, or leave {', '.join(parts)} out"
            self.problems.mistake(self.where, self.field(vendor.count), f"{text}; {advice}")

    def _is_wanted(self, name: str) -> bool:
        """Whether the amount is stated and not 0."""
        value = self._given(name)
        try:
            return value is not None and quantity.parse(text_of(value)) != 0
        except quantity.QuantityError:
            return True

    def whole_cards(self) -> DeviceAsk | None:
        """An ask for whole cards, as many as could be read, where a part of the request is wrong."""
        if not self.count:
            return None
        return DeviceAsk(self.vendor.word, self.count, memory_percent=WHOLE_PERCENT, resources=_resources(self.vendor))

    def field(self, name: str) -> str:
        return f"{self.path}.{'requests' if name in self.requests and name not in self.limits else 'limits'}.{name}"

    def _given(self, name: str) -> Quantity | None:
        return self.limits.get(name, self.requests.get(name)) if name else None

    def _states(self, *names: str) -> bool:
        return any(self._given(name) is not None for name in names)

    def _number(self, name: str) -> tuple[int, bool] | None:
        """(amount, whether it is an integer), or None where nothing is stated."""
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
                self.written[vendor.count] = filled
                self._note(vendor.count, f"{filled}, by HAMi's webhook, as a part of a card is asked for")
            elif _limits_a_part(self.resources, vendor):
                raise AskError(
                    vendor.count,
                    "is missing: a part of a card is asked for, but no card, and HAMi's webhook passes over this pod;"
                    f" write {vendor.count}: 1 beside it",
                )
            return filled
        count, whole = given
        if not whole or count < 0:
            raise AskError(vendor.count, f"{printable(str(self._given(vendor.count)), 40)} is not a number of cards")
        if count > CARDS_PER_CONTAINER.most:
            self.excess = count
            raise TooManyCards
        return count

    def _memory(self) -> int:
        """MiB per card; 0 = not stated."""
        name = self.vendor.memory
        value = self._given(name)
        if value is None:
            return 0
        try:
            read = card_memory(value, self.vendor.memory_factor)
        except quantity.QuantityError as error:
            raise AskError(name, str(error)) from None
        if read.note:
            self.written[name] = -(-read.mib // self.vendor.memory_factor)
            self.problems.understood(self.where, self.field(name), read.note)
        if read.doubt:
            self.problems.mistake(self.where, self.field(name), read.doubt)
        return read.mib

    def _percentage(self) -> int | None:
        """1 to 100, or None where unset. HAMi clamps more to 100 and takes 0 or less as unset."""
        name = self.vendor.percentage
        given = self._number(name)
        if given is None:
            return None
        value, whole = given
        if not whole:
            raise AskError(name, "must be a whole number between 1 and 100")
        if not 0 <= value <= WHOLE_PERCENT:
            self.denied = f"{self.field(name)}: {value} is no percentage of a card's memory; write 1 to 100"
        if value > WHOLE_PERCENT:
            self._warn(name, f"{value} is more than 100 per cent; 100 is used")
            return WHOLE_PERCENT
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
            if value > WHOLE_PERCENT:
                self._warn(vendor.core, f"{value} is more than a card has; 100 is used")
            return min(value, WHOLE_PERCENT)
        stated = self._states(vendor.memory, vendor.percentage)
        exclusive = (
            not stated or not vendor.memory or (percent == WHOLE_PERCENT and self._stated_percent() == WHOLE_PERCENT)
        )
        if vendor.webhook and exclusive:
            self.written[vendor.core] = WHOLE_PERCENT
            self._note(vendor.core, "100, by HAMi's webhook: a whole card is exclusive")
            return WHOLE_PERCENT
        return min(vendor.default_cores, WHOLE_PERCENT)

    def _stated_percent(self) -> int:
        given = self._number(self.vendor.percentage)
        return given[0] if given else 0

    def _warn(self, name: str, message: str) -> None:
        self.problems.warning(self.where, self.field(name), message)

    def _note(self, name: str, message: str) -> None:
        self.problems.note(self.where, self.field(name), message)


class _PluginReader(_Reader):
    """Reads the request of one container for the plugin of another system (plugins.py)."""

    def ask(self) -> DeviceAsk | None:
        self.count = 1  # if the request is wrong and the pod runs nevertheless, it holds a card
        ask = PLUGINS[self.vendor.plugin].ask(self.resources, self.vendor, self.init)
        self.count = ask.count if ask is not None else 0
        if self.count > CARDS_PER_CONTAINER.most:
            self.excess = self.count
            raise TooManyCards
        return ask


def _resources(vendor: Vendor) -> CardResources:
    shared = min(vendor.default_cores, WHOLE_PERCENT) * MILLI_PER_CORE
    return CardResources(vendor.count, vendor.memory, vendor.percentage, vendor.core, vendor.memory_factor, shared)
