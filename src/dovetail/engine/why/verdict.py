"""The answer of a node for a pod, the nearest miss, and what all nodes lack.

Only this module defines the nearest miss: `plan`, `explain` and the live scheduler's conditions name what blocks there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dovetail.engine.why.tally import CardVerdict
from dovetail.engine.wording import Fact, Lacking, together
from dovetail.model.order import NaturalKey, natural
from dovetail.model.reason import POD_LEVEL_REASONS, Reason, checks_passed

NEAR_SHORTFALL = 0.5  # a shortfall of at most half of the request is near; suggestions go no lower either


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one node for one pod."""

    node: str
    reason: Reason  # OK = it fits
    fact: Fact
    hami: str = ""  # HAMi's wording; "" if it fits
    score: float | None = None  # in the policy's unit
    cards: tuple[CardVerdict, ...] = ()  # if the cards are the reason
    shortfall: float = float("inf")  # what is missing as a part of the request; inf = not an amount
    one_rule: bool = False  # the node has room, and one rule alone refuses the pod

    @property
    def sentence(self) -> str:
        return str(self.fact)

    @property
    def distance(self) -> tuple[int, float, int, NaturalKey]:
        """How far the node is from taking the pod; smaller is nearer.

        First come nodes that are short by at most half of the request. Then come nodes with room and one refusing rule,
        then nodes that are short by more, then the others. Among equals, the node that passed more checks is nearer.
        """
        short = self.shortfall != float("inf")
        kind = 0 if self.shortfall <= NEAR_SHORTFALL else 1 if self.one_rule else 2 if short else 3
        return kind, self.shortfall, -checks_passed(self.reason), natural(self.node)


def nearest(found: Iterable[Verdict]) -> Verdict | None:
    """The nearest miss; None if a node fits, or there are no nodes."""
    best = None
    for verdict in found:
        if verdict.reason == Reason.OK:
            return None
        if best is None or verdict.distance < best.distance:
            best = verdict
    return best


def blocking(reason: Reason, found: Iterable[Verdict]) -> Reason:
    """The one reason to name: that of the nearest miss, unless no node can change the reason."""
    miss = nearest(found) if reason not in POD_LEVEL_REASONS or reason == Reason.NO_NODES else None
    return reason if miss is None else miss.reason


def refusing(found: Iterable[Verdict]) -> list[Verdict]:
    return [verdict for verdict in found if verdict.reason != Reason.OK]


def lacking(found: Iterable[Verdict]) -> tuple[Lacking, ...]:
    """What the refusing nodes lack, equal facts together: that of the nearest miss first, then the most frequent."""
    groups: dict[tuple[Reason, str], list[Verdict]] = {}
    for verdict in refusing(found):
        groups.setdefault((verdict.reason, verdict.fact.what), []).append(verdict)
    if not groups:
        return ()
    ranked = [sorted(group, key=lambda verdict: verdict.distance) for group in groups.values()]
    first = min(ranked, key=lambda group: group[0].distance)
    ranked.sort(key=lambda group: (group is not first, -len(group), group[0].distance))
    return tuple(
        Lacking(group[0].reason, together([v.fact for v in group]), len(group), group[0].fact.everywhere)
        for group in ranked
    )


def counted(found: Sequence[Verdict]) -> tuple[tuple[str, int], ...]:
    """Sentences and their counts, most frequent first."""
    numbers = Counter(verdict.sentence for verdict in found)
    return tuple(sorted(numbers.items(), key=lambda item: (-item[1], item[0])))
