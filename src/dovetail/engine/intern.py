"""Names become small integers once: resources, vendors, kinds of card, UUIDs, owners; and requests become shapes.

Two pods that ask for the same thing share a shape, and with it one vector of scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.model.device import WHOLE_COMPUTE, Device, type_matches
from dovetail.model.node import BASE_RESOURCES
from dovetail.model.node import PODS as PODS_NAME
from dovetail.model.pod import DeviceRules, Pod
from dovetail.policies.rows import (
    ACCEPTED_BITS,
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_FIELDS,
    ASK_PERCENT,
    FOUR_CARDS,
    LAST_KIND_BIT,
    MORE_CARDS,
    NO_CARD,
    NO_PERCENT,
    ONE_CARD,
    PART_OF_A_CARD,
    PODS,
    RULE_FIELDS,
    SHAPE_FIELDS,
    TWO_CARDS,
    Wants,
)

# Amounts are cut here so that sums over a node's pods and products in scores stay inside 64 bits. A petabyte is enough.
LARGEST = 2**50
TOO_MUCH = LARGEST + 1  # a request beyond every capacity
NOBODY = -1
MOST_HARDWARE = 256  # kinds of node that are told apart
MOST_REMEMBERED = 200_000  # requests known by their template


def template_key(pod: Pod) -> tuple[int, ...]:
    """Replicas share the objects of their template, so their ids are the quickest key there is to what they ask for.
    Whoever keeps the key keeps the objects, too (`template_parts`), so that the ids stay theirs."""
    return (
        id(pod.resources),
        id(pod.containers),
        id(pod.device_rules),
        id(pod.profile),
        pod.scored_cpu_milli,
        pod.scored_memory,
    )


def template_parts(pod: Pod) -> tuple[object, ...]:
    return (pod.resources, pod.containers, pod.device_rules, pod.profile)


class Names:
    """name ↔ 0, 1, 2, …"""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self._ids: dict[Any, int] = {}
        for name in names:
            self(name)

    def __call__(self, name: Any) -> int:
        return self._ids.setdefault(name, len(self._ids))

    def known(self, name: Any) -> int | None:
        return self._ids.get(name)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Any:
        return iter(self._ids)


def grown(array: npt.NDArray[Any], axis: int, length: int, fill: int = 0) -> npt.NDArray[Any]:
    """The array with room for `length` along an axis, doubling so that growing stays cheap."""
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
        self.columns = Names(BASE_RESOURCES)
        self.vendors = Names()
        self.kinds = Names()  # (vendor, model, mode) -> kind of card
        self.uuids = Names()
        self.owners = Names()
        self._hardware = Names()
        self._rules = Names()
        self._shapes = Names()
        self._known: dict[tuple[Any, ...], tuple[int, object]] = {}  # template and owner -> shape, what must stay alive
        self._uuid_count = self._ask_count = 0
        self.wants = Wants(
            need=np.zeros((8, 8), dtype=np.int64),
            scored=np.zeros((8, 2), dtype=np.int64),
            shape=np.zeros((8, SHAPE_FIELDS), dtype=np.int64),
            ask=np.zeros((8, ASK_FIELDS), dtype=np.int64),
            rule=np.zeros((4, RULE_FIELDS), dtype=np.int64),
            kind_ok=np.zeros((4, 8), dtype=np.uint8),
            uuids=np.zeros(8, dtype=np.int64),
        )

    def kind(self, device: Device) -> int:
        """The kind of a card; a new one is held against every rule."""
        key = (device.vendor, device.model, device.mode)
        if (known := self.kinds.known(key)) is not None:
            return known
        new = self.kinds(key)
        accepted = grown(self.wants.kind_ok, 1, new + 1)
        for n, rules in enumerate(self._rules):
            accepted[n, new] = _accepts(rules, key)
            if accepted[n, new]:
                self.wants.rule[n, ACCEPTED_BITS] |= kind_bit(new)
        self.wants = self.wants._replace(kind_ok=accepted)
        return new

    def hardware_of(self, made_of: bytes) -> int:
        """Equal numbers for equal nodes; −1 for those beyond the first few kinds, which are taken one by one."""
        known = self._hardware.known(made_of)
        if known is None and len(self._hardware) < MOST_HARDWARE:
            known = self._hardware(made_of)
        return NOBODY if known is None else known

    def shape(self, pod: Pod, owner: int) -> int:
        """The shape of a pod's request. `owner` is its line in `peers`, or NOBODY where the policy does not care."""
        template = (template_key(pod), owner)
        known = self._known.get(template)
        if known is None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            known = self._known[template] = (self._shape(pod, owner), template_parts(pod))
        return known[0]

    def _shape(self, pod: Pod, owner: int) -> int:
        need = {self.columns(name): _request(amount) for name, amount in pod.resources.items()}
        need[PODS] = need.get(PODS, 0) + (1 if PODS_NAME not in pod.resources else 0)
        asks = tuple(
            (
                n,
                int(container.kind),
                self.vendors(ask.vendor),
                ask.count,
                _request(ask.memory_mib),
                NO_PERCENT if ask.memory_percent is None else ask.memory_percent,
                min(ask.compute_milli, WHOLE_COMPUTE),
                self._rule(pod.rules_for(ask.vendor)),
                int(ask.whole),
            )
            for n, container in enumerate(pod.containers)
            for ask in container.asks
        )
        scored = (_request(pod.scored_cpu_milli), _request(pod.scored_memory))
        slots, compute, memory = pod.profile.weights
        key = (tuple(sorted(need.items())), scored, asks, (slots, compute, memory), owner)
        if (known := self._shapes.known(key)) is not None:
            return known
        return self._new_shape(key)

    def widen(self, columns: int) -> None:
        """At least as many resource columns."""
        need = np.zeros((len(self.wants.need), columns), dtype=np.int64)
        need[:, : self.wants.need.shape[1]] = self.wants.need
        self.wants = self.wants._replace(need=need)

    def _new_shape(self, key: tuple[Any, ...]) -> int:
        need, scored, asks, (slots, compute, memory), owner = key
        n, first, last = self._shapes(key), self._ask_count, self._ask_count + len(asks)
        wants = self.wants
        wants = wants._replace(
            need=grown(grown(wants.need, 0, n + 1), 1, len(self.columns)),
            scored=grown(wants.scored, 0, n + 1),
            shape=grown(wants.shape, 0, n + 1),
            ask=grown(wants.ask, 0, last),
        )
        for column, amount in need:
            wants.need[n, column] = amount
        wants.scored[n] = scored
        wants.shape[n] = (first, last, owner, slots, compute, memory, _size(asks), 1 + max(dict(need)))
        if asks:
            wants.ask[first:last] = asks
        self._ask_count = last
        self.wants = wants
        return n

    def _rule(self, rules: DeviceRules) -> int:
        if (known := self._rules.known(rules)) is not None:
            return known
        n = self._rules(rules)
        lists = [[self.uuids(uuid) for uuid in uuids] for uuids in (rules.use_uuids, rules.nouse_uuids)]
        start, middle = self._uuid_count, self._uuid_count + len(lists[0])
        end = middle + len(lists[1])
        wants = self.wants
        wants = wants._replace(
            rule=grown(wants.rule, 0, n + 1),
            kind_ok=grown(wants.kind_ok, 0, n + 1),
            uuids=grown(wants.uuids, 0, end),
        )
        wants.uuids[start:end] = lists[0] + lists[1]
        bits = 0
        for kind, key in enumerate(self.kinds):
            wants.kind_ok[n, kind] = _accepts(rules, key)
            bits |= kind_bit(kind) if wants.kind_ok[n, kind] else 0
        wants.rule[n] = (start, middle, middle, end, rules.numa_bind, bits)
        self._uuid_count = end
        self.wants = wants
        return n


