"""The frame of `top` as lines of text: a head, nodes with a bar for each GPU, and the pods that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dovetail.cli.board import Board
from dovetail.cli.output.amounts import count
from dovetail.cli.output.list_view import age
from dovetail.cli.output.listing_pods import asked_text, queue_items
from dovetail.engine.usage import CardUse, NodeUse, own_cards
from dovetail.model.visible import visible
from dovetail.whatif.room import NodeRoom, takes_pods, together

USED_CELL, FREE_CELL = "█", "·"
BAR_CELLS = 16
POD_CELLS = 28  # characters of a pod in a line of a GPU
Style = Literal["", "head", "node", "free", "partly", "full", "closed", "waiting"]
Order = Literal["name", "free", "memory", "fragmentation"]
NODE_ORDERS: tuple[Order, ...] = ("name", "free", "memory", "fragmentation")


class StyledLine(NamedTuple):
    text: str
    style: Style = ""


@dataclass(frozen=True, slots=True)
class TopChoice:
    """What the user has chosen with keys."""

    order: Order = "name"
    search: str = ""  # part of the name of a node, a GPU model or a pod
    cards: bool = True  # a line for each GPU


def head(board: Board, choice: TopChoice, width: int) -> StyledLine:
    uses = board.overview.nodes
    room = together(board.rooms.values())
    used = sum(card.memory_used_mib for use in uses for card in own_cards(use))
    size = sum(card.device.memory_mib for use in uses for card in own_cards(use))
    memory = f"{100 * used // size} %" if size else "-"
    parts = [
        f"{len(uses):,} nodes",
        f"{room.cards:,} GPUs, {room.whole:,} free",
        f"memory {memory}",
        f"fragmented {_percent(room)}",
        f"{len(board.overview.waiting):,} wait",
    ]
    chosen = f"by {choice.order}" + (f", filter {choice.search!r}" if choice.search else "")
    return _line(f"{' · '.join(parts)} · {chosen}", "head", width)


def nodes(board: Board, choice: TopChoice, width: int) -> Iterator[StyledLine]:
    """A line for each node that the search finds, and one for each of its GPUs."""
    rooms = board.rooms
    for use in sorted(board.overview.nodes, key=_key(choice.order, rooms)):
        cards = [card for card in use.cards if _found(choice.search, use, card)]
        if not use.cards or (choice.search and not cards and choice.search not in use.node.name):
            continue
        yield _node(use, rooms[use.node.name], width)
        if choice.cards:
            yield from (_card(use, card, width) for card in cards or use.cards)


def waiting(board: Board, choice: TopChoice, width: int) -> Iterator[StyledLine]:
    """The pods that wait, in the order of service."""
    for item in queue_items(board):
        name = f"{item['namespace']}/{item['name']}"
        if choice.search in name:
            wait = age(item["waitSeconds"])
            line = f"{item['position']:>4} {_cut(name, POD_CELLS):<{POD_CELLS}} {asked_text(item):<12} {wait:>4}  "
            yield _line(line + (item["why"] or "not decided yet"), "waiting", width)


def frame(board: Board, choice: TopChoice, width: int) -> list[StyledLine]:
    """The whole frame, for a pipe."""
    late = list(waiting(board, choice, width))
    title = [StyledLine(""), StyledLine("WAITING", "head")] if late else []
    return [head(board, choice, width), StyledLine(""), *nodes(board, choice, width), *title, *late]


def _key(order: Order, rooms: dict[str, NodeRoom]) -> Callable[[NodeUse], tuple[float, str]]:
    """The most of it first; then by name."""

    def amount(use: NodeUse) -> float:
        room = rooms[use.node.name]
        if order == "free":
            return room.whole
        if order == "fragmentation":
            return room.stranded_milli
        if order == "memory":
            size = sum(card.device.memory_mib for card in use.cards)
            return sum(card.memory_used_mib for card in use.cards) / size if size else 0.0
        return 0.0

    return lambda use: (-amount(use), use.node.name)


def _found(search: str, use: NodeUse, card: CardUse) -> bool:
    texts = (use.node.name, card.device.model, card.device.uuid, *card.pods)
    return any(search in text for text in texts)


def _node(use: NodeUse, room: NodeRoom, width: int) -> StyledLine:
    model = next((card.device.model for card in use.cards), "")
    state = "" if takes_pods(use) else "  takes no pods"
    text = f"{_cut(use.node.name, 24):<24} {room.whole}/{room.cards} free  fragmented {_percent(room):>5}  "
    return _line(f"{text}{count(use.pods, 'pod'):>7}  {model}{state}", "node", width)


def _card(use: NodeUse, card: CardUse, width: int) -> StyledLine:
    device = card.device
    share = card.memory_used_mib / device.memory_mib if device.memory_mib else card.compute_used_milli / 1000
    cells = min(BAR_CELLS, round(share * BAR_CELLS) or bool(card.slots_used))
    index = "-" if device.quarantined else str(device.index)
    bar = f"▕{USED_CELL * cells}{FREE_CELL * (BAR_CELLS - cells)}▏"
    memory = f"{card.memory_used_mib:,}/{device.memory_mib:,}"
    amounts = f"{memory:>15} MiB {card.compute_used_milli // 10:>3} %"
    return _line(f"  {index:>3} {bar} {amounts}  {_state(use, card)}{_pods(card)}", _style(use, card), width)


def _state(use: NodeUse, card: CardUse) -> str:
    if card.device.quarantined:
        return "unregistered "
    return "unhealthy " * (not card.device.healthy) + "cordoned " * card.device.cordoned


def _style(use: NodeUse, card: CardUse) -> Style:
    if _state(use, card) or not takes_pods(use):
        return "closed"
    if not card.slots_used:
        return "free"
    full = card.memory_used_mib >= card.device.memory_mib or card.slots_used >= card.device.slots
    return "full" if full else "partly"


def _pods(card: CardUse) -> str:
    if not card.pods:
        return ""
    more = f" +{len(card.pods) - 1}" if len(card.pods) > 1 else ""
    return f"{_cut(card.pods[0], POD_CELLS)}{more}{' (kubelet picks)' if card.assumed else ''}"


def _percent(room: NodeRoom) -> str:
    return "-" if room.fragmentation is None else f"{100 * room.fragmentation:.0f} %"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _line(text: str, style: Style, width: int) -> StyledLine:
    return StyledLine(_cut(visible(text).rstrip(), width), style)
