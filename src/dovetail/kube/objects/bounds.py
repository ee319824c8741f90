"""The bounds of everything that a tenant or a node controls: one table; docs/limits.md is checked against it.

Code that reads a field compares it with a row of the table, so neither memory nor time grows with the size of an
object. A pod beyond a bound is refused (`LimitExceeded`). Of a node or queue, entries beyond a bound are not read, with
a warning.
"""

from __future__ import annotations

from typing import NamedTuple

REFUSED = "the pod is not placed: `LimitExceeded`"
LEFT_OUT = "the rest is left out, with a warning"


class Bound(NamedTuple):
    """One row: the maximum of one count."""

    name: str  # stable; docs/limits.md has the same
    most: int
    what: str  # what is counted, in words that follow a number
    field: str  # its field in the object
    checked: str  # the module of kube/ that compares
    beyond: str = REFUSED

    def exceeded(self, count: int | str) -> str:
        """The message for an object that has more."""
        said = f"{count:,}" if isinstance(count, int) else count
        return f"{said} {self.what}; at most {self.most:,} are read (docs/limits.md)"


# ---- pods -------------------------------------------------------------------------------------------------------

CARDS_PER_CONTAINER = Bound(
    "cards-per-container",
    256,
    "cards are asked for by one container",
    "resources.limits of a count resource such as nvidia.com/gpu",
    "conversion/asks",
)
CARDS_PER_POD = Bound(
    "cards-per-pod",
    1_024,
    "cards are asked for by all containers together",
    "the same, summed up",
    "conversion/bounded",
)
CONTAINERS = Bound(
    "containers",
    256,
    "containers, init containers included",
    "spec.containers, spec.initContainers",
    "conversion/bounded",
)
RESOURCES_PER_POD = Bound(
    "resources-per-pod",
    64,
    "different resources are named",
    "requests and limits of all containers, spec.resources, spec.overhead",
    "conversion/bounded",
)
AMOUNT = Bound(
    "amount",
    2**53,
    "of one resource",
    "every amount of a resource, in milli for cpu; also the sum over a pod's containers",
    "conversion/amounts",
    "the amount is an error: the pod is not placed (`InvalidRequest`), a node's amount counts as 0",
)
CARD_NUMBER = Bound(
    "card-number",
    2**31 - 1,
    "MiB, slots or per cent of a card",
    "GPU memory and cores of pods, numbers in a node's register and in device strings (HAMi's are int32)",
    "conversion/card_memory, conversion/register, conversion/assigned",
    "the amount is an error: the pod is not placed (`InvalidRequest`), the node's card is left out",
)
REQUEST_ANNOTATION = Bound(
    "request-annotation",
    32_768,
    "characters in an annotation that says what a pod asks for",
    "hami.io/…, dovetail.dev/… and the vendors' annotations of a pod, device strings excepted",
    "conversion/bounded, conversion/topology_rules",
)
CARD_TYPES = Bound(
    "card-types", 64, "types in one list", "use-gputype, nouse-gputype and their like", "conversion/bounded"
)
CARD_UUIDS = Bound(
    "card-uuids", 256, "UUIDs in one list", "use-gpuuuid, nouse-gpuuuid and their like", "conversion/bounded"
)
CARD_NAME = Bound(
    "card-name",
    200,
    "characters in a type or UUID",
    "entries of those lists; `id` and `type` of a node's register",
    "conversion/bounded, conversion/register, conversion/assigned",
    "the pod is not placed: `LimitExceeded`; the node's card is left out; the pod's device string is not believed",
)
DEVICE_STRING = Bound(
    "device-string",
    262_144,
    "characters in a device string or register",
    "…-devices-allocated of a pod, …-register and …-score of a node (Kubernetes allows as much for all annotations)",
    "conversion/assigned, conversion/register",
    "it is not read: the pod's cards are guessed, the node has no such card, its links are unknown",
)
SHARES = Bound(
    "shares",
    1_024,
    "cards in the device strings of one pod",
    "…-devices-allocated",
    "conversion/assigned",
    "they are not believed: the pod's cards are guessed",
)
POLICY_CHAIN = Bound(
    "policy-chain",
    4,
    "GPU policies in a chain",
    "dovetail.dev/gpu-policy, hami.io/gpu-scheduler-policy",
    "conversion/policies",
    "the pod is not placed: `InvalidRequest`",
)
LABELS_PER_POD = Bound("labels-per-pod", 256, "labels", "metadata.labels of a pod", "conversion/bounded")
OWNER_NAME = Bound(
    "owner-name",
    512,
    "characters in the kind and name of an owner",
    "metadata.ownerReferences of a pod (the API server does not limit them)",
    "conversion/bounded",
)
NODE_SELECTOR = Bound("node-selector", 128, "labels in a node selector", "spec.nodeSelector", "conversion/bounded")
TOLERATIONS = Bound("tolerations", 256, "tolerations", "spec.tolerations", "conversion/bounded")
AFFINITY_TERMS = Bound(
    "affinity-terms",
    128,
    "terms of affinity and anti-affinity, required and preferred",
    "spec.affinity",
    "conversion/bounded",
)
SELECTOR_VALUES = Bound(
    "selector-values",
    4_096,
    "keys, values and namespaces in affinity terms and spread constraints",
    "spec.affinity, spec.topologySpreadConstraints",
    "conversion/bounded",
)
SPREAD_CONSTRAINTS = Bound(
    "spread-constraints", 32, "spread constraints", "spec.topologySpreadConstraints", "conversion/bounded"
)
PORTS = Bound("ports", 1_024, "ports", "ports of all containers", "conversion/bounded")
VOLUMES = Bound("volumes", 1_024, "volumes", "spec.volumes", "conversion/bounded")
CLAIMS = Bound("claims", 256, "persistent volume claims", "spec.volumes", "conversion/bounded")
CLAIM_SELECTOR = Bound(
    "claim-selector",
    1_024,
    "keys and values in the selector of a claim, or in one term of a volume",
    "spec.selector of a PersistentVolumeClaim, spec.nodeAffinity of a PersistentVolume",
    "conversion/volumes",
    "the claim or volume is left out, with an error; pods that name the claim wait: `ClaimMissing`",
)
OBJECT_SELECTOR = Bound(
    "object-selector",
    256,
    "keys and values in the selector of an object",
    "spec.selector of a PodDisruptionBudget, ReplicaSet or StatefulSet, labelMatch of a HyperNode",
    "conversion/relations",
    "the budget or the member is left out, with an error; pods of the controller are not spread by default",
)
BUDGETS = Bound(
    "budgets",
    500,
    "PodDisruptionBudgets are in one namespace",
    "PodDisruptionBudget objects",
    "conversion/budgets, live/budget_mirror",
    "the rest is left out, with an error; the API server still refuses evictions that they forbid",
)
GANG_MEMBERS = Bound(
    "gang-members",
    10_000,
    "pods must be placed together",
    "spec.minMember or spec.schedulingPolicy.gang.minCount of a PodGroup; sizes of gangs in annotations of pods",
    "conversion/groups, conversion/memberships",
    "the pods that name the PodGroup are not placed: `LimitExceeded`",
)
GANG_ROLES = Bound(
    "gang-roles",
    64,
    "roles in one gang",
    "spec.minTaskMember, spec.subGroups, spec.replicatedJobs, dovetail.dev/gang-role, gangs that start together",
    "conversion/stated_terms",
    "the pods of the gang are not placed: `LimitExceeded`",
)
GANG_NAME = Bound(
    "gang-name",
    253,
    "characters in the name of a gang or of a role",
    "the label or annotation in which a pod names its gang or role",
    "conversion/memberships",
    "the name is cut, and matches none",
)
GANG_STATEMENTS = Bound(
    "gang-statements",
    64,
    "different statements by pods of one gang",
    "annotations of pods that say how many start together, and where",
    "conversion/stated_terms",
    "the pods of the gang are not placed: `LimitExceeded`",
)
LABEL_NAME = Bound(
    "label-name",
    317,
    "characters in the name of a node label",
    "dovetail.dev/topology-required and its like, levels of a Topology",
    "conversion/topology_rules",
    "the annotation is an error: the pod is not placed (`InvalidRequest`); the level is left out",
)
TOPOLOGY_SPREADS = Bound(
    "topology-spreads",
    8,
    "limits in one annotation",
    "dovetail.dev/topology-spread",
    "conversion/topology_rules",
    "the annotation is an error: the pod is not placed (`InvalidRequest`)",
)
POD_GROUP_STATUS = Bound(
    "pod-group-status",
    32_768,
    "bytes of status and minimum resources",
    "status and spec.minResources of a PodGroup, as JSON",
    "live/pod_group_objects",
    "its status is not written; a PodGroup of Volcano stays Pending",
)
POD_GROUP_RESOURCES = Bound(
    "pod-group-resources",
    64,
    "resources in the minimum of a PodGroup",
    "spec.minResources of a PodGroup of Volcano",
    "live/pod_group_status_writer",
    "the PodGroup stays Pending, and its status says why",
)

