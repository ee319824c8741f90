"""Pods of gangs, collected: the engine gets all waiting members as one group.

The rule for files and for the live scheduler: a pod that names a gang is never placed alone. While it is not known how
many pods start together, the pod waits with `GroupUnknown`, and the message says what is missing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dovetail.kube.conversion.gang_terms import Wrong, described
from dovetail.kube.conversion.groups import (
    FIELDS,
    WORKLOADS,
    GroupName,
    Standing,
    group_name,
    too_many_members,
    why_unknown,
)
from dovetail.kube.conversion.stated_terms import StatedTerms
from dovetail.kube.objects.gangs import KUBERNETES, GangObject
from dovetail.model.gang import GangTerms
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
        self._terms = StatedTerms()
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
        self._terms.hear(pod)
        if not pod.group:
            return False
        if pod.group not in self._waiting:
            self._waiting[pod.group] = {}
            self._terms.begin(pod.group)
        self._waiting[pod.group][pod.uid] = pod
        self._key_of[pod.uid] = pod.group
        return self.touch(pod.group)

    def holds(self, pod: Pod) -> None:
        """Note what a pod that has a node says of its gang."""
        if not pod.group:
            self._terms.forget(pod.uid)
            return
        before = self.terms(pod.group)
        self._terms.hear(pod)
        if self.terms(pod.group) != before:
            self.touch(pod.group)

    def update(self, pod: Pod) -> None:
        """Replace a waiting member by itself in another form: its gang is the same."""
        if self._key_of.get(pod.uid) == pod.group:
            self._waiting[pod.group][pod.uid] = pod

    def forget(self, uid: str) -> None:
        """Forget a pod that waits no more, or that is another one now."""
        key = self._key_of.pop(uid, None)
        if key is None:
            return
        members = self._waiting[key]
        del members[uid]
        if not members:
            del self._waiting[key]
            self._terms.end(key)
        self.touch(key)

    def gone(self, pod: Pod) -> None:
        """Forget a pod that neither waits nor has a node."""
        self.forget(pod.uid)
        self._terms.forget(pod.uid)
        self.touch(pod.group)

    def touch(self, key: str) -> bool:
        """Note that a gang's members have changed; returns whether it is a gang whose pods are not placed alone."""
        in_gang = bool(key) and not self._places_alone(key)
        if in_gang:
            self._touched[key] = None
        return in_gang

    def members(self, key: str) -> list[str]:
        """UIDs of the waiting members, including those that are being bound."""
        return list(self._waiting.get(key, ()))

    def waiting_keys(self) -> list[str]:
        """Keys of the gangs with waiting members."""
        return list(self._waiting)

    def take_touched(self) -> list[str]:
        """Keys of the gangs whose members have changed since the last call."""
        touched, self._touched = self._touched, {}
        return list(touched)

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

    def terms(self, key: str) -> GangTerms:
        """What is known of the gang. A minimum of 0: there is no such group."""
        return self._terms.of(key)

    def minimum(self, key: str) -> int:
        """The gang's minimum; 0 = there is no such group."""
        return self._terms.of(key).minimum

    def _group(self, key: str, waiting: dict[str, Pod]) -> Group:
        pods = tuple(sorted(waiting.values(), key=lambda one: one.order))
        refusal = self._refusal(key)
        if refusal is None:
            terms = self.terms(key)
            return Group(key, pods, terms.minimum, roles=terms.roles, topology=terms.topology)
        return Group(key, tuple(pod if pod.refusal is not None else replace(pod, refusal=refusal) for pod in pods))

    def _refusal(self, key: str) -> Refusal | None:
        """Why no member can be placed on any node."""
        if missing := self._missing(key):
            return Refusal(Reason.GROUP_UNKNOWN, missing)
        name = group_name(key)
        if beyond := self._terms.beyond(key):
            beyond = f"{name}: {beyond}"
        beyond = beyond or too_many_members(name, self.minimum(key))
        return Refusal(Reason.LIMIT_EXCEEDED, beyond) if beyond else None

    def _missing(self, key: str) -> str:
        """Why the gang cannot be decided; "" = its PodGroup is known."""
        name = group_name(key)
        standing = self.standing(name.api_group)
        if standing is Standing.BEHIND:
            self._withheld[key] = None
        elif self.minimum(key):
            return ""
        name = self._terms.unknown_part(name)
        namesakes = (other for other in FIELDS if other != name.api_group)
        others = tuple(other for other in namesakes if self._terms.has_object(name._replace(api_group=other).key))
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
        if self._unknown != ALONE or api_group in (KUBERNETES, WORKLOADS) or self.minimum(key):
            return False
        return standing in (Standing.LISTED, Standing.GIVEN) or (
            standing is Standing.NOT_SERVED and api_group not in self._served
        )

    # ---- objects ------------------------------------------------------------------------------------------------

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

    def keep_groups(self, api_group: str, there: Collection[tuple[str, str]], version: str = "") -> list[str]:
        """Drop all objects but these (namespace, name); returns the keys of the gangs that are gone."""
        gone = [name for name in self._terms.declared_in(api_group, version) if _object_of(name) not in there]
        return [key for name in gone for key in self._set(name, version, None)]

    def hear_group(self, api_group: str, source: GangObject, wrong: Wrong, version: str = "") -> list[str]:
        """Set what an object says; returns the keys of gangs that this affects."""
        meta = source.metadata
        return self.set_group(GroupName(api_group, meta.namespace, meta.name), source, wrong, version)

    def set_group(self, name: GroupName, source: GangObject, wrong: Wrong, version: str = "") -> list[str]:
        gangs = list(described(*name, source, wrong))
        return [key for one in gangs for key in self._set(one.name, version, one.terms)]

    def drop_group(self, name: GroupName, version: str = "") -> list[str]:
        """Note that an object is gone. `name` is that of the object."""
        gone = [name]
        if name.api_group == WORKLOADS:
            gone = [one for one in self._terms.declared_in(WORKLOADS, version) if _object_of(one) == name[1:]]
        return [key for one in gone for key in self._set(one, version, None)]

    def _set(self, name: GroupName, version: str, terms: GangTerms | None) -> list[str]:
        """Set the terms; returns the keys of gangs that this affects. None: no object says any, in this version."""
        known = self._terms.has_object(name.key)
        if not self._terms.declare(name.key, version, terms):
            return []
        keys = [name.key, *self._sharing(name.key)]
        return keys if known and terms is not None else [*keys, *self._unknown_namesakes(name)]

    def _sharing(self, key: str) -> list[str]:
        """Other gangs that wait and that this object describes."""
        return [one for one in self._terms.sharing(key) if one in self._waiting]

    def _unknown_namesakes(self, name: GroupName) -> list[str]:
        """Gangs that wait for a PodGroup of this name of another kind: their messages name the kinds that exist."""
        names = (name._replace(api_group=other) for other in FIELDS if other != name.api_group)
        keys = (key for one in names for key in (one.key, *self._sharing(one.key)))
        return [key for key in keys if key in self._waiting and not self.minimum(key)]


def _alone(pod: Pod) -> Group:
    return Group(pod.key, (pod,))


def _object_of(name: GroupName) -> tuple[str, str]:
    """Namespace and name of the object that describes the gang."""
    return name.namespace, name.name.partition("/")[0] if name.api_group == WORKLOADS else name.name
