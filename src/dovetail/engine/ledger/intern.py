"""Names become small integers: resources, vendors, kinds of card, UUIDs, owners; and requests become shapes.

Two pods with equal requests share a shape, and with it one vector of scores. Numbers that are no longer used are given
out again (engine/sweep.py), so tables stay as large as what exists at one time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.engine.ledger.ranges import Ranges
from dovetail.engine.ledger.remembered import Remembered
from dovetail.model.device import Device
from dovetail.model.node import BASE_RESOURCES
from dovetail.model.node import PODS as PODS_NAME
from dovetail.model.pod import DeviceRules, Pod, Qos, expected_cpu, template_key, template_parts
from dovetail.model.signals import MAX_NETWORK_KBIT
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.rows import (
    ACCEPTED_BITS,
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_FIELDS,
    ASK_PERCENT,
    FIRST_ASK,
    FOUR_CARDS,
    LAST_ASK,
    LAST_KIND_BIT,
    MORE_CARDS,
    NO_CARD,
    NO_PERCENT,
    NOUSE_TO,
    ONE_CARD,
    PART_OF_A_CARD,
    PODS_COLUMN,
    RULE_FIELDS,
    SCORED,
    SHAPE_FIELDS,
    TWO_CARDS,
    USE_FROM,
    Wants,
)
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

# Amounts are limited so that sums over a node's pods and products in scores stay inside 64 bits. A petabyte is enough.
MAX_LEDGER_AMOUNT = 2**50
TOO_MUCH = MAX_LEDGER_AMOUNT + 1  # a request beyond every capacity
NO_OWNER = -1
MOST_HARDWARE = 256  # kinds of node that get a number
MOST_REMEMBERED, MOST_REMEMBERED_BYTES = 20_000, 16 << 20  # requests known by their template
MOST_TAKEN = 1_024  # cards of one container that room is made for: no node has so many
NOWHERE = ""  # one column for all resources that no node has; every node has 0 of it
SWEEP_COSTLY_FROM = 256  # as SWEEP_FROM, for names with a row or column of a table, or with long lists
SWEEP_FROM = 1_024  # names of one sort; below, a search for unused names costs more than it saves


class Names:
    """name ↔ 0, 1, 2, … A number whose name was dropped by `keep` is given to a later name."""

    def __init__(self, names: tuple[str, ...] = (), sweep_from: int = 0) -> None:
        """`sweep_from`: the number of names from which unused ones are searched; lower if each takes much room."""
        self._ids: dict[Any, int] = {}
        self._free: list[int] = []
        self.size = 0  # one more than the highest number
        self.given = 0  # numbers given out so far, also those given out again
        self._from = min(sweep_from or SWEEP_FROM, SWEEP_FROM)
        self._limit = self._from
        self.crowded = False  # more names than the limit: search for unused ones
        for name in names:
            self(name)

    def __call__(self, name: Any) -> int:
        known = self._ids.get(name)
        if known is None:
            known = self._ids[name] = self._free.pop() if self._free else self.size
            self.size = max(self.size, known + 1)
            self.given += 1
            self.crowded = len(self._ids) > self._limit
        return known

    def known(self, name: Any) -> int | None:
        return self._ids.get(name)

    def has_room(self, most: int) -> bool:
        """Whether fewer names than `most` are known."""
        return len(self._ids) < most

    def keep(self, used: npt.NDArray[np.bool_]) -> list[int]:
        """Drop the names whose numbers are not used (`used` is by number); returns their numbers."""
        dropped = [(name, number) for name, number in self._ids.items() if not used[number]]
        for name, _ in dropped:
            del self._ids[name]
        numbers = [number for _, number in dropped]
        self._free = sorted((*self._free, *numbers), reverse=True)  # the lowest is given out first
        self._limit, self.crowded = max(self._from, 2 * len(self._ids)), False
        return numbers

    def mark(self) -> tuple[int, int]:
        """The number of names and of numbers, for `drop_since`. No name may be dropped in between."""
        return len(self._ids), len(self)

    def drop_since(self, mark: tuple[int, int]) -> list[int]:
        """Drop the names added after the mark; returns their numbers. Afterwards the table is as it was at the mark."""
        names, size = mark
        numbers = [self._ids.pop(name) for name in list(islice(self._ids, names, None))]
        self._free = sorted((*self._free, *(number for number in numbers if number < size)), reverse=True)
        self.size = size
        self.crowded = len(self._ids) > self._limit
        return numbers

    def __len__(self) -> int:
        """One more than the highest number."""
        return self.size

    def __iter__(self) -> Iterator[Any]:
        """Names by number; None if the number is free."""
        names: list[Any] = [None] * len(self)
        for name, number in self._ids.items():
            names[number] = name
        return iter(names)


def grown(array: npt.NDArray[Any], axis: int, length: int, fill: int = 0) -> npt.NDArray[Any]:
    """The array with room for `length` along an axis. It doubles, so that growing stays cheap."""
    if array.shape[axis] >= length:
        return array
    shape = list(array.shape)
    shape[axis] = max(length, 2 * shape[axis])
    larger = np.full(shape, fill, dtype=array.dtype)
    larger[tuple(slice(0, n) for n in array.shape)] = array
    return larger


class Interner:
    """Owns the table of requests (`wants`) and the numbering of everything."""

    def __init__(self) -> None:
        self.columns = Names((*BASE_RESOURCES, NOWHERE), SWEEP_COSTLY_FROM)
        self.nowhere = len(BASE_RESOURCES)
        self.base = len(self.columns)  # columns with fixed numbers
        self.vendors = Names()
        self.kinds = Names(sweep_from=SWEEP_COSTLY_FROM)  # (vendor, model, mode) -> kind of card
        self.uuids = Names()
        self.owners = Names()
        self.hardware = Names()
        self.rules = Names(sweep_from=SWEEP_COSTLY_FROM)
        self.shapes = Names()
        known = Remembered[tuple[Any, ...], tuple[int, object]](MOST_REMEMBERED, MOST_REMEMBERED_BYTES)
        self.templates = known  # template and owner -> shape, what must stay alive
        self._uuid_ranges, self._ask_ranges = Ranges(), Ranges()
        self.pinned: set[int] = set()  # columns named in arguments of policies and in settings
        self.sweeps = 0  # grows whenever numbers of shapes and classes may get another meaning
        self.wants = Wants(
            need=np.zeros((8, 8), dtype=np.int64),
            scored=np.zeros((8, SCORED), dtype=np.int64),
            shape=np.zeros((8, SHAPE_FIELDS), dtype=np.int64),
            ask=np.zeros((8, ASK_FIELDS), dtype=np.int64),
            rule=np.zeros((4, RULE_FIELDS), dtype=np.int64),
            kind_ok=np.zeros((4, 8), dtype=np.uint8),
            uuids=np.zeros(8, dtype=np.int64),
        )

    def kind(self, device: Device) -> int:
        """The number of a card's kind. A new kind is checked against every rule."""
        key = (device.vendor, device.model, device.mode)
        if (known := self.kinds.known(key)) is not None:
            return known
        new = self.kinds(key)
        accepted = grown(self.wants.kind_ok, 1, new + 1)
        for n, rules in enumerate(self.rules):
            if rules is not None:
                accepted[n, new] = _accepts(rules, key)
                self._accept_bit(n, new, bool(accepted[n, new]))
        self.wants = self.wants._replace(kind_ok=accepted)
        return new

    def _accept_bit(self, rule: int, kind: int, accepted: bool) -> None:
        """Set or clear the kind's bit of a rule. Kinds that share the last bit never clear it.

        A set bit only means that the cards must be checked.
        """
        bits, bit = int(self.wants.rule[rule, ACCEPTED_BITS]), kind_bit(kind)
        if kind < LAST_KIND_BIT:
            bits &= ~bit
        self.wants.rule[rule, ACCEPTED_BITS] = bits | (bit if accepted else 0)

    def pin_column(self, name: str) -> int:
        """The column of a resource, which keeps its number from now on."""
        column = self.columns(name)
        self.pinned.add(column)
        return column

    def hardware_of(self, made_of: bytes) -> int:
        """Equal numbers for equal nodes. −1 after the first MOST_HARDWARE kinds: such nodes are checked one by one."""
        known = self.hardware.known(made_of)
        if known is None and self.hardware.has_room(MOST_HARDWARE):
            known = self.hardware(made_of)
        return NO_OWNER if known is None else known

    def shape(self, pod: Pod, owner: int) -> int:
        """The shape of a pod's request. `owner` is its line in `peers`, or NO_OWNER if the policy does not read it."""
        template = (template_key(pod), owner)
        known = self.templates.get(template)
        if known is None:
            known = (self._shape(pod, owner), template_parts(pod))
            self.templates.remember(template, known, known[1])
        return known[0]

    def _shape(self, pod: Pod, owner: int) -> int:
        need = self._need(pod)
        need[PODS_COLUMN] = need.get(PODS_COLUMN, 0) + (1 if PODS_NAME not in pod.resources else 0)
        alone = int(takes_idle_cards(pod))
        asks = tuple(
            (
                n,
                int(container.kind),
                self.vendors(ask.vendor),
                ask.count,
                _request(ask.memory_mib),
                NO_PERCENT if ask.memory_percent is None else ask.memory_percent,
                min(ask.compute_milli, WHOLE_CARD),
                self._rule(pod.rules_for(ask.vendor)),
                int(ask.whole),
                alone,
            )
            for n, container in enumerate(pod.containers)
            for ask in container.asks
        )
        scored = (_request(pod.scored_cpu_milli), _request(pod.scored_memory), _request(expected_cpu(pod)))
        slots, compute, memory = pod.profile.weights
        network = min(pod.network_kbit, MAX_NETWORK_KBIT)
        key = (tuple(sorted(need.items())), scored, asks, (slots, compute, memory), owner, network)
        if (known := self.shapes.known(key)) is not None:
            return known
        return self._new_shape(key)

    def _need(self, pod: Pod) -> dict[int, int]:
        """Column -> amount. A resource that no node has gets no column: a pod can name thousands of them."""
        need: dict[int, int] = {}
        for name, amount in pod.resources.items():
            column = self.columns.known(name)
            if column is not None:
                need[column] = _request(amount)
            elif amount > 0:
                need[self.nowhere] = 1
        return need

    def offer(self, names: Iterable[str]) -> list[str]:
        """Add columns for resources of a node; returns those that no node had before.

        Requests are read again after that.
        """
        new = [name for name in names if self.columns.known(name) is None]
        for name in new:
            self.columns(name)
        if new:
            self.templates.clear()
        return new

    def widen(self, columns: int) -> None:
        """Make at least this many resource columns."""
        need = np.zeros((len(self.wants.need), columns), dtype=np.int64)
        need[:, : self.wants.need.shape[1]] = self.wants.need
        self.wants = self.wants._replace(need=need)

    def _new_shape(self, key: tuple[Any, ...]) -> int:
        need, scored, asks, (slots, compute, memory), owner, network = key
        n, first = self.shapes(key), self._ask_ranges.take(len(asks))
        wants, last = self.wants, first + len(asks)
        wants = wants._replace(
            need=grown(grown(wants.need, 0, n + 1), 1, len(self.columns)),
            scored=grown(wants.scored, 0, n + 1),
            shape=grown(wants.shape, 0, n + 1),
            ask=grown(wants.ask, 0, last),
        )
        wants.need[n] = 0  # the number may have belonged to another shape
        for column, amount in need:
            wants.need[n, column] = amount
        wants.scored[n] = scored
        wants.shape[n] = (first, last, owner, slots, compute, memory, _size(asks), 1 + max(dict(need)), network)
        if asks:
            wants.ask[first:last] = asks
        self.wants = wants
        return n

    def _rule(self, rules: DeviceRules) -> int:
        if (known := self.rules.known(rules)) is not None:
            return known
        n = self.rules(rules)
        lists = [[self.uuids(uuid) for uuid in uuids] for uuids in (rules.use_uuids, rules.nouse_uuids)]
        start = self._uuid_ranges.take(len(lists[0]) + len(lists[1]))
        middle = start + len(lists[0])
        wants, end = self.wants, middle + len(lists[1])
        wants = wants._replace(
            rule=grown(wants.rule, 0, n + 1),
            kind_ok=grown(wants.kind_ok, 0, n + 1),
            uuids=grown(wants.uuids, 0, end),
        )
        wants.uuids[start:end] = lists[0] + lists[1]
        bits = 0
        for kind, key in enumerate(self.kinds):
            wants.kind_ok[n, kind] = key is not None and _accepts(rules, key)
            bits |= kind_bit(kind) if wants.kind_ok[n, kind] else 0
        wants.rule[n] = (start, middle, middle, end, rules.numa_bind, bits)
        self.wants = wants
        return n

    def forget_shapes(self, used: npt.NDArray[np.bool_]) -> None:
        """Free the numbers of unused requests. A request that gets such a number later writes all its fields again."""
        self._give_back(self.shapes.keep(used), ())

    def forget_rules(self, used: npt.NDArray[np.bool_]) -> None:
        self._give_back((), self.rules.keep(used))

    def _give_back(self, shapes: Iterable[int], rules: Iterable[int]) -> None:
        """Free the lists of these requests and rules for others."""
        for n in shapes:
            first, last = self.wants.shape[n, [FIRST_ASK, LAST_ASK]].tolist()
            self._ask_ranges.give_back(first, last - first)
        for n in rules:
            first, last = self.wants.rule[n, [USE_FROM, NOUSE_TO]].tolist()
            self._uuid_ranges.give_back(first, last - first)
        self.templates.clear()

    @property
    def _tables(self) -> tuple[Names, ...]:
        return (self.columns, self.vendors, self.kinds, self.uuids, self.hardware, self.rules, self.shapes, self.owners)

    def mark(self) -> list[tuple[int, int]]:
        """The sizes of the tables, for `forget_since`."""
        return [table.mark() for table in self._tables]

    def forget_since(self, marks: list[tuple[int, int]]) -> list[int]:
        """Forget everything added after the mark; returns the numbers of owners, whose counts the ledger keeps."""
        *_, rules, shapes, owners = [table.drop_since(mark) for table, mark in zip(self._tables, marks, strict=True)]
        self._give_back(shapes, rules)
        self.sweeps += 1
        return owners

    @property
    def crowded(self) -> bool:
        """Whether one sort of names has twice as many as were in use at the last sweep."""
        return (
            self.owners.crowded
            or self.shapes.crowded
            or self.uuids.crowded
            or self.rules.crowded
            or self.columns.crowded
            or self.kinds.crowded
        )


