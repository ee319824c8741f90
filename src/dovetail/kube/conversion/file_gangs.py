"""The gangs of files: the groups to place, in their order, and the minimum of each gang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from dovetail.kube.conversion.gang_terms import described
from dovetail.kube.conversion.gangs import WAIT, Gangs
from dovetail.kube.conversion.groups import FIELDS, GroupName, Standing, group_name, too_many_members
from dovetail.kube.files.decode import Found
from dovetail.kube.objects.problems import Problems
from dovetail.model.gang import ANYWHERE, Role, TopologyRule
from dovetail.model.pod import Group, Pod


class PodOfFile(Protocol):
    """A pod of a file that is to be placed, and its position in the file."""

    @property
    def pod(self) -> Pod: ...
    @property
    def where(self) -> str: ...


@dataclass(frozen=True, slots=True)
class FileGangs:
    groups: tuple[Group, ...]  # in the order in which they are placed
    minimums: tuple[tuple[str, int, tuple[Role, ...]], ...]  # (Group.name, members that it needs, its roles), by name
    rules: tuple[
        tuple[str, TopologyRule], ...
    ]  # (Group.name, rule of all its pods together), by name; only those with one


def gangs_of(
    pending: Sequence[PodOfFile],
    running: Sequence[Pod],
    sources: Iterable[Found],
    problems: Problems,
    unknown: str = WAIT,
    standing: Standing = Standing.GIVEN,
) -> FileGangs:
    """The groups of files. `running`: pods that have a node. `sources`: the objects that describe gangs."""
    gangs = Gangs(unknown, standing)
    keys = {key: None for item in sources for key in _declare(item, gangs, problems)}
    for pod in running:
        gangs.holds(pod)
    for waiting in pending:
        if not gangs.waits(waiting.pod) and waiting.pod.group:
            name = group_name(waiting.pod.group)
            message = f"{name} is not in the input; the pod is placed on its own"
            problems.warning(waiting.where, FIELDS[name.api_group], message)
    groups: dict[str, list[Group]] = {}  # by the key of the gang or of the pod
    for pod in (waiting.pod for waiting in pending):
        if pod.group not in groups:
            groups[pod.group or pod.key] = gangs.groups(pod.group) if pod.group else [Group(pod.key, (pod,))]
    held = Counter(pod.group for pod in running if pod.group and not pod.leaving)
    roles = Counter((pod.group, pod.role) for pod in running if pod.group and pod.role and not pod.leaving)
    ordered = (_with_running(group, held[group.name], roles) for these in groups.values() for group in these)
    keys.update(dict.fromkeys(pod.group for pod in (*running, *(one.pod for one in pending)) if pod.group))
    terms = [(key, one) for key in sorted(keys) if (one := gangs.terms(key)).minimum]
    return FileGangs(
        tuple(sorted(ordered, key=lambda group: group.order)),
        tuple((key, one.minimum, one.roles) for key, one in terms),
        tuple((key, one.topology) for key, one in terms if one.topology != ANYWHERE),
    )


def _with_running(group: Group, running: int, of_roles: Counter[tuple[str, str]]) -> Group:
    roles = tuple(replace(role, running=of_roles[group.name, role.name]) for role in group.roles)
    return replace(group, running=running, roles=roles)


def _declare(item: Found, gangs: Gangs, problems: Problems) -> list[str]:
    """The keys of the gangs that an object describes."""
    name = GroupName(item.group, item.namespace, item.name)
    wrong = partial(problems.error, item.where)
    gangs.set_group(name, item.value, wrong)
    found = list(described(*name, item.value, lambda field, message: None))
    for one in found:
        if beyond := too_many_members(one.name, one.terms.minimum):
            problems.warning(item.where, one.field, f"{beyond}; its pods are not placed")
    return [one.name.key for one in found]
