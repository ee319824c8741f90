"""Why a node's cards are not enough: each card's reason, counted and worded as HAMi does (`3/8 CardTypeMismatch`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.engine.build import Lens
from dovetail.engine.kernel_choose import slack
from dovetail.engine.kernel_fit import card_refusal, vendor_cards
from dovetail.engine.state import NONE, STYLE_IDLE_ONLY, State
from dovetail.model.device import Device
from dovetail.model.reason import Reason, hami_name, sentence
from dovetail.policies.cards import memory_on
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_COUNT,
    ASK_KIND,
    ASK_RULE,
    ASK_VENDOR,
    CARD_MEMORY,
    COMPUTE,
    FIRST_ASK,
    LAST_ASK,
    NUMA,
    NUMA_BIND,
    Ints,
)

_BEFORE_NUMA = (Reason.CARD_QUARANTINED, Reason.CARD_UNHEALTHY, Reason.CARD_CORDONED, Reason.CARD_TYPE)


class CardVerdict(NamedTuple):
    uuid: str
    reason: Reason
    sentence: str


@dataclass(frozen=True, slots=True)
class Tally:
    reason: Reason
    sentence: str
    hami: str
    cards: tuple[CardVerdict, ...]
    shortfall: float


def tally(
    state: State, lens: Lens, row: int, shape: int, quota: Ints, draw: int, devices: tuple[Device, ...]
) -> Tally | None:
    """None where every container finds its cards; otherwise why the first that does not is left without."""
    if state.wants.shape[shape, FIRST_ASK] == state.wants.shape[shape, LAST_ASK]:
        return None
    found = lens.choose_all(state.rows, state.wants, row, shape, lens.style, quota, draw, state.scratch)
    if found >= 0:
        return None
    ask = int(state.wants.shape[shape, FIRST_ASK]) + NONE - found
    return tally_ask(state, lens, row, shape, ask, draw, devices)


def tally_ask(
    state: State, lens: Lens, row: int, shape: int, ask: int, draw: int, devices: tuple[Device, ...]
) -> Tally:
    """Walk the cards in the order of choosing, on the working copy that the choice left behind, and count."""
    rows, wants, work = state.rows, state.wants, state.scratch
    held, left = work.trial if wants.ask[ask, ASK_KIND] == 0 else work.run, work.left
    vendor = wants.ask[ask, ASK_VENDOR]
    memory_left, compute_left = int(left[vendor, 0]), int(left[vendor, 1])
    bound = wants.rule[wants.ask[ask, ASK_RULE], NUMA_BIND]
    counts: Counter[Reason] = Counter()
    cards: list[tuple[float, CardVerdict]] = []  # with what is missing as a part of what is asked
    numa, collected = None, 0
    number = lens.order_cards(rows, wants, row, shape, ask, held, lens.style, draw, work)
    for d in work.order[:number].tolist():
        spare, idle = slack(rows, row, d, held, work, CARD_MEMORY), slack(rows, row, d, held, work, COMPUTE)
        code = card_refusal(
            rows, wants, row, d, ask, held, lens.style[STYLE_IDLE_ONLY], memory_left + spare, compute_left + idle
        )
        reason = Reason(code)
        if bound and reason not in _BEFORE_NUMA and rows.card[row, d, NUMA] != numa:
            counts[Reason.CARD_NUMA] += collected  # the cards gathered so far are on another NUMA node
            numa, collected = rows.card[row, d, NUMA], 0
        if reason == Reason.OK:
            collected += 1
            memory_left -= max(0, memory_on(rows, wants, row, d, ask) - spare)
            compute_left -= max(0, int(wants.ask[ask, ASK_COMPUTE]) - idle)
        elif reason != Reason.CARD_QUARANTINED:
            counts[reason] += 1
        text, missing = _card_sentence(state, row, d, ask, held, reason)
        cards.append((missing, CardVerdict(devices[d].uuid, reason, text)))
    counts[Reason.CARDS_TOO_FEW_FIT] += collected
    return _sum_up(counts, cards, vendor_cards(rows, row, vendor), int(wants.ask[ask, ASK_COUNT]))


def _sum_up(counts: Counter[Reason], cards: list[tuple[float, CardVerdict]], number: int, asked: int) -> Tally:
    fitting = counts.pop(Reason.CARDS_TOO_FEW_FIT)
    causes = [(count, reason) for reason, count in counts.items() if count > 0]
    reason = max(causes)[1] if causes else Reason.CARDS_TOO_FEW_FIT
    if fitting:
        causes.append((fitting, Reason.CARDS_TOO_FEW_FIT))
    hami = ", ".join(sorted(f"{count}/{number} {hami_name(cause)}" for count, cause in causes))
    said = [(missing, card.sentence) for missing, card in cards if card.reason == reason]
    text = min(said)[1] if said else sentence(reason)  # of the cards that say so, the one that lacks least speaks
    if fitting:
        text = f"{fitting} of {asked} GPUs fit" + (f"; the others: {text}" if said else "")
    shortfall = min((missing for missing, _ in cards), default=float("inf"))
    return Tally(reason, text, hami, tuple(card for _, card in cards), shortfall)


def _card_sentence(state: State, row: int, d: int, ask: int, held: Ints, reason: Reason) -> tuple[str, float]:
    """In words, and what is missing as a part of what is asked."""
    card, wants = state.rows.card[row, d], state.wants
    if reason == Reason.CARD_MEMORY:
        need = memory_on(state.rows, wants, row, d, ask)
        missing = need - int(card[CARD_MEMORY] - held[d, CARD_MEMORY])
        return f"GPU memory short by {missing:,} MiB", _part(missing, need)
    if reason == Reason.CARD_COMPUTE:
        need = int(wants.ask[ask, ASK_COMPUTE])
        missing = need - int(card[COMPUTE] - held[d, COMPUTE])
        return f"GPU compute short by {missing / 10:g} %", _part(missing, need)
    return sentence(reason), float("inf")


def _part(missing: int, need: int) -> float:
    """A card of unknown size (0) is overdrawn by whoever runs there; asking less of it does not help."""
    return missing / need if need > 0 else float("inf")
