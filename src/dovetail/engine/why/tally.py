"""Why a node's cards are not enough: each card's reason, counted and worded as in HAMi (`3/8 CardTypeMismatch`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from dovetail.engine.kernel.build import Lens
from dovetail.engine.kernel.choose import is_bound, slack
from dovetail.engine.kernel.fit import card_refusal, only_idle, vendor_cards
from dovetail.engine.kernel.state import NONE, STYLE_IDLE_ONLY, State
from dovetail.engine.wording import Fact
from dovetail.model.device import Device
from dovetail.model.reason import Reason, checks_passed, hami_name, sentence
from dovetail.policies.cards import memory_on
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_KIND,
    ASK_VENDOR,
    CARD_MEMORY,
    COMPUTE,
    FIRST_ASK,
    LAST_ASK,
    NUMA,
    Ints,
    Rows,
    Wants,
)

_BEFORE_NUMA = (Reason.CARD_QUARANTINED, Reason.CARD_UNHEALTHY, Reason.CARD_CORDONED, Reason.CARD_TYPE)


class CardVerdict(NamedTuple):
    uuid: str
    reason: Reason
    sentence: str


class _Card(NamedTuple):
    """A card's verdict in parts. `missing` is a part of what is asked; inf = the reason is not an amount."""

    uuid: str
    reason: Reason
    fact: Fact
    missing: float

    @property
    def distance(self) -> tuple[float, int]:
        """How far the card is from fitting; smaller is nearer."""
        return self.missing, -checks_passed(self.reason)


@dataclass(frozen=True, slots=True)
class Tally:
    """The verdict over all cards. `reason` and `fact` are those of the deciding card.

    That is the last of the additional cards that would have to fit, nearest first.
    """

    reason: Reason
    fact: Fact
    hami: str
    cards: tuple[CardVerdict, ...]
    shortfall: float


def first_without_cards(state: State, lens: Lens, row: int, shape: int, quota: Ints, draw: int) -> int | None:
    """The first ask, in container order, that finds no cards on this row; None if all find cards.

    The working copy then holds what the asks before it took: `tally_ask` starts from there.
    """
    if state.wants.shape[shape, FIRST_ASK] == state.wants.shape[shape, LAST_ASK]:
        return None
    found = lens.choose_all(state.rows, state.wants, row, shape, lens.style, quota, draw, state.scratch)
    return None if found >= 0 else int(state.wants.shape[shape, FIRST_ASK]) + NONE - found


def tally_ask(
    state: State, lens: Lens, row: int, shape: int, ask: int, draw: int, devices: tuple[Device, ...]
) -> Tally:
    """Check the cards in the order of choosing, on the working copy that `first_without_cards` left, and count."""
    rows, wants, work = state.rows, state.wants, state.scratch
    held, left = work.trial if wants.ask[ask, ASK_KIND] == 0 else work.run, work.left
    vendor = wants.ask[ask, ASK_VENDOR]
    memory_left, compute_left = int(left[vendor, 0]), int(left[vendor, 1])
    bound = is_bound(rows, wants, row, ask)
    counts: Counter[Reason] = Counter()
    cards: list[_Card] = []
    numa, collected = None, 0
    number = lens.order_cards(rows, wants, row, shape, ask, held, lens.style, draw, work)
    for d in work.order[:number].tolist():
        if bound and rows.card[row, d, NUMA] != numa and _reaches_numa_rule(rows, wants, row, d, ask, held):
            counts[Reason.CARD_NUMA] += collected  # the cards collected so far are on another NUMA node
            numa, collected = rows.card[row, d, NUMA], 0
            memory_left, compute_left = int(left[vendor, 0]), int(left[vendor, 1])  # and use no quota any more
        spare, idle = slack(rows, row, d, held, work, CARD_MEMORY), slack(rows, row, d, held, work, COMPUTE)
        code = card_refusal(
            rows,
            wants,
            row,
            d,
            ask,
            held,
            only_idle(wants, ask, lens.style[STYLE_IDLE_ONLY]),
            memory_left + spare,
            compute_left + idle,
        )
        reason = Reason(code)
        if reason == Reason.OK:
            collected += 1
            memory_left -= max(0, memory_on(rows, wants, row, d, ask) - spare)
            compute_left -= max(0, int(wants.ask[ask, ASK_COMPUTE]) - idle)
        elif reason != Reason.CARD_QUARANTINED:
            counts[reason] += 1
        cards.append(_Card(devices[d].uuid, reason, *_card_fact(state, row, d, ask, held, reason)))
    counts[Reason.CARDS_TOO_FEW_FIT] += collected
    return _sum_up(counts, cards, vendor_cards(rows, row, vendor), int(wants.ask[ask, ASK_COUNT]))


