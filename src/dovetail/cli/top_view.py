"""The frame of `top` as lines of text: a head, nodes with a bar for each GPU, and the pods that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dovetail.cli.board import Board
from dovetail.cli.output.amounts import count
from dovetail.cli.output.list_view import age
from dovetail.cli.output.listing_pods import asked_text, queue_items
from dovetail.engine.usage import CardUse, NodeUse, own_cards
from dovetail.model.signals import CardSignals, NodeSignals
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


def head(board: Board, choice: TopChoice, width: int) -> list[StyledLine]:
    """What is given to pods, and what is measured."""
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
    return [_line(f"{' · '.join(parts)} · {chosen}", "head", width), _line(_load_text(board), "", width)]


def _load_text(board: Board) -> str:
    """The means of all nodes and GPUs that are measured, or why none is."""
    load, uses = board.load, board.overview.nodes
    known = [one for one in load.nodes.values() if one != NodeSignals(one.measured_at)]
    if not known:
        return f"measured load: {load.remark or 'the sources say nothing of these nodes'}"
    cards = [card for one in known for card in one.cards]
    means = [
        f"GPUs {_mean(card.compute for card in cards)}",
        f"their memory {_mean(card.memory for card in cards)}",
        f"CPU {_mean(one.cpu for one in known)}",
        f"memory {_mean(one.memory for one in known)}",
    ]
    measured = f"measured load: {' · '.join(means)} · of {len(known):,}/{len(uses):,} nodes, {len(cards):,} GPUs"
    return f"{measured} · {load.remark}" if load.remark else measured


def _mean(permille: Iterable[int | None]) -> str:
    known = [one for one in permille if one is not None]
    return _of_whole(round(sum(known) / len(known)) if known else None)


def _of_whole(permille: int | None) -> str:
    return "-" if permille is None else f"{permille / 10:.0f} %"


def nodes(board: Board, choice: TopChoice, width: int) -> Iterator[StyledLine]:
    """A line for each node that the search finds, and one for each of its GPUs."""
    rooms = board.rooms
    for use in sorted(board.overview.nodes, key=_key(choice.order, rooms)):
        cards = [card for card in use.cards if _found(choice.search, use, card)]
        if not use.cards or (choice.search and not cards and choice.search not in use.node.name):
            continue
        load = board.load.nodes.get(use.node.name)
        yield _node(use, rooms[use.node.name], load, width)
        if choice.cards:
            measured = {one.uuid: one for one in load.cards} if load is not None else {}
            beside = bool(board.load.nodes)
            for card in cards or use.cards:
                yield _card(use, card, _card_load(measured.get(card.device.uuid)) if beside else "", width)


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
    return [*head(board, choice, width), StyledLine(""), *nodes(board, choice, width), *title, *late]


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


def _card_load(load: CardSignals | None) -> str:
    """`load  85 %  71 %  `: use of the GPU, and of its memory."""
    compute, memory = (None, None) if load is None else (load.compute, load.memory)
    return f"load {_of_whole(compute):>5} {_of_whole(memory):>5}  "


def _node(use: NodeUse, room: NodeRoom, load: NodeSignals | None, width: int) -> StyledLine:
    model = next((card.device.model for card in use.cards), "")
    state = "" if takes_pods(use) else "  takes no pods"
    text = f"{_cut(use.node.name, 24):<24} {room.whole}/{room.cards} free  fragmented {_percent(room):>5}  "
    measured = f"CPU {_of_whole(load.cpu)}, memory {_of_whole(load.memory)}  " if load is not None else ""
    return _line(f"{text}{count(use.pods, 'pod'):>7}  {measured}{model}{state}", "node", width)


def _card(use: NodeUse, card: CardUse, load: str, width: int) -> StyledLine:
    device = card.device
    share = card.memory_used_mib / device.memory_mib if device.memory_mib else card.compute_used_milli / 1000
    cells = min(BAR_CELLS, round(share * BAR_CELLS) or bool(card.slots_used))
    index = "-" if device.quarantined else str(device.index)
    bar = f"▕{USED_CELL * cells}{FREE_CELL * (BAR_CELLS - cells)}▏"
    memory = f"{card.memory_used_mib:,}/{device.memory_mib:,}"
    amounts = f"{memory:>15} MiB {card.compute_used_milli // 10:>3} %"
    return _line(f"  {index:>3} {bar} {amounts}  {load}{_state(use, card)}{_pods(card)}", _style(use, card), width)


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
