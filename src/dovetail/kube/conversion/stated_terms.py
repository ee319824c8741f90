"""What objects and pods say of each gang, put together: one set of terms, whatever the order of the reports.

An object's minimum counts before that of pods. Where pods differ, the largest number counts, and of rules the first in
alphabetical order. A rule of an object counts before that of pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from dovetail.kube.conversion.groups import GroupName, group_name
from dovetail.kube.objects.bounds import GANG_ROLES, GANG_STATEMENTS
from dovetail.model.gang import ANYWHERE, NO_TERMS, GangTerms, Role, TopologyRule
from dovetail.model.pod import Pod


class StatedTerms:
    """The terms of all gangs that an object describes, or of which pods exist."""

    def __init__(self) -> None:
        # Key -> API version -> terms: the kind may be served in several.
        self._declared: dict[str, dict[str, GangTerms]] = {}
        self._said: dict[str, dict[GangTerms, int]] = {}  # key -> terms -> number of pods that say so
        self._of_pod: dict[str, tuple[str, GangTerms]] = {}  # uid -> key, terms
        self._waiting: set[str] = set()  # keys of gangs with waiting pods
        # Key of an object -> keys of further gangs that it describes, and of which pods wait or say something.
        self._sharing: dict[str, dict[str, None]] = {}
        self._merged: dict[str, GangTerms] = {}

    def of(self, key: str) -> GangTerms:
        """The terms of the gang. A minimum of 0: it is not known how many pods start together."""
        known = self._merged.get(key)
        if known is None:
            name, said = group_name(key), self._said_of(key)
            if len(name.parts) > 1:
                known = self._together(name, said)
            else:
                known = _merged(self._object(name.described_by.key), said)
            if self._has_pods(key) or key in self._declared:  # keys of gangs that do not exist are not kept
                self._merged[key] = known
        return known

    def beyond(self, key: str) -> str:
        """Why the terms are too many to be read; "" = they are not."""
        if (said := len(self._said.get(key, ()))) > GANG_STATEMENTS.most:
            return GANG_STATEMENTS.exceeded(said)
        roles = len(self.of(key).roles)
        return GANG_ROLES.exceeded(roles) if roles > GANG_ROLES.most else ""

    def unknown_part(self, name: GroupName) -> GroupName:
        """Of gangs that start together, the first that is not known."""
        said = self._said_of(name.key)
        return next((part for part in name.parts if not self._part(part, said).minimum), name)

    # ---- objects ------------------------------------------------------------------------------------------------

    def declare(self, key: str, version: str, terms: GangTerms | None) -> bool:
        """Set what an object says; None = it does not exist in this version. Returns whether this is news."""
        before = self._object(key)
        said = {**self._declared.pop(key, {}), version: terms}
        there = {each: one for each, one in said.items() if one is not None}
        if there:
            self._declared[key] = there
        if self._object(key) == before:
            return False
        for each in (key, *self.sharing(key)):
            self._merged.pop(each, None)
        return True

    def sharing(self, key: str) -> list[str]:
        """Other gangs with pods that this object describes: replicas of a Workload's group, gangs that start together.

        `key`: that of the object.
        """
        return list(self._sharing.get(key, ()))

    def has_object(self, key: str) -> bool:
        return key in self._declared

    def declared_in(self, api_group: str, version: str) -> list[GroupName]:
        names = (group_name(key) for key, said in self._declared.items() if version in said)
        return [name for name in names if name.api_group == api_group]

    def _object(self, key: str) -> GangTerms | None:
        said = self._declared.get(key)
        return max(said.values(), key=lambda one: (one.minimum, repr(one))) if said else None

    # ---- pods ---------------------------------------------------------------------------------------------------

    def begin(self, key: str) -> None:
        """Note that a first pod of the gang waits. What is not known of the gang is remembered too, until `end`."""
        self._attend(key)
        self._waiting.add(key)

    def end(self, key: str) -> None:
        """Note that no pod of the gang waits."""
        self._waiting.discard(key)
        self._neglect(key)

    def hear(self, pod: Pod) -> None:
        """Note what a pod says that waits or holds a node."""
        before = self._of_pod.get(pod.uid)
        if before == (pod.group, pod.terms) or (before is None and pod.terms is NO_TERMS):
            return
        self.forget(pod.uid)
        if pod.group and pod.terms != NO_TERMS:
            self._attend(pod.group)
            said = self._said.setdefault(pod.group, {})
            said[pod.terms] = said.get(pod.terms, 0) + 1
            self._of_pod[pod.uid] = (pod.group, pod.terms)
            self._merged.pop(pod.group, None)

    def forget(self, uid: str) -> str:
        """Forget what a pod said; returns the key of its gang, "" = it said nothing."""
        key, terms = self._of_pod.pop(uid, ("", NO_TERMS))
        if key:
            said = self._said[key]
            said[terms] -= 1
            if not said[terms]:
                del said[terms]
            if not said:
                del self._said[key]
            self._merged.pop(key, None)
            self._neglect(key)
        return key

    def _has_pods(self, key: str) -> bool:
        return key in self._waiting or key in self._said

    def _attend(self, key: str) -> None:
        """Note which objects describe the gang, with its first pod."""
        if not self._has_pods(key):
            for source in _sources(key):
                self._sharing.setdefault(source, {})[key] = None

    def _neglect(self, key: str) -> None:
        """Undo `_attend`, with its last pod."""
        if self._has_pods(key):
            return
        self._merged.pop(key, None)
        for source in _sources(key):
            shared = self._sharing.get(source, {})
            shared.pop(key, None)
            if not shared:
                self._sharing.pop(source, None)

    def _said_of(self, key: str) -> list[GangTerms]:
        return list(islice(self._said.get(key, ()), GANG_STATEMENTS.most))

    # ---- gangs that start together ------------------------------------------------------------------------------

    def _part(self, part: GroupName, said: Iterable[GangTerms]) -> Role:
        terms = self._object(part.key)
        if terms is not None:
            return Role(part.title, terms.minimum, terms.topology)
        roles = [role for one in said for role in one.roles if role.name == part.title]
        return max(roles, key=lambda role: (role.minimum, repr(role)), default=Role(part.title, 0))

    def _together(self, name: GroupName, said: list[GangTerms]) -> GangTerms:
        """Each gang is a role. The minimum is 0 until all of them are known."""
        roles = tuple(self._part(part, said) for part in name.parts)
        minimum = sum(role.minimum for role in roles) if all(role.minimum for role in roles) else 0
        objects = [one for part in name.parts if (one := self._object(part.key)) is not None]
        return GangTerms(minimum, roles, time_limit=_limit((*objects, *said)))


def _sources(key: str) -> list[str]:
    """Keys of the objects that describe the gang, if they are not its own."""
    name = group_name(key)
    return [one.key for part in name.parts if (one := part.described_by) != name]


def _limit(terms: Iterable[GangTerms]) -> float | None:
    return max((one.time_limit for one in terms if one.time_limit is not None), default=None)


def _first(rules: Iterable[TopologyRule]) -> TopologyRule:
    return min((rule for rule in rules if rule != ANYWHERE), key=repr, default=ANYWHERE)


def _merged(declared: GangTerms | None, said: list[GangTerms]) -> GangTerms:
    if not said:
        return declared or NO_TERMS
    minimum = declared.minimum if declared is not None else max(one.minimum for one in said)
    given = declared or NO_TERMS
    roles = {role.name: role for role in given.roles}
    stated: dict[str, list[Role]] = {}
    for role in (role for one in said for role in one.roles):
        stated.setdefault(role.name, []).append(role)
    for name in sorted(stated):
        rule = _first(role.topology for role in stated[name])
        known = roles.get(name)
        if known is None:
            roles[name] = Role(name, max(role.minimum for role in stated[name]), rule)
        elif known.topology == ANYWHERE:
            roles[name] = replace(known, topology=rule)
    if minimum:
        minimum = max(minimum, sum(role.minimum for role in roles.values()))
    rule = given.topology if given.topology != ANYWHERE else _first(one.topology for one in said)
    limit = given.time_limit if given.time_limit is not None else _limit(said)
    return GangTerms(minimum, tuple(roles.values()), rule, limit)