# ---- nodes ------------------------------------------------------------------------------------------------------

CARDS_PER_NODE = Bound(
    "cards-per-node",
    256,
    "cards on one node",
    "…-register annotations, nvidia.com/gpu.count, status.allocatable, pools of a cluster file",
    "conversion/register, conversion/nodes, conversion/discovery",
    "the rest is left out, with a warning; a pool of a cluster file is an error",
)
KINDS_PER_NODE = Bound(
    "kinds-per-node",
    16,
    "kinds of card (type and mode) in one register",
    "…-register annotations",
    "conversion/register",
    "cards of further kinds are left out, with a warning",
)
LINKED_CARDS = Bound(
    "linked-cards",
    64,
    "cards on a node with pair scores",
    "…-score annotations",
    "conversion/register",
    "pair scores of that node are not read: links count as unknown, with a warning",
)
RESOURCES_PER_NODE = Bound(
    "resources-per-node", 256, "resources on one node", "status.allocatable", "conversion/bounded", LEFT_OUT
)
LABELS_PER_NODE = Bound(
    "labels-per-node", 2_048, "labels on one node", "metadata.labels", "conversion/bounded", LEFT_OUT
)
TAINTS = Bound(
    "taints",
    256,
    "taints on one node",
    "spec.taints",
    "conversion/bounded",
    "the rest is left out and the node counts as cordoned, with a warning",
)
VOLUME_DRIVERS = Bound(
    "volume-drivers",
    256,
    "volume drivers of one node",
    "spec.drivers of a CSINode",
    "conversion/volumes",
    "the CSINode is left out, with an error: volumes of that node are not limited",
)
IMAGES = Bound("images", 2_048, "names of images on one node", "status.images", "conversion/bounded", LEFT_OUT)
CORDONED_CARDS = Bound(
    "cordoned-cards",
    1_024,
    "UUIDs in the list of cordoned cards",
    "hami.io/device-cordon",
    "conversion/register",
    "all cards of the node count as cordoned, with a warning",
)

