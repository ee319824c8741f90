"""A gang as numbers: its pods counted by request, what must be placed, and its rules as arrays by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.engine.gangs.topologies import NO_DOMAIN_HERE, DomainLevel
from dovetail.engine.kernel.state import NONE
from dovetail.engine.ledger.requests import Signature
from dovetail.engine.rights.members import MemberPlace
from dovetail.engine.rules.node_columns import Flags
from dovetail.model.gang import ANYWHERE, DomainSpread, TopologyRule
from dovetail.model.pod import Group, Pod
from dovetail.model.relations import NO_RELATIONS
from dovetail.policies.rows import Ints


@dataclass(slots=True)
class GangPart:
    """Members of one role with equal requests."""

    role: str
    signature: Signature
    pods: list[int]  # positions in the group
    room: Ints  # [row]: how many of them the row could take, if nothing else came


@dataclass(frozen=True, slots=True)
class Need:
    """What must be placed together. Members of a role are any of its pods."""

    of_role: dict[str, int]
    total: int

    def is_met(self, counts: dict[str, int]) -> bool:
        """Whether these numbers of members, by role, are enough."""
        if sum(counts.values()) < self.total:
            return False
        return all(counts.get(role, 0) >= least for role, least in self.of_role.items())


@dataclass(slots=True)
class SpreadView:
    rule: DomainSpread
    level: DomainLevel
    there: Ints  # [domain]: members that run there and are not placed now


@dataclass(slots=True)
class RuleView:
    """A topology rule, the parts that it covers, and where other members under it run."""

    parts: list[int]  # positions in `GangCase.parts`
    rule: TopologyRule
    required: DomainLevel | None
    preferred: DomainLevel | None
    spreads: list[SpreadView]
    running: Ints  # rows of members that run

    @property
    def home(self) -> int:
        """The required domain in which most running members are; NO_DOMAIN_HERE = no member runs in a domain."""
        if self.required is None or not len(self.running):
            return NO_DOMAIN_HERE
        level = self.required
        counts = np.bincount(level.of_row[self.running], minlength=level.size)
        counts[NO_DOMAIN_HERE] = 0
        if not counts.any():
            return NO_DOMAIN_HERE
        most = np.flatnonzero(counts == counts.max())
        return int(most[np.argmin(level.place[most])])

    def open_rows(self, size: int) -> Flags:
        """Rows that have the labels of all levels with a strict rule, in domains that may get another pod."""
        rows: Flags = np.ones(size, dtype=np.bool_)
        if self.required is not None:
            rows &= self.required.of_row != NO_DOMAIN_HERE
            if self.home != NO_DOMAIN_HERE:
                rows &= self.required.of_row == self.home
        for spread in self.spreads:
            rows &= spread.level.of_row != NO_DOMAIN_HERE
            if spread.rule.most_each:
                rows &= spread.there[spread.level.of_row] < spread.rule.most_each
        return rows


@dataclass(slots=True)
class GangCase:
    group: Group
    parts: list[GangPart]
    views: list[RuleView]  # the gang's rule first, then those of roles
    need: Need  # to start at all
    whole: Need  # to place every pod
    size: int  # rows
    shared: tuple[Ints, Ints] = field(default_factory=lambda: (np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int64)))

    def role_counts(self, placed: Sequence[int]) -> dict[str, int]:
        """By role the members placed, given the number placed of each part."""
        counts: dict[str, int] = {}
        for part, number in zip(self.parts, placed, strict=True):
            counts[part.role] = counts.get(part.role, 0) + number
        return counts

    def could_hold(self, need: Need, parts: Sequence[int], room: Ints) -> Flags:
        """[domain]: whether domains with this room could hold what the parts need. `room`: [part, domain].

        The condition is necessary, not sufficient: several parts may need the same room.
        """
        able: Flags = np.ones(room.shape[1], dtype=np.bool_)
        total = np.zeros(room.shape[1], dtype=np.int64)
        by_role: dict[str, Ints] = {}
        for at, number in enumerate(parts):
            part = self.parts[number]
            most = np.minimum(room[at], len(part.pods))
            by_role[part.role] = by_role.get(part.role, 0) + most
            total = total + most
        for role, most in by_role.items():
            able &= most >= need.of_role.get(role, 0)
        return able & (total >= self.least_of(need, parts))

    def least_of(self, need: Need, parts: Sequence[int]) -> int:
        """How many pods of these parts must be placed at least, with all other parts placed as far as they exist."""
        others = sum(len(part.pods) for number, part in enumerate(self.parts) if number not in parts)
        roles = {self.parts[number].role for number in parts}
        return max(need.total - others, sum(need.of_role.get(role, 0) for role in roles))

    def least_amounts(self, need: Need, parts: Sequence[int]) -> Ints:
        """[amount]: the least that the parts need together of what pods share (`RowCapacity.shared`)."""
        takes = self.shared[1]
        least = np.zeros(takes.shape[1], dtype=np.int64)
        for role in dict.fromkeys(self.parts[number].role for number in parts):
            mine = [number for number in parts if self.parts[number].role == role]
            least += need.of_role.get(role, 0) * takes[mine].min(axis=0)
        return least

    def broken(self, rows: Ints) -> str:
        """Which rule placements on these rows would break, or "". `rows`: [pod of the group], NONE = not placed."""
        placed = [int(np.count_nonzero(rows[part.pods] != NONE)) for part in self.parts]
        if sum(placed) and not self.need.is_met(self.role_counts(placed)):
            return "fewer members than the gang needs"
        for view in self.views:
            mine = rows[[pod for number in view.parts for pod in self.parts[number].pods]]
            if text := _broken(view, mine[mine != NONE]):
                return text
        return ""


def _broken(view: RuleView, rows: Ints) -> str:
    if not len(rows):
        return ""
    if view.required is not None:
        domains = set(view.required.of_row[rows].tolist()) | ({view.home} - {NO_DOMAIN_HERE})
        if len(domains) > 1 or NO_DOMAIN_HERE in domains:
            return f"not in one domain of {view.required.label}"
    for spread in view.spreads:
        counts = spread.there + np.bincount(spread.level.of_row[rows], minlength=spread.level.size)
        new = np.unique(spread.level.of_row[rows])
        if NO_DOMAIN_HERE in new or (spread.rule.most_each and counts[new].max() > spread.rule.most_each):
            return f"too many pods in one domain of {spread.level.label}"
        if np.count_nonzero(counts[1:]) < spread.rule.least_domains:
            return f"too few domains of {spread.level.label}"
    return ""


def _share_template(pod: Pod, other: Pod) -> bool:
    """Whether the pods share all objects of their template: the fastest check that they are in one part."""
    return (
        pod.containers is other.containers
        and pod.resources is other.resources
        and pod.node_rules is other.node_rules
        and pod.device_rules is other.device_rules
        and pod.profile is other.profile
        and pod.relations is other.relations
        and pod.owner is other.owner
        and pod.namespace is other.namespace
        and pod.queue is other.queue
        and pod.role is other.role
    )


class CaseMaker:
    """Builds cases. `room` gives the upper bounds of a request, `level` the domains of a label."""

    def __init__(
        self,
        signature: Callable[[Pod], Signature],
        room: Callable[[Signature], Ints],
        level: Callable[[str], DomainLevel],
    ) -> None:
        self._signature, self._room, self._level = signature, room, level

    def make(self, group: Group, running: Sequence[MemberPlace], size: int) -> GangCase:
        parts = self._parts(group)
        roles = {role.name: max(0, role.minimum - role.running) for role in group.roles}
        total = max(0, group.needed, sum(roles.values()))
        everything: dict[str, int] = {}
        for part in parts:
            everything[part.role] = everything.get(part.role, 0) + len(part.pods)
        need, whole = Need(roles, total), Need(everything, sum(everything.values()))
        views = list(self._views(group, parts, running))
        return GangCase(group, parts, views, need, whole, size)

    def views_of(self, group: Group, role: str, running: Sequence[MemberPlace]) -> list[RuleView]:
        """The rules that a pod of this role is under."""
        rules = [(group.topology, [place.row for place in running])]
        rules += [
            (one.topology, [place.row for place in running if place.role == role])
            for one in group.roles
            if one.name == role
        ]
        return [self._view(rule, [], rows) for rule, rows in rules if rule != ANYWHERE]

    def _parts(self, group: Group) -> list[GangPart]:
        found: dict[tuple[object, ...], GangPart] = {}
        part: GangPart | None = None
        last = group.pods[0]
        for number, pod in enumerate(group.pods):
            if pod.refusal is not None:
                continue
            if part is not None and _share_template(pod, last):
                part.pods.append(number)
                continue
            last = pod
            signature = self._signature(pod)
            request = (id(signature.profile), signature.shape, signature.mask)
            related = None if pod.relations is NO_RELATIONS else pod.relations
            key = (pod.role, request, pod.namespace, pod.queue, related)
            part = found.get(key)
            if part is None:
                part = found[key] = GangPart(pod.role, signature, [], self._room(signature))
            part.pods.append(number)
        return list(found.values())

    def _views(self, group: Group, parts: list[GangPart], running: Sequence[MemberPlace]) -> Iterator[RuleView]:
        if group.topology != ANYWHERE:
            yield self._view(group.topology, list(range(len(parts))), [place.row for place in running])
        for role in group.roles:
            mine = [number for number, part in enumerate(parts) if part.role == role.name]
            if role.topology != ANYWHERE and mine:
                yield self._view(role.topology, mine, [place.row for place in running if place.role == role.name])

    def _view(self, rule: TopologyRule, parts: list[int], rows: list[int]) -> RuleView:
        running = np.array(rows, dtype=np.int64)
        required = self._level(rule.required) if rule.required else None
        preferred = self._level(rule.preferred) if rule.preferred else None
        spreads = []
        for spread in rule.spreads:
            level = self._level(spread.level)
            there = np.bincount(level.of_row[running], minlength=level.size)
            there[NO_DOMAIN_HERE] = 0
            spreads.append(SpreadView(spread, level, there))
        return RuleView(parts, rule, required, preferred, spreads, running)
