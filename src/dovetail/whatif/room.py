"""What is left on the cards of a node: whole cards, capacity on cards that are partly in use, the largest request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.engine.usage import CardUse, NodeUse, own_cards
from dovetail.model.units import WHOLE_CARD


@dataclass(frozen=True, slots=True)
class CardRoom:
    """What one card still gives to one container. All 0 where it takes no pod."""

    memory_mib: int
    compute_milli: int
    whole: bool  # nothing of the card is in use


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What the cards of one node still give."""

    cards: int  # registered cards
    usable: int  # healthy, not cordoned, on a node that takes pods
    whole: int  # of these, cards of which nothing is in use
    free_milli: int  # free capacity of all usable cards; 1000 is a card
    stranded_milli: int  # of that, on cards that are partly in use: no request for a whole card can have it
    largest: CardRoom | None  # the card that has most room of those partly in use or whole; None = no card takes a pod

    @property
    def fragmentation(self) -> float | None:
        """The share of the free capacity that no request for a whole card can have; None = nothing is free."""
        return self.stranded_milli / self.free_milli if self.free_milli else None


CLOSED = CardRoom(0, 0, False)


def takes_pods(use: NodeUse) -> bool:
    """Whether the node takes new pods with devices."""
    return not use.node.unschedulable and not use.node.unsettled


def card_room(card: CardUse) -> CardRoom:
    device = card.device
    if not device.healthy or device.cordoned or device.quarantined or card.slots_used >= device.slots:
        return CLOSED
    memory = max(device.memory_mib - card.memory_used_mib, 0)
    compute = max(device.compute_milli - card.compute_used_milli, 0)
    whole = card.slots_used == 0 and not card.memory_used_mib and not card.compute_used_milli
    if device.memory_mib and not memory:
        return CLOSED
    return CardRoom(memory, compute, whole)


def free_milli(card: CardUse, room: CardRoom) -> int:
    """The free part of the card in milli: of memory and compute, the scarcer counts."""
    if room == CLOSED:
        return 0
    size = card.device.memory_mib
    by_memory = WHOLE_CARD * room.memory_mib // size if size else WHOLE_CARD
    return min(by_memory, room.compute_milli, WHOLE_CARD)


def node_room(use: NodeUse) -> NodeRoom:
    """The room on the cards that the node registers. Nothing is free on a node that takes no pods."""
    cards = own_cards(use)
    rooms = [(card, card_room(card)) for card in cards] if takes_pods(use) else []
    open_cards = [(card, room) for card, room in rooms if room != CLOSED]
    usable = [card for card, _ in rooms if card.device.healthy and not card.device.cordoned]
    return NodeRoom(
        cards=len(cards),
        usable=len(usable),
        whole=sum(room.whole for _, room in open_cards),
        free_milli=sum(free_milli(card, room) for card, room in open_cards),
        stranded_milli=sum(free_milli(card, room) for card, room in open_cards if not room.whole),
        largest=max((room for _, room in open_cards), key=_size, default=None),
    )


def together(rooms: Iterable[NodeRoom]) -> NodeRoom:
    """The room of all nodes."""
    all_of = tuple(rooms)
    return NodeRoom(
        cards=sum(room.cards for room in all_of),
        usable=sum(room.usable for room in all_of),
        whole=sum(room.whole for room in all_of),
        free_milli=sum(room.free_milli for room in all_of),
        stranded_milli=sum(room.stranded_milli for room in all_of),
        largest=max((room.largest for room in all_of if room.largest is not None), key=_size, default=None),
    )


NO_ROOM = NodeRoom(0, 0, 0, 0, 0, None)


def roomiest(rooms: Iterable[NodeRoom]) -> NodeRoom:
    """The room of the node that fits the largest request: most whole cards, or else most on one card."""
    return max(rooms, key=lambda room: (room.whole, _size(room.largest or CLOSED)), default=NO_ROOM)


def _size(room: CardRoom) -> tuple[bool, int, int]:
    return room.whole, room.memory_mib, room.compute_milli