def _reaches_numa_rule(rows: Rows, wants: Wants, row: int, d: int, ask: int, held: Ints) -> bool:
    """Whether the card passes the rules that HAMi checks before the NUMA rule; quotas come later."""
    return Reason(card_refusal(rows, wants, row, d, ask, held, 0, 0, 0)) not in _BEFORE_NUMA


def _sum_up(counts: Counter[Reason], cards: list[_Card], number: int, asked: int) -> Tally:
    fitting = counts.pop(Reason.CARDS_TOO_FEW_FIT)
    causes = [(count, reason) for reason, count in counts.items() if count > 0]
    if fitting:
        causes.append((fitting, Reason.CARDS_TOO_FEW_FIT))
    hami = ", ".join(sorted(f"{count}/{number} {hami_name(cause)}" for count, cause in causes))
    pivot = _pivot(counts, cards, asked - fitting)
    missing = min(pivot.missing, (asked - fitting) / asked if fitting else float("inf"))
    fact = replace(pivot.fact, fitting=fitting, asked=asked) if fitting else pivot.fact
    said = tuple(CardVerdict(card.uuid, card.reason, str(card.fact)) for card in cards)
    return Tally(pivot.reason, fact, hami, said, missing)


def _pivot(counts: Counter[Reason], cards: list[_Card], more: int) -> _Card:
    """The deciding card if `more` cards must fit: the last of the `more` nearest."""
    lacking = sorted((card for card in cards if card.reason != Reason.OK), key=lambda card: card.distance)
    apart = Reason.CARD_NUMA if counts[Reason.CARD_NUMA] > 0 else Reason.CARDS_TOO_FEW_FIT
    spread = _Card("", apart, Fact(sentence(apart)), float("inf"))  # cards that fit, but not with those collected
    if not lacking or (counts[Reason.CARD_NUMA] > 0 and lacking[0].missing == spread.missing):
        return spread
    return lacking[min(more, len(lacking)) - 1]


def _card_fact(state: State, row: int, d: int, ask: int, held: Ints, reason: Reason) -> tuple[Fact, float]:
    """The fact in words, and what is missing as a part of what is asked."""
    card, wants = state.rows.card[row, d], state.wants
    if reason == Reason.CARD_MEMORY:
        need = memory_on(state.rows, wants, row, d, ask)
        missing = need - int(card[CARD_MEMORY] - held[d, CARD_MEMORY])
        return Fact(sentence(reason), f"by {missing:,} MiB"), _part(missing, need)
    if reason == Reason.CARD_COMPUTE:
        need = int(wants.ask[ask, ASK_COMPUTE])
        missing = need - int(card[COMPUTE] - held[d, COMPUTE])
        return Fact(sentence(reason), f"by {missing / 10:g} %"), _part(missing, need)
    return Fact(sentence(reason)), float("inf")


def _part(missing: int, need: int) -> float:
    """What is missing as a part of the need. A card of unknown size (0) has no need: asking for less does not help."""
    return missing / need if need > 0 else float("inf")
