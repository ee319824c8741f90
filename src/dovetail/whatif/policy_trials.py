"""What other policies would do with a cluster and its pods: placed anew on empty nodes, and the pods that wait today.

Both trials are plans (`plan.py`) in which no running pod is stopped for another one. Placed anew are the pods that ask
for devices, and the members of their gangs. A pod keeps its node if another scheduler placed it, if a DaemonSet made it
for this node, or if it is being deleted; pods without devices keep theirs too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from dovetail.engine.usage import CardUse, NodeUse, own_cards
from dovetail.model.gang import ANYWHERE
from dovetail.model.order import NaturalKey, natural
from dovetail.model.pod import DAEMON_SET, Group, Pod, Profile, RunningPod
from dovetail.whatif.plan import PlannedPod, plan
from dovetail.whatif.room import NodeRoom, node_room, roomiest, together
from dovetail.whatif.situation import EngineOptions, Situation


class KeepsNode(StrEnum):
    """Why a pod with devices keeps its node."""

    OTHER_SCHEDULER = "otherScheduler"
    DAEMON_SET = "daemonSet"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class EmptiedCluster:
    """The cluster without the pods that are placed anew; these wait, before those that wait today."""

    situation: Situation
    moved: frozenset[str]  # UIDs of running pods that are placed anew
    waiting: frozenset[str]  # UIDs of pods that wait today
    kept: Mapping[KeepsNode, int]  # why pods with devices keep their nodes -> how many


@dataclass(frozen=True, slots=True)
class ClusterRoom:
    """What is in use and free on the devices of all nodes."""

    room: NodeRoom  # of all nodes
    largest: NodeRoom  # of the node that fits the largest request
    nodes: int  # with devices
    unused_nodes: int  # of these, nodes that take pods, and of whose devices none is in use
    cards: tuple[CardUse, ...]


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What one policy does with pods that are to be placed."""

    placed: int
    pending: int
    starts: tuple[PlannedPod, ...]  # pods that wait today and get a node, in the order of placing
    waits: tuple[PlannedPod, ...]  # pods that run today and get none
    after: ClusterRoom


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    anew: TrialOutcome  # the pods that run and those that wait, on nodes without them
    waiting: TrialOutcome  # the pods that wait, on the cluster as it is


def under(profile: Profile | None) -> Callable[[Pod], Pod]:
    """A change of pods that ask for devices: these policies instead of their own. None: no change."""

    def same(pod: Pod) -> Pod:
        return pod

    def changed(pod: Pod) -> Pod:
        if profile is None or not pod.wants_devices:
            return pod
        return replace(pod, profile=replace(pod.profile, node=profile.node, device=profile.device))

    return same if profile is None else changed


def try_policy(
    today: Situation, emptied: EmptiedCluster, profile: Profile | None, options: EngineOptions
) -> PolicyTrial:
    """Both trials with these policies; None = each pod's own. Raises ValueError for a wrong argument of a policy."""
    return PolicyTrial(*(_tried(one, emptied, profile, options) for one in (emptied.situation, today)))


def _tried(
    situation: Situation, emptied: EmptiedCluster, profile: Profile | None, options: EngineOptions
) -> TrialOutcome:
    change = under(profile)
    groups = tuple(replace(group, pods=tuple(map(change, group.pods))) for group in situation.groups)
    made = plan(replace(situation, groups=groups), replace(options, yielding=None))
    return TrialOutcome(
        placed=len(made.placed),
        pending=len(made.pending),
        starts=tuple(one for one in made.placed if one.pod.uid in emptied.waiting),
        waits=tuple(one for one in made.pending if one.pod.uid in emptied.moved),
        after=cluster_room(made.after),
    )


def cluster_room(uses: Sequence[NodeUse]) -> ClusterRoom:
    """The sums over all nodes."""
    with_cards = [use for use in uses if own_cards(use)]
    rooms = [node_room(use) for use in with_cards]
    unused = (
        room.usable and not any(card.slots_used for card in use.cards)
        for use, room in zip(with_cards, rooms, strict=True)
    )
    return ClusterRoom(
        room=together(rooms),
        largest=roomiest(rooms),
        nodes=len(with_cards),
        unused_nodes=sum(map(bool, unused)),
        cards=tuple(card for use in uses for card in use.cards),
    )


