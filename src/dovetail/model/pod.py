"""A pod as the scheduler sees it: its request, the nodes it may use, and the policies that place it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from operator import attrgetter

from dovetail.model.decision import Share
from dovetail.model.device import any_type_matches
from dovetail.model.gang import ANYWHERE, NO_TERMS, GangTerms, Role, TopologyRule
from dovetail.model.node import CPU
from dovetail.model.order import NaturalKey, natural
from dovetail.model.reason import Reason
from dovetail.model.relations import NO_PREFERENCES, NO_RELATIONS, Preferences, Relations
from dovetail.model.rules import NodeRules
from dovetail.model.units import WHOLE_CARD

ONE_CORE = 1000
DAEMON_SET = "DaemonSet/"  # prefix of the owner of a daemon's pod


class ContainerKind(IntEnum):
    INIT = 0  # runs alone before the others and then releases everything
    SIDECAR = 1  # an init container with restartPolicy Always: stays
    APP = 2


def at_once(amounts: Iterable[tuple[ContainerKind, int]]) -> int:
    """The most that a pod's containers hold at one time; init containers come first in `amounts`.

    Kubernetes' formula (component-helpers/resource/helpers.go PodRequests): app containers and sidecars add up; an init
    container runs beside the sidecars started before it.
    """
    staying = sidecars = peak = 0
    for kind, amount in amounts:
        if kind is ContainerKind.INIT:
            peak = max(peak, sidecars + amount)
            continue
        staying += amount
        sidecars += amount if kind is ContainerKind.SIDECAR else 0
    return max(staying, peak)


@dataclass(frozen=True, slots=True)
class CardResources:
    """The resource names by which Kubernetes counts requests for cards; "" = there is no such resource."""

    count: str
    memory: str = ""
    percentage: str = ""
    compute: str = ""  # in per cent
    memory_unit_mib: int = 1
    shared_compute_milli: int = 0  # what admission fills in beside memory for a part of a card


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """A number of distinct cards of one vendor. Memory and compute are per card.

    Memory is `memory_mib`, or `memory_percent` of the card if that is not None.
    """

    vendor: str
    count: int
    memory_mib: int = 0
    memory_percent: int | None = None
    compute_milli: int = 0  # 0 = no claim on compute: the card is shared
    plain: bool = False  # whole cards, no parts, were asked for: memory and compute are HAMi's defaults
    resources: CardResources | None = field(default=None, compare=False)  # None = no resource name

    @property
    def whole(self) -> bool:
        """Whether all of each card is asked for, stated or by default: all that a plugin without sharing can give."""
        return self.plain or (self.memory_percent == 100 and self.compute_milli >= WHOLE_CARD)


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    kind: ContainerKind = ContainerKind.APP
    asks: tuple[DeviceAsk, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """Which cards of a vendor a pod accepts. Empty tuples accept all; a `nouse` wins over a `use`."""

    vendor: str
    use_types: tuple[str, ...] = ()
    nouse_types: tuple[str, ...] = ()
    use_uuids: tuple[str, ...] = ()
    nouse_uuids: tuple[str, ...] = ()
    numa_bind: bool = False
    mode: str = ""  # a card is accepted only if this text contains the card's mode; "" = any

    def accepts(self, model: str) -> bool:
        """Whether the lists of types accept cards of this model."""
        if self.nouse_types and any_type_matches(model, self.nouse_types):
            return False
        return not self.use_types or any_type_matches(model, self.use_types)


@dataclass(frozen=True, slots=True)
class PreferenceWeights:
    """The weights of Kubernetes' preferences: kube-scheduler's (apis/config/v1/default_plugins.go)."""

    taints: int = 3
    node_affinity: int = 2
    spread: int = 2
    pod_affinity: int = 2
    images: int = 1


PREFERENCE_WEIGHTS = PreferenceWeights()


@dataclass(frozen=True, slots=True)
class Profile:
    """How a pod is placed: a node policy and a chain of device policies."""

    node: str = "binpack"
    device: tuple[str, ...] = ("spread",)
    weights: tuple[int, int, int] = (1, 1, 1)  # slot, compute, memory in the device score
    preferences: PreferenceWeights = PREFERENCE_WEIGHTS
    policy_weight: int = 0  # 0: preferences come first, the policy breaks ties; else it is one of them
    default_spread: bool = False  # spread the pods of a Service or controller as kube-scheduler does by default


ANY_NODE = NodeRules()
DEFAULT_PROFILE = Profile()
KUBERNETES_POLICY, OFF_DEVICES_POLICY = "kubernetes", "off-devices"
CPU_PROFILE = Profile(OFF_DEVICES_POLICY, policy_weight=1, default_spread=True)  # for pods that ask for no device


class Qos(IntEnum):
    """Kubernetes' quality of service. At equal priority, the lowest class yields first."""

    BEST_EFFORT = 0
    BURSTABLE = 1
    GUARANTEED = 2


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a pod's PriorityClass says of preemption (scheduler-plugins PreemptionToleration)."""

    minimum_priority: int  # pods of this priority or more may always take the pod's place
    seconds: float = 0.0  # for how long after its placement other pods may not; negative = never


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod cannot be placed on any node."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Pod:
    namespace: str
    name: str
    uid: str
    resources: Mapping[str, int] = field(default_factory=dict)  # effective request incl. overhead; `pods` is implied
    scored_cpu_milli: int = 0  # with Kubernetes' 100m / 200 MiB for containers that ask for nothing: scores only
    scored_memory: int = 0
    containers: tuple[Container, ...] = ()  # init containers first, then the others: HAMi's order
    device_rules: tuple[DeviceRules, ...] = ()
    node_rules: NodeRules = ANY_NODE
    profile: Profile = DEFAULT_PROFILE
    priority: int = 0
    created: float = 0.0  # seconds since the epoch
    scheduler: str = ""  # spec.schedulerName
    owner: str = ""  # "Deployment/namespace/name"; "" = none
    maker: str = ""  # "ReplicaSet/namespace/name": the controller whose selector default spreading uses
    group: str = ""  # the group that it names (Group.name); "" = a group of one
    role: str = ""  # its role in the group (Role.name); "" = none
    terms: GangTerms = NO_TERMS  # what the pod itself says of its group
    quota_use: Mapping[str, int] = field(default_factory=dict)  # what a native ResourceQuota counts
    refusal: Refusal | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    relations: Relations = NO_RELATIONS
    preferences: Preferences = NO_PREFERENCES
    leaving: bool = False  # has a deletion timestamp: it holds what it has; spread constraints do not count it
    preempts: bool = True  # False: spec.preemptionPolicy is Never
    qos: Qos = Qos.BEST_EFFORT
    tolerance: Tolerance | None = None
    expected_cpu_milli: int = 0  # the CPU that it will likely use, by its limits; 0 = `expected_cpu` estimates it
    network_kbit: int = 0  # the network load that it states, in kbit/s
    queue: str = ""  # the queue that it names (Queue.name); "" = that of its namespace, if there is one

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> tuple[int, float, str, NaturalKey]:
        """Priority first, then age, then namespace and name."""
        return (-self.priority, self.created, self.namespace, natural(self.name))

    @property
    def wants_devices(self) -> bool:
        return any(container.asks for container in self.containers)

    @property
    def is_plain(self) -> bool:
        """Whether the pod itself has nothing that one kernel call could not place: no refusal, rules or preferences."""
        plain = self.relations is NO_RELATIONS and self.preferences is NO_PREFERENCES
        return plain and self.refusal is None and not self.profile.default_spread

    @property
    def own_node(self) -> str:
        """The one node that a DaemonSet made the pod for; "" = any node."""
        return self.node_rules.only_node if self.owner.startswith(DAEMON_SET) else ""

    def named(self, uid: str) -> Pod:
        """The same pod under another name and UID: a replica of this template."""
        return replace(self, name=uid, uid=uid)

    def is_but_for_labels(self, other: Pod) -> bool:
        """Whether the other pod is equal in everything but labels."""
        return _beside_labels(self) == _beside_labels(other)

    def rules_for(self, vendor: str) -> DeviceRules:
        return next((rules for rules in self.device_rules if rules.vendor == vendor), DeviceRules(vendor))