# ---- topologies -------------------------------------------------------------------------------------------------

TOPOLOGY_LEVELS = Bound(
    "topology-levels",
    16,
    "levels in one Topology",
    "spec.levels of a Topology, topology of the configuration",
    "conversion/topologies",
    LEFT_OUT,
)
HYPER_NODES = Bound(
    "hyper-nodes", 20_000, "HyperNodes", "HyperNode objects", "conversion/hyper_nodes", "the last by name are left out"
)
HYPER_NODE_MEMBERS = Bound(
    "hyper-node-members",
    10_000,
    "members of one HyperNode",
    "spec.members of a HyperNode",
    "conversion/hyper_nodes",
    LEFT_OUT,
)

# ---- queues -----------------------------------------------------------------------------------------------------

QUEUE_COUNT = Bound(
    "queues",
    10_000,
    "queues of all kinds together",
    "ElasticQuota and Queue objects",
    "conversion/queue_tree",
    "the newest are left out, with an error; their pods count in no queue",
)
QUEUE_DEPTH = Bound(
    "queue-depth",
    16,
    "queues above one another",
    "the parent of an ElasticQuota or Queue",
    "conversion/queue_tree",
    "the queue counts as a child of the root, with an error",
)
QUEUE_RESOURCES = Bound(
    "queue-resources",
    64,
    "resources in one list of a queue",
    "spec.min, spec.max, spec.capability, spec.deserved, spec.guarantee, shared-weight",
    "conversion/queues",
    LEFT_OUT,
)
QUEUE_NAMESPACES = Bound(
    "queue-namespaces",
    1_024,
    "namespaces of one queue",
    "the annotation quota.scheduling.koordinator.sh/namespaces",
    "conversion/queues",
    LEFT_OUT,
)
QUEUE_NAME = Bound(
    "queue-name",
    253,
    "characters in the name of a queue",
    "the label or annotation in which a pod names its queue",
    "conversion/queue_names",
    "the name is cut, and matches no queue",
)

BOUNDS: tuple[Bound, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Bound))
