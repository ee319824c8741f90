"""Draws the cluster's GPUs: a bar per card, a colour per pod.

Large clusters are drawn with a cell per card, and very large ones as a histogram.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

from dovetail.cli.output.amounts import card_index, card_mib, count
from dovetail.engine.usage import CardUse, NodeUse, own_cards
from dovetail.model.order import as_people_count, natural

BAR_WIDTH = 32  # cells of a bar
MOST_BARS = 64  # cards drawn as bars; more become a cell each
MOST_CELLS = 4096  # cards drawn as cells; more become a histogram
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red", "bright_cyan", "bright_magenta", "bright_yellow")

Holders = Mapping[str, Sequence[tuple[str, int]]]  # card uuid -> (pod, MiB it holds), in drawing order


@dataclass(frozen=True, slots=True)
class Ink:
    """The characters of a picture. Neighbours in a bar have different fills, so that it is readable without colour."""

    fills: str
    other: str  # used by other pods than those of the plan
    free: str
    left: str
    right: str
    levels: str  # from empty to full


UNICODE = Ink("█▓▒", "▚", "·", "▕", "▏", "·▁▂▃▄▅▆▇█")
ASCII = Ink("#=+", "%", ".", "[", "]", ".12345678")


def ink_for(encoding: str | None) -> Ink:
    """Unicode blocks if the encoding has them, else ASCII."""
    try:
        (UNICODE.fills + UNICODE.other + UNICODE.free + UNICODE.left + UNICODE.right + UNICODE.levels).encode(
            encoding or "ascii"
        )
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def draw(uses: Sequence[NodeUse], holders: Holders, ink: Ink) -> Iterator[str]:
    """The picture as lines of text. Nodes without cards are left out."""
    with_cards = sorted((use for use in uses if use.cards), key=lambda use: as_people_count(use.node.name))
    cards = sum(len(use.cards) for use in with_cards)
    if cards <= MOST_BARS:
        yield from _bars(with_cards, holders, ink)
    elif cards <= MOST_CELLS:
        yield from _cells(with_cards, ink)
    else:
        yield from _histogram(with_cards)


def _bars(uses: Sequence[NodeUse], holders: Holders, ink: Ink) -> Iterator[str]:
    names = sorted({pod for held in holders.values() for pod, _ in held}, key=natural)
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    widest = max((len(_memory(card)) for use in uses for card in use.cards), default=0)
    for use in uses:
        models = Counter(card.device.model for card in own_cards(use))
        title = ", ".join(f"{number} × {model}" for model, number in models.items())
        yield f"{click.style(use.node.name, bold=True)}  {title if ink is UNICODE else title.replace('×', 'x')}"
        for card in use.cards:
            held = holders.get(card.device.uuid, ())
            who = "  ".join(click.style(pod, fg=colours[pod]) for pod, _ in held)
            others = len(set(card.pods)) - len(held)
            if others > 0:
                who += ("  " if who else "") + f"+ {count(others, 'pod')}"
            if card.assumed:
                who += "  " + click.style("(assumed)", dim=True)
            bar = _bar(card, held, colours, ink)
            yield f"  {card_index(card.device):>2} {bar} {_memory(card):>{widest}}  {who or _state(card)}".rstrip()


def _bar(card: CardUse, held: Sequence[tuple[str, int]], colours: Mapping[str, str], ink: Ink) -> str:
    """A bar: the pods of the plan first, then other pods, then free memory.

    A pod that holds memory gets at least one cell.
    """
    whole = max(card.device.memory_mib, card.memory_used_mib, 1)
    parts, edge, sum_mib = [], 0, 0
    for at, (pod, memory) in enumerate(held):
        sum_mib += memory
        end = min(BAR_WIDTH, max(round(BAR_WIDTH * sum_mib / whole), edge + 1))
        parts.append(click.style(ink.fills[at % len(ink.fills)] * (end - edge), fg=colours[pod]))
        edge = end
    used_by_others = card.memory_used_mib - sum_mib
    if used_by_others > 0:
        end = min(BAR_WIDTH, max(round(BAR_WIDTH * card.memory_used_mib / whole), edge + 1))
        parts.append(click.style(ink.other * (end - edge), dim=True))
        edge = end
    parts.append(click.style(ink.free * (BAR_WIDTH - edge), dim=True))
    return ink.left + "".join(parts) + ink.right


def _memory(card: CardUse) -> str:
    return f"{card.memory_used_mib:,} / {card_mib(card.device.memory_mib)}"


def _state(card: CardUse) -> str:
    device = card.device
    if device.quarantined:
        return click.style("quarantined", fg="red")
    if not device.healthy:
        return click.style("unhealthy", fg="red")
    return click.style("cordoned" if device.cordoned else "free", dim=True)


def _cells(uses: Sequence[NodeUse], ink: Ink) -> Iterator[str]:
    yield f"One cell per GPU, by memory in use: {ink.levels[0]} empty … {ink.levels[-1]} full"
    widest = max(len(use.node.name) for use in uses)
    for use in uses:
        cells = "".join(ink.levels[_level(card, len(ink.levels) - 1)] for card in use.cards)
        yield f"{use.node.name:<{widest}}  {ink.left}{cells}{ink.right}"


def _level(card: CardUse, steps: int) -> int:
    """The level from 0 to `steps`. Only an empty card has level 0."""
    if card.slots_used == 0 and card.memory_used_mib == 0:
        return 0
    return max(1, min(steps, -(-steps * card.memory_used_mib // max(card.device.memory_mib, 1))))


def _histogram(uses: Sequence[NodeUse]) -> Iterator[str]:
    rows: dict[str, Counter[int]] = {}  # model -> quarter of use -> cards
    for use in uses:
        for card in use.cards:
            rows.setdefault(card.device.model, Counter())[_level(card, 4)] += 1
    yield "GPUs by memory in use: empty, up to a quarter, half, three quarters, full"
    widest = max(len(model) for model in rows)
    for model, levels in sorted(rows.items()):
        yield f"{model:<{widest}}  " + "  ".join(f"{levels[level]:>7,}" for level in range(5))