def emptied_cluster(today: Situation, schedulers: Collection[str] | None) -> EmptiedCluster:
    """The cluster without the pods of these schedulers that ask for devices. None: of all schedulers."""
    why = {held.pod.uid: _why_kept(held.pod, schedulers) for held in today.running}
    asking = [held.pod for held in today.running if held.pod.wants_devices]
    gangs = {pod.group for pod in asking if pod.group and why[pod.uid] is None}

    def goes(pod: Pod) -> bool:
        return why[pod.uid] is None and (pod.wants_devices or pod.group in gangs)

    moved = [held for held in today.running if goes(held.pod)]
    kept = [held for held in today.running if not goes(held.pod)]
    reasons = Counter(reason for pod in asking if (reason := why[pod.uid]) is not None)
    return EmptiedCluster(
        situation=replace(
            today,
            running=tuple(kept),
            groups=_groups(today, moved, kept),
            nominated=(),  # a nomination is a promise for the cluster as it is
            quotas=tuple(
                replace(quota, waiting={**quota.waiting, **_admitted(moved, quota.namespace)}) for quota in today.quotas
            ),
        ),
        moved=frozenset(held.pod.uid for held in moved),
        waiting=frozenset(pod.uid for group in today.groups for pod in group.pods),
        kept={reason: reasons[reason] for reason in KeepsNode if reasons[reason]},
    )


def _why_kept(pod: Pod, schedulers: Collection[str] | None) -> KeepsNode | None:
    if schedulers is not None and pod.scheduler not in schedulers:
        return KeepsNode.OTHER_SCHEDULER
    if pod.owner.startswith(DAEMON_SET):
        return KeepsNode.DAEMON_SET
    return KeepsNode.LEAVING if pod.leaving else None


def _admitted(moved: Sequence[RunningPod], namespace: str) -> dict[str, Mapping[str, int]]:
    """What the API server has admitted of the pods of a namespace: its quota does not count them again."""
    return {held.pod.uid: held.pod.quota_use for held in moved if held.pod.namespace == namespace}


def _groups(today: Situation, moved: Sequence[RunningPod], kept: Sequence[RunningPod]) -> tuple[Group, ...]:
    """The groups to place: first those with pods that run, in the order in which their first pod got its node."""
    minimums = {name: (minimum, roles) for name, minimum, roles in today.gangs}
    rules, rest = dict(today.gang_rules), {group.name: group for group in today.groups}
    members: dict[str, list[Pod]] = {}
    for held in sorted(moved, key=_placing_order):
        in_gang = held.pod.group in minimums
        members.setdefault(held.pod.group if in_gang else held.pod.key, []).append(held.pod)
    staying: dict[str, list[str]] = {}  # gang -> roles of its members that keep their nodes
    for one in kept:
        if one.pod.group and not one.pod.leaving:
            staying.setdefault(one.pod.group, []).append(one.pod.role)
    found = []
    for name, pods in members.items():
        late = rest.pop(name, None)
        if name not in minimums:
            found.append(Group(name, tuple(pods)))
            continue
        minimum, roles = minimums[name]
        all_pods = sorted((*pods, *(late.pods if late is not None else ())), key=lambda pod: pod.order)
        roles = tuple(replace(role, running=0) for role in roles)
        gang = Group(name, tuple(all_pods), minimum, roles=roles, topology=rules.get(name, ANYWHERE))
        found.append(gang.with_running(staying.get(name, ())))
    return (*found, *rest.values())


def _placing_order(held: RunningPod) -> tuple[float, float, str, NaturalKey, str]:
    """When the pod got its node, or was created if that is not known; then its names."""
    pod = held.pod
    return held.placed or held.started or pod.created, pod.created, pod.namespace, natural(pod.name), pod.uid
