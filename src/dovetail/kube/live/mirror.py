"""Turns what the API server reports of pods into events, only where something differs from before.

Nodes, namespaces and PodGroups have mirrors of their own, which this one holds.

The API server is the source of truth; the ledger follows it. A pod is identified by its UID: a later pod of the same
name is another pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.conversion.gangs import Gangs
from dovetail.kube.conversion.groups import Standing
from dovetail.kube.conversion.hyper_nodes import HyperNodes
from dovetail.kube.conversion.reading import TERMINAL
from dovetail.kube.conversion.settling import SETTLE_SECONDS, Settling
from dovetail.kube.conversion.templates import EPOCH, Reading
from dovetail.kube.live.gang_past import GangPast, ended_at
from dovetail.kube.live.group_facts import GroupFactsMirror
from dovetail.kube.live.known import Known, Stand, condition_of
from dovetail.kube.live.known_pods import KnownPods
from dovetail.kube.live.namespaces import Namespaces
from dovetail.kube.live.node_mirror import NodeMirror
from dovetail.kube.live.patience import is_refusal
from dovetail.kube.live.pod_group_mirror import PodGroupMirror
from dovetail.kube.live.pod_group_objects import PodGroupObjects
from dovetail.kube.live.priority_classes import PriorityClassMirror
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.set_aside import Fault
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.gangs import GangObject
from dovetail.kube.objects.problems import Problem
from dovetail.model.events import Event as Happening
from dovetail.model.events import GangChanged, GroupArrived, NamespaceChanged, PodGone, PodNominated, PodObserved
from dovetail.model.gang import Role
from dovetail.model.pod import Group, Pod


class Mirror:
    """Pods, nodes and namespaces as they were last reported."""

    def __init__(
        self,
        reader: PodReader,
        clock: Callable[[], float],
        gangs: Gangs | None = None,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._reader, self._clock = reader, clock
        self.namespaces, settling = Namespaces(), Settling(clock, settle_seconds)
        self.known = KnownPods(settling, self.namespaces)
        self.pods = self.known.by_uid  # changed only by way of `known`
        reader.pods = lambda: len(self.pods)
        self._priority_classes = PriorityClassMirror(reader.tolerances)
        self._nodes = NodeMirror(reader, settling, clock, self._complain, self._set_aside)
        self.nodes = self._nodes.nodes  # by name
        self.records_changed = 0  # how often another client changed the card record of a running pod
        self.is_being_bound: Callable[[str], bool] = lambda uid: False  # whether one of our Bindings is under way
        self.is_being_nominated: Callable[[str], bool] = lambda uid: False  # likewise: a nomination that we write
        self.topology = reader.topology  # levels of the configuration
        self.gangs = gangs or Gangs()
        self.pod_groups, self.past = PodGroupObjects(), GangPast()
        self._pod_groups = PodGroupMirror(self.gangs, self._set_aside, self._complain)
        self._group_facts = GroupFactsMirror(reader.group_facts)
        self._listed = False  # True = pods that newly appear with a node were not bound by us
        self._finished_in: dict[str, str] = {}  # uid of a finished pod that exists -> its gang
        self.problems: list[Problem] = []  # not reported yet; the code that reports them empties the list
        self.remarks: list[tuple[Pod, tuple[Problem, ...]]] = []  # about waiting pods; emptied likewise
        self.reports: list[tuple[Pod, str, str]] = []  # pods whose record is false: reason and text; emptied likewise
        self.failures: list[objects.Pod] = []  # pods that kubelet refused; emptied likewise
        self.faults: list[Fault] = []  # objects that could not be read; emptied likewise
        self._minimums: dict[str, tuple[int, tuple[Role, ...]]] = {}  # gang -> its own and its roles', as last reported

    def _complain(self, problems: Iterable[Problem]) -> None:
        self.problems += problems

    def _set_aside(self, fault: Fault) -> None:
        self.faults.append(fault)

    # ---- pods ---------------------------------------------------------------------------------------------------

    def hear_pods(self, batch: Iterable[Event[objects.Pod]]) -> list[Happening]:
        happened: list[Happening] = []
        for event in batch:
            if isinstance(event, Changed):
                if not self.known.is_past(event.object):
                    happened += self._heard(event.object)
            elif isinstance(event, Deleted):
                self.past.deleted(event.ref.uid, self._finished_in.pop(event.ref.uid, ""))
                happened += self._deleted(f"{event.ref.namespace}/{event.ref.name}", event.ref.uid)
            elif isinstance(event, Replaced):
                happened += self._all_pods(event)
        return happened + self.settled_by_now() + self._gathered()

    def _gathered(self) -> list[Happening]:
        """Gangs whose members have changed: offered once each, after all other events."""
        return self._regrouped(self.gangs.take_touched())

    def hear_pod(self, source: objects.Pod) -> list[Happening]:
        """Events from a pod in the answer to a request.

        We write only to pods that the watch has reported. If the pod is not known any more, the watch is ahead of the
        answer: the pod is gone or has finished.
        """
        meta = source.metadata
        if self.known.uid_of.get(f"{meta.namespace}/{meta.name}") != meta.uid or self.known.is_past(source):
            return []
        return [*self._heard(source), *self._gathered()]

    def _heard(self, source: objects.Pod) -> Iterator[Happening]:
        """As `_hear`; a pod that cannot be read fails alone."""
        try:
            yield from self._hear(source)
        except Exception as error:
            key = f"{source.metadata.namespace}/{source.metadata.name}"
            self.faults.append(Fault("Pod", key, error, source))
            yield from self._unread(key, source)

    def _unread(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        """Events for a pod that cannot be read.

        It is not placed. If it has a node, it keeps what it is known, or seems, to hold.
        """
        uid, version = source.metadata.uid, source.metadata.resource_version
        known = self.pods.get(uid)
        if source.status.phase in TERMINAL:
            yield from self._deleted(key, uid)
        elif not source.spec.node_name:
            yield from self._pod_gone(uid)
            self.known.uid_of[key] = uid
        elif known is None or known.held is None:
            held = self._reader.bare(source, known.pod if known is not None else None)
            self.known.note(uid, Known(key, Stand.HOLDS, version, held.running.pod, held))
            self.gangs.forget(uid)
            self.gangs.holds(held.running.pod)
            yield PodObserved(self._clock(), held.running)

    def _hear(self, source: objects.Pod) -> Iterator[Happening]:
        """Events from one pod as it is now."""
        meta, spec = source.metadata, source.spec
        key = f"{meta.namespace}/{meta.name}"
        before = self.known.uid_of.get(key)
        if before is not None and before != meta.uid:
            yield from self._deleted(key, before)
        if source.status.phase in TERMINAL:
            yield from self._finished(key, source)
        elif spec.node_name:
            yield from self._holds(key, source)
        elif self._reader.is_ours(source) and not meta.deletion_timestamp:
            ends = self.namespaces.is_ending(meta.namespace)
            yield from self._left(key, source) if ends else self._waits(key, source)
        elif source.status.nominated_node_name and not meta.deletion_timestamp:
            yield from self._promised(key, source)
        else:
            yield from self._pod_gone(meta.uid)
            self.known.uid_of[key] = meta.uid  # another scheduler's pod, but it exists

    def recall(self, pod: Pod) -> Group | None:
        """The group of a pod that was forgotten and not reported since; None = it was, or does not wait any more."""
        known = self.pods.get(pod.uid)
        if known is None or known.stand is not Stand.WAITS or not known.again:
            return None
        known.again = known.rests = False
        return self.gangs.group(known.pod)

    def read(self, source: objects.Pod) -> Pod:
        return self._read(source).pod

    def _read(self, source: objects.Pod) -> Reading:
        return self._reader.pod(source, self.namespaces.labels_of(source.metadata.namespace))

    def _all_pods(self, event: Replaced[objects.Pod]) -> Iterator[Happening]:
        there = {source.metadata.uid for source in event.items} | {each.ref.uid for each in event.unreadable}
        for key, uid in [(key, uid) for key, uid in self.known.uid_of.items() if uid not in there]:
            yield from self._deleted(key, uid)
        for uid in [uid for uid in self._finished_in if uid not in there]:
            self.past.deleted(uid, self._finished_in.pop(uid))
        seen = self.pods.keys() | self._finished_in.keys()
        for source in event.items:
            # The answer to one of our writes may be newer than the list.
            if event.rewound or not self.known.is_past(source):
                yield from self._heard(source)
        unseen = (one for one in event.items if one.status.phase == "Succeeded" and one.metadata.uid not in seen)
        ended = ((self._finished_in.get(one.metadata.uid, ""), ended_at(one.status)) for one in unseen)
        self.past.leave_out_earlier_runs(ended, (known.pod for known in self.pods.values()))
        self._listed = True

    def _waits(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        uid = source.metadata.uid
        reading = self._read(source)
        if reading.problems:
            self.remarks.append((reading.pod, reading.problems))
        known = self.pods.get(uid)
        node = source.status.nominated_node_name
        before = known.node if known is not None else ""
        is_news = known is None or known.stand is not Stand.WAITS or (known.again and not known.rests)
        if known is not None and not is_news and known.pod == reading.pod:
            known.version, known.condition, known.node = source.metadata.resource_version, condition_of(source), node
            known.claimed = self._reader.claimed(source)
            self.known.note_stamp(uid, source.metadata.annotations.get(EPOCH, ""))
            if node != before and not self.is_being_nominated(uid):  # else the engine knows better
                yield PodNominated(self._clock(), reading.pod, node)
            return
        self.problems += reading.problems
        if known is not None and known.stand is Stand.HOLDS:  # a server restored from a backup has never bound it
            yield PodGone(self._clock(), uid)
        self._note_unplaced(key, source, Stand.WAITS, reading.pod)
        if self.is_being_nominated(uid):
            node = before = ""  # the engine has chosen the node, with cards
        yield from self._offer(reading.pod, node, before)

    def _note_unplaced(self, key: str, source: objects.Pod, stand: Stand, pod: Pod) -> None:
        known, claimed = self.pods.get(pod.uid), self._reader.claimed(source)
        version, node = source.metadata.resource_version, source.status.nominated_node_name
        self.namespaces.note_early(source)
        self.known.note(pod.uid, Known(key, stand, version, pod, None, node, condition_of(source), claimed=claimed))
        if known is not None:
            self.pods[pod.uid].stamp, self.pods[pod.uid].doubt = known.stamp, known.doubt
        self.known.note_stamp(pod.uid, source.metadata.annotations.get(EPOCH, ""))

    def _offer(self, pod: Pod, node: str, before: str = "") -> Iterator[Happening]:
        """Offer a pod that waits from now on. `node`, `before`: its nominated node now and until now."""
        in_gang = self.gangs.waits(pod)
        if node or before:
            yield PodNominated(self._clock(), pod, node)
        if not in_gang:
            yield GroupArrived(self._clock(), self.gangs.group(pod))

    def _left(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        """Events for a pod of a namespace that is being deleted, or of a new one of that name that is still unknown."""
        known = self.pods.get(source.metadata.uid)
        if known is not None and known.stand is Stand.WAITS and self.is_being_bound(source.metadata.uid):
            yield from self._waits(key, source)
            return
        if known is not None and known.stand is not Stand.LEFT:
            yield from self._pod_gone(source.metadata.uid)
        self._note_unplaced(key, source, Stand.LEFT, self._read(source).pod)

    def _holds(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        uid, version, runs = source.metadata.uid, source.metadata.resource_version, source.status.phase == "Running"
        known, ends = self.pods.get(uid), bool(source.metadata.deletion_timestamp)
        before = known.held if known is not None else None
        asked, placed_itself = (known.pod, False) if known is not None else (None, self._listed)
        labels = self.namespaces.labels_of(source.metadata.namespace)
        held, problems = self._reader.running(source, asked, before, placed_itself, labels)
        self.problems += problems
        self.records_changed += before is not None and held.changes > before.changes
        if held.report[0] and (before is None or before.report != held.report):
            self.reports.append((held.running.pod, *held.report))
        if known is not None and before is not None and before.running == held.running:
            known.version, known.held, known.runs, known.ends = version, held, runs, ends
            return
        rank = source.spec.priority_class_name
        about = (key, Stand.HOLDS, version, held.running.pod, held)
        self.known.note(uid, Known(*about, runs=runs, ends=ends, priority_class=rank))
        self.gangs.forget(uid)
        self.gangs.holds(held.running.pod)
        yield PodObserved(self._clock(), held.running)

    def hear_priority_classes(self, batch: Iterable[Event[objects.PriorityClass]]) -> list[Happening]:
        """Events for running pods whose PriorityClass tolerates something else now."""
        changed = self._priority_classes.hear(batch)
        problems, self._priority_classes.problems = self._priority_classes.problems, []
        self.problems += problems
        concerned = [one for one in self.pods.values() if one.held is not None and one.priority_class in changed]
        for known in concerned:
            known.tolerates(self._reader.tolerances.get(known.priority_class))
        return [PodObserved(self._clock(), one.running) for one in concerned if one.running is not None]

    def _promised(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        pod, node = self._read(source).pod, source.status.nominated_node_name
        known = self.pods.get(pod.uid)
        if known is not None and known.stand is Stand.PROMISED and (known.pod, known.node) == (pod, node):
            return
        self.known.note(pod.uid, Known(key, Stand.PROMISED, source.metadata.resource_version, pod, node=node))
        yield PodNominated(self._clock(), pod, node)

    def _finished(self, key: str, source: objects.Pod) -> Iterator[Happening]:
        if self.known.holds(source.metadata.uid) and self._reader.is_ours(source) and is_refusal(source.status):
            self.failures.append(source)
        succeeded = source.status.phase == "Succeeded"
        if gang := self._reader.gang_of(source):
            self.past.ended(gang, source.metadata.uid, succeeded)
            self._finished_in[source.metadata.uid] = gang
        yield from self._deleted(key, source.metadata.uid, succeeded)

    def _deleted(self, key: str, uid: str, succeeded: bool = False) -> Iterator[Happening]:
        if not succeeded and uid in self.pods and (gang := self.pods[uid].pod.group):
            self.past.lost(gang, self._clock())
        yield from self._pod_gone(uid)
        if self.known.uid_of.get(key) == uid:
            del self.known.uid_of[key]

    def _pod_gone(self, uid: str) -> Iterator[Happening]:
        """Events for a pod that holds nothing and needs no place any more, whether it still exists or not."""
        if uid in self.pods:
            self.gangs.gone(self.known.drop(uid).pod)
            yield PodGone(self._clock(), uid)

    # ---- nodes, namespaces and PodGroups ------------------------------------------------------------------------

    def hear_nodes(self, batch: Iterable[Event[objects.Node]]) -> list[Happening]:
        return self._nodes.hear(batch)

    def relabel(self, hyper_nodes: HyperNodes) -> list[Happening]:
        """Events for nodes whose HyperNodes differ now."""
        return self._nodes.relabel(hyper_nodes)

    def settled_by_now(self) -> list[Happening]:
        """See NodeMirror.settled_by_now."""
        return self._nodes.settled_by_now()

    def hear_namespaces(self, batch: Iterable[Event[objects.Namespace]]) -> list[Happening]:
        changed, ending, ended = self.namespaces.hear(batch)
        faults, self.namespaces.faults = self.namespaces.faults, []
        self.faults += [Fault("Namespace", name, error) for name, error in faults]
        happened: list[Happening] = [NamespaceChanged(self._clock(), name, labels) for name, labels in changed]
        for source in self.namespaces.take_passed_over():
            if self.known.waits(source.metadata.uid) and not self.known.is_past(source):
                happened += self._heard(source)
        for known in self._in(ending, Stand.WAITS):
            if self.is_being_bound(known.pod.uid):
                continue  # its Binding may have succeeded while the watch of pods is behind: its cards stay booked
            happened += self._pod_gone(known.pod.uid)
            known.stand = Stand.LEFT
            self.known.note(known.pod.uid, known)
        # These pods belong to a new namespace of that name, if they still exist.
        for known in self._in(ended, Stand.LEFT):
            known.stand, known.again, known.rests = Stand.WAITS, False, False
            happened += self._offer(known.pod, known.node)
        return happened + self._gathered()

    def _in(self, namespaces: Collection[str], stand: Stand) -> list[Known]:
        if not namespaces:
            return []
        return [one for one in self.pods.values() if one.stand is stand and one.pod.namespace in namespaces]

    def hear_pod_groups(
        self,
        batch: Iterable[Event[GangObject]],
        api_group: str,
        version: str = "",
        listed: Standing = Standing.LISTED,
    ) -> list[Happening]:
        """Events from PodGroups: pods of a new or changed one are tried together.

        `listed`: the kind's state after a list.
        """
        batch = list(batch)
        self.pod_groups.hear(batch, api_group, version)
        changed = self._group_facts.hear(batch, api_group)
        keys = self._pod_groups.hear(batch, api_group, version, listed)
        moved = self._group_facts.apply(changed, self.pods.values(), self.gangs)
        happened = [PodObserved(self._clock(), one.running) for one in moved if one.running is not None]
        return [*happened, *self._regrouped([*keys, *changed, *self.gangs.take_touched()])]

    def pod_groups_stand(self, api_group: str, version: str, standing: Standing) -> list[Happening]:
        """Note whether the watch of a kind of PodGroup is open."""
        return self._regrouped(self.gangs.stand(api_group, version, standing))

    def _regrouped(self, keys: Iterable[str]) -> list[Happening]:
        """Report new minimums, and offer members in their present group that waited alone or in another one."""
        keys = list(dict.fromkeys(keys))
        happened: list[Happening] = []
        for key in keys:
            terms = self.gangs.terms(key)
            minimums = (terms.minimum, terms.roles if terms.minimum else ())
            if minimums != self._minimums.get(key, (0, ())):
                self._minimums[key] = minimums
                if not terms.minimum:
                    del self._minimums[key]
                happened.append(GangChanged(self._clock(), key, *minimums))
        groups = [group for key in keys for group in self.gangs.groups(key)]
        return [*happened, *(GroupArrived(self._clock(), group) for group in groups)]