def expected_cpu(pod: Pod) -> int:
    """CPU milli that the pod will likely use: by its limits, else 1.5 × its request, else one core (Trimaran)."""
    asked = pod.resources.get(CPU, 0)
    return pod.expected_cpu_milli or (asked * 3 + 1) // 2 or ONE_CORE


def template_key(pod: Pod) -> tuple[int, ...]:
    """A key of the pod's request, made of object ids: the fastest key, as replicas share their template's objects.

    Code that keeps the key must keep the objects too (`template_parts`), so that no other object gets their ids.
    """
    return (
        id(pod.resources),
        id(pod.containers),
        id(pod.device_rules),
        id(pod.profile),
        pod.scored_cpu_milli,
        pod.scored_memory,
        pod.expected_cpu_milli,
        pod.network_kbit,
        pod.qos,
    )


def template_parts(pod: Pod) -> tuple[object, ...]:
    return (pod.resources, pod.containers, pod.device_rules, pod.profile)


_beside_labels = attrgetter(*(each.name for each in fields(Pod) if each.name != "labels"))

TENANT = "Tenant/"  # prefix of the owner of a pod of a trace
POD_GROUP = "PodGroup/"  # no namespace has capital letters, so no pod's key starts like this


def tenant_of(pod: Pod) -> str:
    """The tenant of the pod: its namespace; in a trace, the tenant of the job."""
    return pod.owner.removeprefix(TENANT) if pod.owner.startswith(TENANT) else pod.namespace


