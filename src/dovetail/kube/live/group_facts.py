"""What objects say of the pods that name them: the queue of pods that name none, and gangs that start together.

Volcano's and KAI's PodGroups have `spec.queue`. Koordinator's have an annotation with the gangs that start together:
their pods are in one group, in which each gang is a role.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.gangs import Gangs
from dovetail.kube.conversion.group_facts import NO_FACTS, GroupFacts, facts_of, with_facts, without_facts
from dovetail.kube.conversion.groups import GroupName
from dovetail.kube.live.known import Known, Stand
from dovetail.kube.objects.gangs import GangObject, PodGroup
from dovetail.kube.objects.queues import KAI_GROUP, KOORDINATOR, VOLCANO_GROUP

WITH_FACTS = (VOLCANO_GROUP, KAI_GROUP, KOORDINATOR)  # API groups of such objects


class GroupFactsMirror:
    def __init__(self, facts: dict[str, GroupFacts]) -> None:
        """`facts`, by the key of the group, is kept up to date here and read by the reader of pods."""
        self._facts = facts

    def hear(self, batch: Iterable[Event[GangObject]], api_group: str) -> dict[str, GroupFacts]:
        """The groups that say something else now, with what they said before."""
        changed: dict[str, GroupFacts] = {}
        for event in batch if api_group in WITH_FACTS else ():
            now: dict[str, GroupFacts] = {}  # key -> facts
            if isinstance(event, (Replaced, NotServed)):
                now = {key: NO_FACTS for key in self._facts if key.endswith(f"@{api_group}")}
            if isinstance(event, Replaced):
                refs = (GroupName(api_group, one.ref.namespace, one.ref.name).key for one in event.unreadable)
                now.update((key, self._facts.get(key, NO_FACTS)) for key in refs)
                now.update(_facts(api_group, one) for one in event.items)
            elif isinstance(event, Changed):
                now = dict((_facts(api_group, event.object),))
            elif isinstance(event, Deleted):
                now = {GroupName(api_group, event.ref.namespace, event.ref.name).key: NO_FACTS}
            for key, facts in now.items():
                before = self._facts.get(key, NO_FACTS)
                if before != facts:
                    changed.setdefault(key, before)
                    self._facts[key] = facts
                if facts == NO_FACTS:
                    self._facts.pop(key, None)
        return changed

    def apply(self, changed: dict[str, GroupFacts], pods: Iterable[Known], gangs: Gangs) -> list[Known]:
        """Give the members of these groups what they say now; returns those that have a node and differ."""
        moved = list[Known]()
        if not changed:
            return moved
        concerned = {*changed, *(before.together for before in changed.values())}
        for known in pods:
            if known.pod.group not in concerned:
                continue
            was = without_facts(known.pod, changed)
            pod = with_facts(was, self._facts) if was.group in changed else known.pod
            if not known.pod.group or pod == known.pod:
                continue
            known.pod = pod
            if known.stand is Stand.WAITS:
                gangs.waits(pod)
            elif known.held is not None:
                known.held = known.held.with_pod(pod)
                gangs.holds(pod)
                moved.append(known)
        return moved


def _facts(api_group: str, source: GangObject) -> tuple[str, GroupFacts]:
    name = GroupName(api_group, source.metadata.namespace, source.metadata.name)
    return name.key, facts_of(name, source) if isinstance(source, PodGroup) else NO_FACTS
