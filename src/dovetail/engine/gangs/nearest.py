"""The domain that comes nearest to holding a gang, for explanations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.engine.gangs.case import GangCase, RuleView
from dovetail.engine.gangs.scopes import by_domain
from dovetail.engine.gangs.topologies import NO_DOMAIN_HERE
from dovetail.engine.rules.node_columns import Flags
from dovetail.model.gang import DomainSpread


class NearestDomain(NamedTuple):
    """The domain, and how many domains of its level have nodes. `home`: other members run there."""

    level: str
    name: str
    domains: int
    home: bool

    @property
    def sentence(self) -> str:
        """`in b1/r2, the nearest of 6 domains of topology/rack`"""
        if self.home:
            return f"in {self.name}, the domain of {self.level} where its other members run"
        if self.domains == 1:
            return f"in {self.name}, the only domain of {self.level}"
        return f"in {self.name}, the nearest of {self.domains:,} domains of {self.level}"


def nearest_domain(case: GangCase) -> tuple[NearestDomain | None, Flags]:
    """The nearest domain of the first rule with a required level, and its rows.

    Without such a rule, all rows; if no node has the labels of the level, none.
    """
    view = next((one for one in case.views if one.required is not None), None)
    if view is None or view.required is None:
        return None, np.ones(case.size, dtype=np.bool_)
    level, home = view.required, view.home
    there = np.unique(level.of_row)
    there = there[there != NO_DOMAIN_HERE]
    if not len(there):
        return NearestDomain(level.label, "no domain", 0, False), np.zeros(case.size, dtype=np.bool_)
    domain = home if home != NO_DOMAIN_HERE else _most_room(case, view, there.tolist())
    found = NearestDomain(level.label, level.title(domain), len(there), home != NO_DOMAIN_HERE)
    return found, level.of_row == domain


def _most_room(case: GangCase, view: RuleView, domains: Sequence[int]) -> int:
    """The domain that could take most of the pods that are needed; then the one with the most room."""
    level = view.required
    assert level is not None
    room = by_domain(level, np.array([case.parts[number].room for number in view.parts]))
    pods = np.array([len(case.parts[number].pods) for number in view.parts])
    most = np.minimum(room, pods[:, None]).sum(axis=0)
    return min(domains, key=lambda n: (-int(most[n]), -int(room[:, n].sum()), int(level.place[n])))


def spread_text(spread: DomainSpread) -> str:
    """`over at least 3 domains of topology/rack, at most 8 pods in each`"""
    parts = []
    if spread.least_domains > 1:
        parts.append(f"over at least {spread.least_domains} domains of {spread.level}")
    if spread.most_each:
        of = "each" if parts else f"each domain of {spread.level}"
        parts.append(f"at most {spread.most_each} pod{'s' * (spread.most_each != 1)} in {of}")
    return ", ".join(parts)
