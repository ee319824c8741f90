"""Pods that name a PodGroup, collected: the engine gets all waiting members as one group.

The rule for files and for the live scheduler: a pod that names a gang is never placed alone. While its PodGroup is not
known, it waits with `GroupUnknown`, and the message says what is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from dovetail.kube.conversion.groups import (
    FIELDS,
    KUBERNETES,
    GroupName,
    Standing,
    group_name,
    minimum_of,
    too_many_members,
    why_unknown,
)
from dovetail.kube.files.decode import Found
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.model.pod import Group, Pod, Refusal
from dovetail.model.reason import Reason

WAIT, ALONE = UNKNOWN_GROUP = ("wait", "alone")  # what happens to a pod whose PodGroup is not known


class Gangs:
    """Which pods belong together. The engine counts those that have a node (engine/rights/members.py)."""

    def __init__(self, unknown: str = WAIT, standing: Standing = Standing.LISTED) -> None:
        """`unknown`: one of UNKNOWN_GROUP. `standing`: that of kinds for which none is set.

        For Kubernetes' own PodGroups, pods always wait, as with kube-scheduler.
        """
        self._unknown, self._default = unknown, standing
        # Key -> API version -> minimum: the kind may be served in several.
        self._minimums: dict[str, dict[str, int]] = {}
        self._waiting: dict[str, dict[str, Pod]] = {}  # key -> uid -> member without a node
        self._key_of: dict[str, str] = {}  # uid of a waiting member -> key
        self._standing: dict[str, dict[str, Standing]] = {}  # API group -> API version -> standing
        self._served: set[str] = set()  # API groups whose PodGroups were listed once
        self._withheld: dict[str, None] = {}  # keys of gangs that wait because their kind is behind
        self._touched: dict[str, None] = {}  # keys of gangs whose members have changed

    # ---- members ------------------------------------------------------------------------------------------------

    def waits(self, pod: Pod) -> bool:
        """Note a waiting pod; returns whether it is offered to the engine with its gang, and not alone."""
        self.forget(pod.uid)
        if not pod.group:
            return False
        self._waiting.setdefault(pod.group, {})[pod.uid] = pod
        self._key_of[pod.uid] = pod.group
        return self.touch(pod.group)

    def forget(self, uid: str) -> None:
        """Forget a pod that waits no more, or that is another one now."""
        key = self._key_of.pop(uid, None)
        if key is None:
            return
        members = self._waiting[key]
        del members[uid]
        if not members:
            del self._waiting[key]
        self.touch(key)

    def touch(self, key: str) -> bool:
        """Note that a gang's members have changed; returns whether it is a gang whose pods are not placed alone."""
        in_gang = bool(key) and not self._places_alone(key)
        if in_gang:
            self._touched[key] = None
        return in_gang

    def members(self, key: str) -> list[str]:
        """UIDs of the waiting members, including those that are being bound."""
        return list(self._waiting.get(key, ()))

    def take_touched(self) -> list[Group]:
        """Gangs whose members have changed since the last call, as they are now."""
        touched, self._touched = self._touched, {}
        return [group for key in touched for group in self.groups(key)]

    # ---- what the engine is offered -----------------------------------------------------------------------------

    def group(self, pod: Pod) -> Group:
        """The pod alone, or with all waiting members of its gang."""
        if not pod.group or self._places_alone(pod.group):
            return _alone(pod)
        return self._group(pod.group, self._waiting.get(pod.group, {pod.uid: pod}))

    def groups(self, key: str) -> list[Group]:
        """The waiting members of one gang: one group, or one each where they are placed alone."""
        waiting = self._waiting.get(key)
        if not waiting:
            return []
        if self._places_alone(key):
            return [_alone(pod) for pod in waiting.values()]
        return [self._group(key, waiting)]

    def minimum(self, key: str) -> int:
        """The gang's minimum; 0 = there is no such group."""
        return max(self._minimums.get(key, {}).values(), default=0)

    def _group(self, key: str, waiting: dict[str, Pod]) -> Group:
        pods = tuple(sorted(waiting.values(), key=lambda one: one.order))
        refusal = self._refusal(key)
        if refusal is None:
            return Group(key, pods, self.minimum(key))
        return Group(key, tuple(pod if pod.refusal is not None else replace(pod, refusal=refusal) for pod in pods))

    def _refusal(self, key: str) -> Refusal | None:
        """Why no member can be placed on any node."""
        if missing := self._missing(key):
            return Refusal(Reason.GROUP_UNKNOWN, missing)
        beyond = too_many_members(group_name(key), self.minimum(key))
        return Refusal(Reason.LIMIT_EXCEEDED, beyond) if beyond else None

    def _missing(self, key: str) -> str:
        """Why the gang cannot be decided; "" = its PodGroup is known."""
        name = group_name(key)
        standing = self.standing(name.api_group)
        if standing is Standing.BEHIND:
            self._withheld[key] = None
        elif self.minimum(key):
            return ""
        others = tuple(
            other for other in FIELDS if other != name.api_group and self.minimum(name._replace(api_group=other).key)
        )
        return why_unknown(name, standing, others)

    def is_undecided(self, key: str) -> bool:
        """Whether the gang waits until its kind can be read again, and is offered again then."""
        api_group = group_name(key).api_group
        return key in self._withheld or (self.standing(api_group) is Standing.NOT_SERVED and api_group in self._served)

    def _places_alone(self, key: str) -> bool:
        """Whether members are placed alone: it is configured, and the PodGroup certainly does not exist.

        If a kind was served once, a 404 does not prove that it is gone: an API server that has just started also
        answers 404.
        """
        api_group = group_name(key).api_group
        standing = self.standing(api_group)
        if self._unknown != ALONE or api_group == KUBERNETES or self.minimum(key):
            return False
        return standing in (Standing.LISTED, Standing.GIVEN) or (
            standing is Standing.NOT_SERVED and api_group not in self._served
        )

    # ---- PodGroups ----------------------------------------------------------------------------------------------

    def standing(self, api_group: str) -> Standing:
        """The best standing among its API versions: they serve the same objects."""
        said = self._standing.get(api_group, {}).values()
        return min(said, key=lambda one: one.value, default=self._default)

    def stand(self, api_group: str, version: str, standing: Standing) -> list[str]:
        """Set what is known of a kind; returns the keys of gangs that this affects."""
        before = self.standing(api_group)
        self._standing.setdefault(api_group, {})[version] = standing
        now = self.standing(api_group)
        if now is Standing.LISTED:
            self._served.add(api_group)
        unknown = [key for key in self._waiting if group_name(key).api_group == api_group and not self.minimum(key)]
        if now is Standing.BEHIND and before is Standing.NOT_SERVED:
            self._withheld.update(dict.fromkeys(unknown))
        if now is before or now is Standing.BEHIND:
            return []  # a gang that is being decided continues; one with news from its members waits
        if before is Standing.BEHIND:
            keys = [key for key in self._withheld if group_name(key).api_group == api_group]
            for key in keys:
                del self._withheld[key]
            return keys
        return unknown

    def wanted(self, api_group: str) -> bool:
        """Whether a pod waits for a PodGroup of this kind that is not known."""
        return any(group_name(key).api_group == api_group and not self.minimum(key) for key in self._waiting)

    def set_groups(self, api_group: str, sources: Iterable[objects.PodGroup], version: str = "") -> list[str]:
        """Set all PodGroups of this API group in this version; returns the keys of those that changed."""
        given = {_name(api_group, source): source.spec for source in sources}
        gone = self.keep_groups(api_group, given, version)
        return gone + [key for name, spec in given.items() for key in self.set_group(name, spec, version)]

    def keep_groups(self, api_group: str, names: Iterable[GroupName], version: str = "") -> list[str]:
        """Drop all PodGroups but these; returns the keys of those that are gone."""
        there = {name.key for name in names}
        lost = [key for key, said in self._minimums.items() if version in said and group_name(key)[0] == api_group]
        return [changed for key in lost if key not in there for changed in self._set(key, version, 0)]

    def set_group(self, name: GroupName, spec: objects.PodGroupSpec, version: str = "") -> list[str]:
        """Set a PodGroup; returns the keys of gangs that this affects."""
        minimum, _, _ = minimum_of(name.api_group, spec)
        return self._set(name.key, version, minimum)

    def hear_group(self, api_group: str, source: objects.PodGroup, version: str = "") -> list[str]:
        return self.set_group(_name(api_group, source), source.spec, version)

    def drop_group(self, name: GroupName, version: str = "") -> list[str]:
        return self._set(name.key, version, 0)

    def _set(self, key: str, version: str, minimum: int) -> list[str]:
        """Set a minimum; returns the keys of gangs that this affects.

        0: the PodGroup does not exist in this version.
        """
        before = self.minimum(key)
        said = {**self._minimums.pop(key, {}), version: minimum}
        if there := {each: count for each, count in said.items() if count}:
            self._minimums[key] = there
        now = self.minimum(key)
        if now == before:
            return []
        return [key] if now and before else [key, *self._unknown_namesakes(group_name(key))]

    def _unknown_namesakes(self, name: GroupName) -> list[str]:
        """Gangs that wait for a PodGroup of this name of another kind: their messages name the kinds that exist."""
        keys = (name._replace(api_group=other).key for other in FIELDS if other != name.api_group)
        return [key for key in keys if key in self._waiting and not self.minimum(key)]


