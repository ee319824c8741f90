"""A gang that was not placed: how many of its members would fit, and what the next member lacks then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dovetail.engine.scheduler import Scheduler
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason


@dataclass(frozen=True, slots=True)
class Gathering:
    """The members that fit, and the first that does not."""

    group: Group  # of the waiting members
    fit: int
    left_out: Pod | None

    @property
    def sentence(self) -> str:
        group = self.group
        others = f" beside {group.running} that run{'s' * (group.running == 1)}" if group.running else ""
        return (
            f"{self.fit} of {len(group.pods)} members of {group.title} fit, {group.needed} must start together{others}"
        )


def waiting(scheduler: Scheduler, group: Group) -> Group:
    """The members without a place; members that have one count as running."""
    pods = tuple(pod for pod in group.pods if pod.uid not in scheduler.ledger.pods)
    return replace(group, pods=pods, running=group.running + len(group.pods) - len(pods))


def is_gang(group: Group, reason: Reason) -> bool:
    """Whether a waiting pod waits for its group, not for itself alone."""
    return is_tried(group) and reason != Reason.INVALID_REQUEST


def is_tried(group: Group) -> bool:
    """Whether a waiting gang has enough members to be placed together."""
    return group.members >= group.minimum and not waits_singly(group)


def waits_singly(group: Group) -> bool:
    """Whether each member waits for itself: the gang has its minimum, or its minimum is one."""
    return group.needed <= 0 or group.minimum <= 1


def incomplete(group: Group) -> str:
    """The sentence for a gang with missing pods."""
    missing = group.minimum - group.members
    return f"{group.members} of {group.minimum} members of {group.title} are there, {missing} more must be created"


@contextmanager
def gathered(scheduler: Scheduler, group: Group) -> Iterator[Gathering]:
    """Place the waiting members that fit, until the end of the block; afterwards everything is undone."""
    with scheduler.trial():
        decisions = scheduler.place([Group(pod.key, (pod,)) for pod in group.pods])
        left_out = [pod for pod, decision in zip(group.pods, decisions, strict=True) if not decision.placed]
        yield Gathering(group, len(group.pods) - len(left_out), left_out[0] if left_out else None)
