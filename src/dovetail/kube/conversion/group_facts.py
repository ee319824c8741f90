"""What a PodGroup says of the pods that name it: their queue, if they name none, and gangs that start together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from dovetail.kube.conversion.gang_terms import started_together
from dovetail.kube.conversion.groups import TOGETHER, GroupName, group_name, queue_of
from dovetail.kube.objects.gangs import PodGroup
from dovetail.model.pod import Pod


class GroupFacts(NamedTuple):
    queue: str = ""  # Queue.name; "" = none
    together: str = ""  # key of the group of all gangs that start together; "" = the gang starts by itself


NO_FACTS = GroupFacts()


def facts_of(name: GroupName, source: PodGroup) -> GroupFacts:
    return GroupFacts(queue_of(name.api_group, source.spec), started_together(name, source))


def with_facts(pod: Pod, facts: Mapping[str, GroupFacts]) -> Pod:
    """The pod in its queue and in the group of all gangs that start together. `facts` are by key of a PodGroup."""
    found = facts.get(pod.group) if pod.group else None
    if found is None:
        return pod
    if found.together:
        return replace(pod, queue=pod.queue or found.queue, group=found.together, role=group_name(pod.group).title)
    return replace(pod, queue=found.queue) if found.queue and not pod.queue else pod


def without_facts(pod: Pod, before: Mapping[str, GroupFacts]) -> Pod:
    """The pod as it was read, before the facts of its PodGroup changed.

    A pod in another queue than that of its group names this queue itself.
    """
    own = pod.group
    if TOGETHER in own:
        name = group_name(own)
        parts = {part.title: part for part in name.parts}
        part = parts.get(pod.role)
        if part is None or before.get(part.key, NO_FACTS).together != own:
            return pod
        own = part.key
    said = before.get(own)
    if said is None:
        return pod
    queue = "" if pod.queue == said.queue else pod.queue
    return replace(pod, queue=queue, group=own, role="" if own != pod.group else pod.role)