def _alone(pod: Pod) -> Group:
    return Group(pod.key, (pod,))


def _name(api_group: str, source: objects.PodGroup) -> GroupName:
    return GroupName(api_group, source.metadata.namespace, source.metadata.name)


class PodOfFile(Protocol):
    """A pod of a file that is to be placed, and its position in the file."""

    @property
    def pod(self) -> Pod: ...
    @property
    def where(self) -> str: ...


def groups_of(
    pending: Sequence[PodOfFile],
    running: Iterable[Pod],
    pod_groups: Iterable[Found],
    problems: Problems,
    unknown: str = WAIT,
    standing: Standing = Standing.GIVEN,
) -> tuple[Group, ...]:
    """The groups of files, in the order in which they are placed. `running`: pods that have a node."""
    gangs = Gangs(unknown, standing)
    for item in pod_groups:
        minimum, field, message = minimum_of(item.group, item.value.spec)
        name = GroupName(item.group, item.namespace, item.name)
        if message:
            problems.error(item.where, field, message)
        elif beyond := too_many_members(name, minimum):
            problems.warning(item.where, field, f"{beyond}; its pods are not placed")
        gangs.set_group(name, item.value.spec)
    for waiting in pending:
        if not gangs.waits(waiting.pod) and waiting.pod.group:
            name = group_name(waiting.pod.group)
            message = f"{name} is not in the input; the pod is placed on its own"
            problems.warning(waiting.where, FIELDS[name.api_group], message)
    groups: dict[str, list[Group]] = {}  # by the key of the gang or of the pod
    for pod in (waiting.pod for waiting in pending):
        if pod.group not in groups:
            groups[pod.group or pod.key] = gangs.groups(pod.group) if pod.group else [_alone(pod)]
    held = Counter(pod.group for pod in running if pod.group and not pod.leaving)
    ordered = (replace(group, running=held[group.name]) for these in groups.values() for group in these)
    return tuple(sorted(ordered, key=lambda group: group.order))