def group_title(name: str) -> str:
    """The namespace/name in a group's name, for display."""
    return name.removeprefix(POD_GROUP).rpartition("@")[0] or name.removeprefix(POD_GROUP)


@dataclass(frozen=True, slots=True)
class Group:
    """The unit of scheduling: at least `minimum` of these pods are placed, or none is."""

    name: str  # unique: the key of a lone pod, "PodGroup/namespace/name@API group", or "PodGroup/namespace/job"
    pods: tuple[Pod, ...]
    minimum: int = 1
    running: int = 0  # members that hold a node already; they count towards the minimum
    length: float | None = None  # expected run time of the job in seconds; None = unknown
    roles: tuple[Role, ...] = ()  # each with a minimum of its own, beside that of the group
    topology: TopologyRule = ANYWHERE  # of all pods together; roles may have further rules

    @property
    def title(self) -> str:
        """namespace/name, for display."""
        return group_title(self.name)

    @property
    def namespace(self) -> str:
        """That of its first pod. A tenant chooses the name, and may write another namespace into it."""
        return self.pods[0].namespace

    @property
    def is_plain(self) -> bool:
        """Whether the group has neither roles nor topology rules."""
        return not self.roles and (self.topology is ANYWHERE or self.topology == ANYWHERE)

    def with_running(self, more: Iterable[str]) -> Group:
        """The group with further members that hold a node, given by their roles; its pods stay the same."""
        roles = Counter(more)
        counted = tuple(replace(one, running=one.running + roles[one.name]) for one in self.roles)
        return replace(self, running=self.running + roles.total(), roles=counted)

    @property
    def members(self) -> int:
        """The number of members, with a node or without."""
        return len(self.pods) + self.running

    @property
    def started(self) -> bool:
        """Whether some members hold a node, but fewer than the minimum: a crash between binds, or a member left."""
        return 0 < self.running < self.minimum

    @property
    def needed(self) -> int:
        """How many of these pods must be placed together, if any is; 0 or less: each pod can be placed alone."""
        return self.minimum - self.running

    @property
    def order(self) -> tuple[bool, int, float, str, NaturalKey, str]:
        """Started gangs first (docs/adr/0014); then priority, age, namespace and name: a total order."""
        return (
            not self.started,
            -max(pod.priority for pod in self.pods),
            min(pod.created for pod in self.pods),
            self.namespace,
            natural(self.title.partition("/")[2]),
            self.name,
        )


@dataclass(frozen=True, slots=True)
class Quota:
    """A namespace's limits on sums over its pods: what Kubernetes counts, and HAMi's device memory and compute."""

    namespace: str
    name: str
    hard: Mapping[str, int] = field(default_factory=dict)  # "requests.cpu" -> amount in the resource's unit
    device_memory_mib: Mapping[str, int] = field(default_factory=dict)  # vendor -> MiB over all cards
    device_compute_milli: Mapping[str, int] = field(default_factory=dict)  # vendor -> milli over all cards
    waiting: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # uid of a pod that exists -> its use


class Trust(IntEnum):
    """How far the record of a running pod's cards is trusted."""

    NONE = 0  # it fails its check: the pod may have any card of its node that has room for it
    AMOUNTS_AS_ASKED = 1  # the cards are trusted; the amounts are those that the pod asks for
    AMOUNTS_CAPPED = 2  # by another scheduler: amounts that the pod does not state are trusted, up to a card's size
    FULL = 3


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that holds a node. `shares` None: no record names its cards."""

    pod: Pod
    node: str
    shares: tuple[Share, ...] | None
    trust: Trust = Trust.FULL
    placed: float = 0.0  # when it got its node (PodScheduled), in seconds since the epoch; 0 = not known
    started: float = 0.0  # status.startTime; 0 = kubelet has not reported it