def kind_bit(kind: int) -> int:
    return 1 << min(kind, LAST_KIND_BIT)


def _size(asks: tuple[tuple[int, ...], ...]) -> int:
    """By the cards of all containers together; anything less than a whole card is a part."""
    cards = sum(ask[ASK_COUNT] for ask in asks)
    if cards <= 1:
        whole = all(ask[ASK_COMPUTE] >= WHOLE_COMPUTE or ask[ASK_PERCENT] == 100 for ask in asks)
        return NO_CARD if cards == 0 else ONE_CARD if whole else PART_OF_A_CARD
    return TWO_CARDS if cards == 2 else FOUR_CARDS if cards <= 4 else MORE_CARDS


def capacity(amount: int) -> int:
    return max(0, min(amount, LARGEST))


def _request(amount: int) -> int:
    return max(0, min(amount, TOO_MUCH))


def _accepts(rules: DeviceRules, kind: tuple[str, str, str]) -> bool:
    """Type lists and mode (rule 3). An unknown vendor's rules never see the card."""
    _vendor, model, mode = kind
    if any(type_matches(model, unwanted) for unwanted in rules.nouse_types):
        return False
    if rules.use_types and not any(type_matches(model, wanted) for wanted in rules.use_types):
        return False
    return not rules.mode or mode in rules.mode
