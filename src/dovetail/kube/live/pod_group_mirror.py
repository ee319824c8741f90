"""PodGroups, Workloads and JobSets as the API server last reported them: which gangs change with each report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.gangs import Gangs
from dovetail.kube.conversion.groups import NOUNS, GroupName, Standing
from dovetail.kube.live.set_aside import Fault
from dovetail.kube.objects.gangs import GangObject
from dovetail.kube.objects.problems import Problem

MOST_PROBLEMS = 20  # that are told of one object


class PodGroupMirror:
    def __init__(
        self, gangs: Gangs, set_aside: Callable[[Fault], None], complain: Callable[[Iterable[Problem]], None]
    ) -> None:
        """`set_aside` gets objects that could not be read, `complain` what is wrong with others."""
        self._gangs, self._set_aside, self._complain = gangs, set_aside, complain
        # Object -> API version that reported it, and the hash of what was wrong with it last.
        self._said: dict[GroupName, tuple[str, int]] = {}

    def hear(self, batch: Iterable[Event[GangObject]], api_group: str, version: str, listed: Standing) -> list[str]:
        """Keys of the gangs that differ now. `listed`: the kind's state after a list."""
        gangs, keys = self._gangs, list[str]()
        for event in batch:
            if isinstance(event, Deleted):
                gone = GroupName(api_group, event.ref.namespace, event.ref.name)
                keys += gangs.drop_group(gone, version)
                if gone in self._said and self._said[gone][0] == version:
                    del self._said[gone]
            elif isinstance(event, Replaced):
                refs = {(one.metadata.namespace, one.metadata.name) for one in event.items}
                refs |= {(one.ref.namespace, one.ref.name) for one in event.unreadable}
                keys += gangs.keep_groups(api_group, refs, version)
                self._forget_others(api_group, refs, version)
                for source in event.items:
                    keys += self._read(api_group, source, version)
                keys += gangs.stand(api_group, version, listed)
            elif isinstance(event, NotServed):
                keys += gangs.keep_groups(api_group, (), version)
                self._forget_others(api_group, (), version)
                keys += gangs.stand(api_group, version, Standing.NOT_SERVED)
            elif isinstance(event, Changed):
                keys += self._read(api_group, event.object, version)
        return keys

    def _forget_others(self, api_group: str, there: Collection[tuple[str, str]], version: str) -> None:
        """Forget what was wrong with all objects of this version but these (namespace, name)."""
        for name, (said_by, _) in list(self._said.items()):
            if name.api_group == api_group and said_by == version and name[1:] not in there:
                del self._said[name]

    def _read(self, api_group: str, source: GangObject, version: str) -> list[str]:
        """Take in one object. One that cannot be read keeps its previous form."""
        name = GroupName(api_group, source.metadata.namespace, source.metadata.name)
        kind = NOUNS.get(api_group, "PodGroup")
        where, found, further = f"{kind} {name.title} ({api_group})", list[Problem](), 0

        def wrong(field: str, message: str) -> None:
            nonlocal further
            if len(found) < MOST_PROBLEMS:
                found.append(Problem("error", where, field, message))
            else:
                further += 1

        try:
            keys = self._gangs.hear_group(api_group, source, wrong, version)
        except Exception as error:
            self._set_aside(Fault(kind, name.title, error))
            return []
        if further:
            found.append(Problem("error", where, "", f"has {further} further problems, which are not listed"))
        _, before = self._said.pop(name, ("", hash(())))
        now = hash(tuple(found))
        if now != before:
            self._complain(found)
        if found:
            self._said[name] = (version, now)
        return keys