def cards_taken(pod: Pod) -> int:
    """The most cards that a pod can get: fewer than it asks for if no node has so many."""
    return sum(min(ask.count, MOST_TAKEN) for container in pod.containers for ask in container.asks)


def kind_bit(kind: int) -> int:
    return 1 << min(kind, LAST_KIND_BIT)


def _size(asks: tuple[tuple[int, ...], ...]) -> int:
    """The size class of a pod, by the cards of all its containers; less than a whole card is a part."""
    cards = sum(ask[ASK_COUNT] for ask in asks)
    if cards <= 1:
        whole = all(ask[ASK_COMPUTE] >= WHOLE_CARD or ask[ASK_PERCENT] == 100 for ask in asks)
        return NO_CARD if cards == 0 else ONE_CARD if whole else PART_OF_A_CARD
    return TWO_CARDS if cards == 2 else FOUR_CARDS if cards <= 4 else MORE_CARDS


def capacity(amount: int) -> int:
    return max(0, min(amount, MAX_LEDGER_AMOUNT))


def _request(amount: int) -> int:
    return max(0, min(amount, TOO_MUCH))


def _accepts(rules: DeviceRules, kind: tuple[str, str, str]) -> bool:
    """Whether the rules accept a kind of card: type lists and mode (HAMi's rule 3).

    Rules of another vendor are never applied to the card.
    """
    _vendor, model, mode = kind
    return rules.accepts(model) and (not rules.mode or mode in rules.mode)


def takes_idle_cards(pod: Pod) -> bool:
    """Whether the pod takes only cards that no pod uses, because of its class. A joint policy uses no device policy."""
    if pod.qos is not Qos.GUARANTEED or NODE_POLICIES[pod.profile.node].offer is not None:
        return False
    return any(DEVICE_POLICIES[name].guaranteed_idle_only for name in pod.profile.device)
