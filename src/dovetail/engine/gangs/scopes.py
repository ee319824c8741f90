"""The rows that each part of a gang may use: combinations of domains that could hold it, the most fitting first.

All conditions here are necessary and computed for all domains at once, so what cannot be placed is refused without
trying. Of domains that could hold all pods, the one with the least room comes first: large domains stay whole. If no
domain could hold all pods, the one with the most room comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np

from dovetail.engine.gangs.case import GangCase, Need, RuleView
from dovetail.engine.gangs.topologies import NO_DOMAIN_HERE, DomainLevel
from dovetail.engine.rules.node_columns import Flags
from dovetail.policies.rows import Ints

Scope = list[Flags]  # [part][row]
ALL_SUBSETS = 300  # up to this many sets of one size are compared; of more, a few are built step by step
FIRST_PICKS = 3  # sets built step by step, each from another first domain
MAX_LOOKS = 512  # domains that are looked at for one decision, with those that lead nowhere
MAX_LOOKS_EACH = 64  # of these, inside one domain of the first rule
SCOPES_EACH = 8  # combinations inside one domain of the first rule before other domains get their turn


@dataclass(slots=True)
class _Looks:
    """How many domains may still be looked at. Rules of many roles have exponentially many combinations."""

    left: int

    def take(self) -> bool:
        """Use one look; False = none is left."""
        self.left -= 1
        return self.left >= 0


def scopes(case: GangCase, need: Need) -> Iterator[Scope]:
    """Allowed rows by part, for combinations of domains that could hold what is needed."""
    everywhere = [part.room > 0 for part in case.parts]
    if not _could_hold(case, need, list(range(len(case.parts))), everywhere):
        return
    for view in case.views:  # a rule that no domain can keep by itself ends the search
        if next(_rows_for(case, need, view, everywhere, _Looks(MAX_LOOKS)), None) is None:
            return
    yield from _by_first_domain(case, need, everywhere) if case.views else (everywhere,)


def _by_first_domain(case: GangCase, need: Need, allowed: Scope) -> Iterator[Scope]:
    """Some combinations inside each domain of the first rule, then the others."""
    first, looks = case.views[0], _Looks(MAX_LOOKS)
    unfinished: list[Iterator[Scope]] = []
    for rows in _rows_for(case, need, first, allowed, looks):
        inner = _Looks(min(MAX_LOOKS_EACH, looks.left))
        inside = _nested(case, need, 1, _narrowed(first, allowed, rows), inner)
        before, found = inner.left, 0
        for scope in islice(inside, SCOPES_EACH):
            found += 1
            yield scope
        looks.left -= before - inner.left
        if found == SCOPES_EACH:
            unfinished.append(inside)
    for inside in unfinished:
        yield from inside


def _nested(case: GangCase, need: Need, number: int, allowed: Scope, looks: _Looks) -> Iterator[Scope]:
    """Choose domains for one rule after another."""
    if number == len(case.views):
        yield allowed
        return
    view = case.views[number]
    for rows in _rows_for(case, need, view, allowed, looks):
        yield from _nested(case, need, number + 1, _narrowed(view, allowed, rows), looks)


def _narrowed(view: RuleView, allowed: Scope, rows: Flags) -> Scope:
    narrowed = list(allowed)
    for part in view.parts:
        narrowed[part] = allowed[part] & rows
    return narrowed


def _rows_for(case: GangCase, need: Need, view: RuleView, allowed: Scope, looks: _Looks) -> Iterator[Flags]:
    base = view.open_rows(case.size)
    rooms = _rooms(case, view, allowed, base)
    if view.required is None or view.home != NO_DOMAIN_HERE:
        if looks.take() and is_enough(case, need, view, rooms):
            yield from _preferred(case, need, view, base, rooms, looks)
        return
    level = view.required
    for domain in candidates(case, need, view, level, rooms).tolist():
        if not looks.take():
            return
        inside = base & (level.of_row == domain)
        within = np.where(inside, rooms, 0)
        if is_enough(case, need, view, within):
            yield from _preferred(case, need, view, inside, within, looks)


def _rooms(case: GangCase, view: RuleView, allowed: Scope, base: Flags) -> Ints:
    """[part of the view, row]"""
    return np.array([np.where(allowed[number] & base, case.parts[number].room, 0) for number in view.parts])


def by_domain(level: DomainLevel, amounts: Ints) -> Ints:
    """[line, domain]: sums of [line, row]; nodes without a domain count nowhere."""
    sums = np.array([np.bincount(level.of_row, line, level.size) for line in amounts]).astype(np.int64)
    sums[:, NO_DOMAIN_HERE] = 0
    return sums


def candidates(case: GangCase, need: Need, view: RuleView, level: DomainLevel, rooms: Ints) -> Ints:
    """The domains that could hold what the view's parts need, the most fitting first."""
    room = by_domain(level, rooms)
    able = case.could_hold(need, view.parts, room)
    able[NO_DOMAIN_HERE] = False
    if len(view.parts) > 1 and able.any():
        able &= _have_amounts(case, need, view, level, rooms)
    for spread in view.spreads:
        able &= _could_spread(case, need, view, level, rooms, spread.level)
    found = np.flatnonzero(able)
    return found[np.lexsort((level.place[found], _fit_key(case, need, view, room)[found]))]


def _fit_key(case: GangCase, need: Need, view: RuleView, room: Ints) -> Ints:
    """[domain]: the smallest fits best."""
    if need is case.whole:
        total: Ints = room.sum(axis=0)
        return total
    pods = np.array([len(case.parts[number].pods) for number in view.parts])
    most: Ints = np.minimum(room, pods[:, None]).sum(axis=0)
    return -most


