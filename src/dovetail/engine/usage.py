"""What is in use, as values: for tables, pictures and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dovetail.engine.kernel.state import POD_ROW
from dovetail.engine.ledger.holders import HeldPod
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.scheduler import Scheduler
from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node
from dovetail.model.order import natural
from dovetail.policies.rows import CARD_MEMORY, COMPUTE, SLOTS


@dataclass(frozen=True, slots=True)
class CardUse:
    device: Device
    slots_used: int
    memory_used_mib: int
    compute_used_milli: int
    pods: tuple[str, ...]  # namespace/name
    assumed: bool  # part of it is a guess: the card of a pod is not recorded
    known: tuple[int, int, int] = (0, 0, 0)  # slots, MiB and milli of pods whose card is not a guess
    known_pods: tuple[str, ...] = ()  # those pods


@dataclass(frozen=True, slots=True)
class NodeUse:
    node: Node
    used: Mapping[str, int]  # resource name -> amount
    cards: tuple[CardUse, ...]  # the node's cards in registration order, then cards that only pods name
    pods: int


NOTHING_KNOWN: Mapping[str, NodeUse] = MappingProxyType({})


def usage(scheduler: Scheduler, unchanged: Mapping[str, NodeUse] = NOTHING_KNOWN) -> tuple[NodeUse, ...]:
    """The use of every node that exists, by name. `unchanged`: nodes whose use is known; it is not read again."""
    ledger, found = scheduler.ledger, _Holders(scheduler.ledger)
    columns = list(scheduler.intern.columns)
    return tuple(
        unchanged[name]
        if name in unchanged
        else NodeUse(
            ledger.nodes[row],
            {
                resource: used
                for resource, used in zip(columns, ledger.rows.used[row].tolist(), strict=False)
                if resource
            },
            tuple(found.cards(row)),
            found.pods[row],
        )
        for name, row in sorted(ledger.row_of.items())
        if ledger.is_active(row)
    )


class _Holders:
    """Which pods hold which card."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.pods = [0] * len(ledger.nodes)  # by row
        self._on_card: dict[tuple[int, str], list[str]] = {}  # (row, uuid) -> pods
        self._guessed: dict[tuple[int, str], list[HeldPod]] = {}  # the same, for pods whose card is a guess
        for held in ledger.pods.values():
            row = int(ledger.book.pod[held.slot, POD_ROW])
            self.pods[row] += 1
            for uuid in {share.uuid for share in ledger.shares(held.slot)}:
                self._on_card.setdefault((row, uuid), []).append(held.pod.key)
                if held.assumed:
                    self._guessed.setdefault((row, uuid), []).append(held)

    def cards(self, row: int) -> Iterator[CardUse]:
        ledger, on_card, guessed = self._ledger, self._on_card, self._guessed
        stock = ledger.nodes[row].enforcer is Enforcer.STOCK  # kubelet picks the card: our choice is only for counting
        for device, held in zip(ledger.devices(row), ledger.rows.held[row].tolist(), strict=False):
            key, sizes = (row, device.uuid), (held[SLOTS], held[CARD_MEMORY], held[COMPUTE])
            who = tuple(sorted(on_card[key], key=natural)) if key in on_card else ()
            if key not in guessed:
                yield CardUse(device, *sizes, who, stock and bool(who), sizes, who)
                continue
            names = {one.pod.key for one in guessed[key]}
            known = _less(ledger, sizes, device, guessed[key])
            yield CardUse(device, *sizes, who, True, known, tuple(name for name in who if name not in names))


def _less(
    ledger: Ledger, sizes: tuple[int, int, int], device: Device, guesses: Iterable[HeldPod]
) -> tuple[int, int, int]:
    """What is in use of the card, without these pods."""
    slots, memory, compute = sizes
    for held in guesses:
        for card, mine, mib, milli in ledger.peak(held.slot):
            if card.uuid == device.uuid:
                slots, memory, compute = slots - mine, memory - mib, compute - milli
    return slots, memory, compute


def own_cards(use: NodeUse) -> tuple[CardUse, ...]:
    """The cards that the node registers, without cards that only pods name."""
    return tuple(card for card in use.cards if not card.device.quarantined)


def whole_cards_free(uses: Iterable[NodeUse]) -> int:
    """The number of unused cards that are healthy and not cordoned."""
    return sum(
        1
        for use in uses
        for card in own_cards(use)
        if card.slots_used == 0 and card.device.healthy and not card.device.cordoned
    )
