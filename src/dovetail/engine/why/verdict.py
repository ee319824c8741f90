"""What a node says to a pod, which node misses least, and what the nodes lack together.

The nearest miss is defined here, once: `plan`, `explain` and the live scheduler's conditions name what blocks there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dovetail.engine.why.tally import CardVerdict
from dovetail.engine.wording import Fact, Lacking, together
from dovetail.model.order import NaturalKey, natural
from dovetail.model.reason import POD_LEVEL, Reason, checks_passed

NEAR = 0.5  # a miss of at most half of what is asked is near; suggestions go no further below what is asked, either


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one node says to one pod."""

    node: str
    reason: Reason  # OK = it fits
    fact: Fact
    hami: str = ""  # HAMi's wording; "" where it fits
    score: float | None = None  # in the policy's own unit
    cards: tuple[CardVerdict, ...] = ()  # where the cards are why
    shortfall: float = float("inf")  # what is missing as a part of what is asked; inf = not a question of amount
    one_rule: bool = False  # the node has room, and one rule alone is in the way

    @property
    def sentence(self) -> str:
        return str(self.fact)

    @property
    def distance(self) -> tuple[int, float, int, NaturalKey]:
        """How far the node is from taking the pod: the smaller the nearer.

        First nodes that are short by at most half of what is asked, then those with room where one rule is in the way,
        then those that are short by more, then the others; among equals the one that passed more checks.
        """
        short = self.shortfall != float("inf")
        kind = 0 if self.shortfall <= NEAR else 1 if self.one_rule else 2 if short else 3
        return kind, self.shortfall, -checks_passed(self.reason), natural(self.node)


def nearest(found: Iterable[Verdict]) -> Verdict | None:
    """The node that misses least; None where one fits, or none was asked."""
    best = None
    for verdict in found:
        if verdict.reason == Reason.OK:
            return None
        if best is None or verdict.distance < best.distance:
            best = verdict
    return best


def blocking(reason: Reason, found: Iterable[Verdict]) -> Reason:
    """The one reason to name: what blocks at the nearest miss, unless no node can cure it."""
    miss = nearest(found) if reason not in POD_LEVEL or reason == Reason.NO_NODES else None
    return reason if miss is None else miss.reason


def refusing(found: Iterable[Verdict]) -> list[Verdict]:
    return [verdict for verdict in found if verdict.reason != Reason.OK]


def lacking(found: Iterable[Verdict]) -> tuple[Lacking, ...]:
    """What the nodes that refuse lack, alike together: what the nearest miss lacks first, then what most do."""
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
    """Equal sentences together, most frequent first."""
    numbers = Counter(verdict.sentence for verdict in found)
    return tuple(sorted(numbers.items(), key=lambda item: (-item[1], item[0])))