def _have_amounts(case: GangCase, need: Need, view: RuleView, level: DomainLevel, rooms: Ints) -> Flags:
    """[domain]: whether it has what the parts need together of resources and cards."""
    usable = _with_room(rooms)
    free = by_domain(level, np.where(usable[:, None], case.shared[0], 0).T)
    short: Flags = np.logical_or.reduce(free < case.least_amounts(need, view.parts)[:, None], axis=0)
    return ~short


def _with_room(rooms: Ints) -> Flags:
    """[row]: whether one of the parts has room there."""
    return np.asarray(np.count_nonzero(rooms, axis=0)) > 0


def _could_spread(
    case: GangCase, need: Need, view: RuleView, level: DomainLevel, rooms: Ints, inner: DomainLevel
) -> Flags:
    """[domain]: whether its inner domains could take the pods under the limits of the spreads at that level."""
    parent = np.zeros(inner.size, dtype=np.int64)
    parent[inner.of_row] = level.of_row
    able: Flags = np.ones(level.size, dtype=np.bool_)
    if (parent[inner.of_row] != level.of_row).any():  # not nested: the exact check decides
        return able
    room = by_domain(inner, rooms).sum(axis=0)
    for spread in view.spreads:
        if spread.level is not inner:
            continue
        left = room if not spread.rule.most_each else np.minimum(room, spread.rule.most_each - spread.there)
        able &= np.bincount(parent, np.maximum(left, 0), level.size) >= case.least_of(need, view.parts)
        used = (room > 0) | (spread.there > 0)
        able &= np.bincount(parent, used, level.size) >= spread.rule.least_domains
    return able


def is_enough(case: GangCase, need: Need, view: RuleView, rooms: Ints) -> bool:
    """Whether these rows could hold what the view's parts need, spreads included."""
    if not case.could_hold(need, view.parts, rooms.sum(axis=1)[:, None]).all():
        return False
    least = case.least_of(need, view.parts)
    for spread in view.spreads:
        room = by_domain(spread.level, rooms).sum(axis=0)
        left = room if not spread.rule.most_each else np.minimum(room, spread.rule.most_each - spread.there)
        if np.maximum(left, 0).sum() < least:
            return False
        domains = int(np.count_nonzero((left > 0) | (spread.there > 0)))
        if domains < spread.rule.least_domains and (least or need is case.whole):
            return False
    return _amounts_enough(case, need, view.parts, _with_room(rooms))


def _amounts_enough(case: GangCase, need: Need, parts: Sequence[int], rows: Flags) -> bool:
    if len(parts) < 2:
        return True
    return bool((case.shared[0][rows].sum(axis=0) >= case.least_amounts(need, parts)).all())


def _could_hold(case: GangCase, need: Need, parts: list[int], allowed: Scope) -> bool:
    """Whether all rows together could hold what is needed."""
    room = np.array([[case.parts[number].room.sum()] for number in parts])
    if not len(parts) or not case.could_hold(need, parts, room).all():
        return False
    return _amounts_enough(case, need, parts, np.logical_or.reduce(allowed))


# ---- few domains -------------------------------------------------------------------------------------------------


def _preferred(case: GangCase, need: Need, view: RuleView, base: Flags, rooms: Ints, looks: _Looks) -> Iterator[Flags]:
    """The rows of few domains of the preferred level, the fewest first; at last all rows."""
    level = view.preferred
    if level is None:
        yield base
        return
    room = by_domain(level, rooms)
    used = [number for number in np.unique(level.of_row[view.running]).tolist() if number != NO_DOMAIN_HERE]
    for domains in _subsets(case, need, view, level, room, used):
        if not looks.take():
            break
        inside = base & np.isin(level.of_row, domains)
        if is_enough(case, need, view, np.where(inside, rooms, 0)):
            yield inside
    yield base


def _subsets(
    case: GangCase, need: Need, view: RuleView, level: DomainLevel, room: Ints, used: list[int]
) -> Iterator[Sequence[int]]:
    """Sets of domains that could hold what is needed, the smallest first. Domains in use already cost nothing."""

    def holds(domains: Sequence[int]) -> bool:
        return bool(case.could_hold(need, view.parts, room[:, list(domains)].sum(axis=1)[:, None]).all())

    if used and holds(used):
        yield used
    open_ = np.flatnonzero(room.any(axis=0))
    key = _fit_key(case, need, view, room)
    others = [n for n in open_[np.lexsort((level.place[open_], key[open_]))].tolist() if n not in used]
    for count in range(1, len(others)):
        if comb(len(others), count) > ALL_SUBSETS:
            yield from _built(case, need, view, level, room, used, others)
            return
        found = [chosen for chosen in combinations(others, count) if holds((*used, *chosen))]
        for chosen in sorted(found, key=lambda some: int(key[list(some)].sum())):
            yield [*used, *chosen]


def _built(
    case: GangCase, need: Need, view: RuleView, level: DomainLevel, room: Ints, used: list[int], others: list[int]
) -> Iterator[Sequence[int]]:
    """Sets built step by step: the domain with the most room, until one more domain is enough; then the least."""
    size = room.sum(axis=0)
    largest = sorted(others, key=lambda n: (-int(size[n]), int(level.place[n])))
    made: list[tuple[int, list[int]]] = []
    for first in range(min(FIRST_PICKS, len(largest))):
        chosen, rest = list(used), largest[first:] + largest[:first]
        while rest:
            able = case.could_hold(need, view.parts, room[:, chosen].sum(axis=1)[:, None] + room)
            enough = [n for n in rest if able[n]]
            if enough:
                last = min(enough, key=lambda n: (int(size[n]), int(level.place[n])))
                made.append((len(chosen), [*chosen, last]))
                break
            chosen.append(rest.pop(0))
    yield from (chosen for _, chosen in sorted(made))
