"""A gang that was not placed: how many of its members would fit, and what the next member lacks then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dovetail.engine.gangs.nearest import NearestDomain, spread_text
from dovetail.engine.gangs.planner import is_incomplete
from dovetail.engine.scheduler import Scheduler
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason


@dataclass(frozen=True, slots=True)
class Gathering:
    """The members that fit, and the first that does not."""

    group: Group  # of the waiting members
    fit: int
    left_out: Pod | None
    nearest: NearestDomain | None = None  # of a gang that must be in one domain

    @property
    def sentence(self) -> str:
        group = self.group
        others = f" beside {group.running} that run{'s' * (group.running == 1)}" if group.running else ""
        where = f" {self.nearest.sentence}" if self.nearest is not None else ""
        return f"{self.fit} of {len(group.pods)} members of {group.title} fit{where}, {self._needed}{others}"

    @property
    def _needed(self) -> str:
        """`12 must start together, with 1 launcher, over at least 3 domains of rack`"""
        group = self.group
        roles = [f"{max(0, role.minimum - role.running)} {role.name}" for role in group.roles]
        rules = [text for spread in group.topology.spreads if (text := spread_text(spread))]
        text = f"{max(group.needed, 0)} must start together"
        return ", ".join([text + (f" with {' and '.join(roles)}" if roles else ""), *rules])


def waiting(scheduler: Scheduler, group: Group) -> Group:
    """The members without a place; members that have one count as running."""
    pods = tuple(pod for pod in group.pods if pod.uid not in scheduler.ledger.pods)
    return replace(group, pods=pods).with_running(p.role for p in group.pods if p.uid in scheduler.ledger.pods)


@contextmanager
def by_rules(scheduler: Scheduler, group: Group, pod: Pod) -> Iterator[None]:
    """Until the end of the block, nodes that the topology rules of the pod's gang do not allow refuse it."""
    with scheduler.related.confined(
        None if group.is_plain else scheduler.gangs.open_rows(group, pod), Reason.OTHER_DOMAIN
    ):
        yield


def is_gang(group: Group, reason: Reason) -> bool:
    """Whether a waiting pod waits for its group, not for itself alone."""
    return is_tried(group) and reason != Reason.INVALID_REQUEST


def is_tried(group: Group) -> bool:
    """Whether a waiting gang has enough members to be placed together."""
    return not is_incomplete(group) and not waits_singly(group)


def waits_singly(group: Group) -> bool:
    """Whether each member waits for itself: the gang has its minimum, or its minimum is one."""
    if any(role.minimum > role.running for role in group.roles):
        return False
    return group.needed <= 0 or group.minimum <= 1


def incomplete(group: Group) -> str:
    """The sentence for a gang with missing pods."""
    there = Counter(pod.role for pod in group.pods)
    for role in group.roles:
        count = there[role.name] + role.running
        if count < role.minimum:
            of = f"{group.title} with role {role.name}"
            return f"{count} of {role.minimum} members of {of} are there, {role.minimum - count} more must be created"
    missing = group.minimum - group.members
    return f"{group.members} of {group.minimum} members of {group.title} are there, {missing} more must be created"


@contextmanager
def gathered(scheduler: Scheduler, group: Group) -> Iterator[Gathering]:
    """Place the waiting members that fit, until the end of the block; afterwards everything is undone.

    A gang that must be in one domain is placed in the nearest one, and other nodes refuse the next member.
    """
    with scheduler.trial():
        if not group.is_plain:
            nearest, rows, late = scheduler.gangs.gather(group)
            with scheduler.related.confined(rows if nearest is not None else None, Reason.OTHER_DOMAIN):
                yield Gathering(group, len(group.pods) - len(late), late[0] if late else None, nearest)
            return
        decisions = scheduler.place([Group(pod.key, (pod,)) for pod in group.pods])
        left_out = [pod for pod, decision in zip(group.pods, decisions, strict=True) if not decision.placed]
        yield Gathering(group, len(group.pods) - len(left_out), left_out[0] if left_out else None)
