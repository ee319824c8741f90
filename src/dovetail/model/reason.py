"""Every refusal has a type: a code for arrays, a stable name, and HAMi's word if HAMi has one.

Text is derived from the code, never the code from text.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Reason(IntEnum):
    """Why a node, a card or a pod was refused. 0 is not a refusal."""

    OK = 0
    # The node itself (Kubernetes' rules).
    NODE_NAME = 1
    NODE_UNSCHEDULABLE = 2
    TAINT = 3
    NODE_SELECTOR = 4
    NODE_AFFINITY = 5
    HOST_PORT = 6
    POD_AFFINITY = 7
    POD_ANTI_AFFINITY = 8
    OTHERS_ANTI_AFFINITY = 9
    # What the node has left.
    CPU = 10
    MEMORY = 11
    STORAGE = 12
    PODS = 13
    EXTENDED = 14
    SPREAD = 15
    SPREAD_LABEL = 16
    VOLUME_NODE = 17
    VOLUME_ZONE = 18
    VOLUME_LIMIT = 19
    # The node's devices as a whole.
    UNREGISTERED = 20
    TOO_FEW_CARDS = 21
    MIG_NODE = 22
    WHOLE_CARDS_ONLY = 23
    NODE_UNSETTLED = 24
    # Volumes, continued.
    VOLUME_NONE = 25
    # The gang, on this node.
    OTHER_DOMAIN = 26
    # One card, in HAMi's order of checks (pkg/device/nvidia/device.go:715).
    CARD_UNHEALTHY = 30
    CARD_CORDONED = 31
    CARD_TYPE = 32
    CARD_NUMA = 33
    CARD_UUID = 34
    CARD_SLOTS = 35
    CARD_IN_USE = 36
    CARD_QUOTA = 37
    CARD_MEMORY = 38
    CARD_COMPUTE = 39
    CARD_COMPUTE_EXHAUSTED = 40
    CARD_MIG = 41
    CARDS_TOO_FEW_FIT = 42
    CARD_QUARANTINED = 43
    POSTPONED = 44  # by the policy
    # The pod or its group, on every node.
    GROUP_INCOMPLETE = 50
    GROUP_NOT_PLACED = 51
    QUOTA = 52
    RESOURCE_CLAIMS = 53
    INVALID_REQUEST = 54
    NO_NODES = 55
    SCHEDULING_GATED = 56
    QUEUE_ORDER = 57
    CLAIM_MISSING = 58
    CLAIM_UNBOUND = 59
    CLAIM_IN_USE = 60
    GROUP_UNKNOWN = 61
    LIMIT_EXCEEDED = 63
    SET_ASIDE = 70
    POLICY_NOT_ALLOWED = 71
    QUEUE_CEILING = 72
    QUEUE_BORROWING = 73
    NO_VICTIMS = 74
    NO_DOMAIN = 75
    DOMAINS_TOO_FEW = 76


class Word(NamedTuple):
    """The words for a reason."""

    name: str  # stable, for counting and for JSON
    sentence: str  # for users
    hami: str | None  # HAMi's own string for the same thing


REASON_WORDS: dict[Reason, Word] = {
    Reason.OK: Word("Ok", "fits", None),
    Reason.NODE_NAME: Word("NodeNameMismatch", "the pod names another node", None),
    Reason.NODE_UNSCHEDULABLE: Word("NodeUnschedulable", "node is cordoned", None),
    Reason.TAINT: Word("TaintNotTolerated", "taint not tolerated", None),
    Reason.NODE_SELECTOR: Word("NodeSelectorMismatch", "nodeSelector does not match", None),
    Reason.NODE_AFFINITY: Word("NodeAffinityMismatch", "required node affinity does not match", None),
    Reason.HOST_PORT: Word("HostPortInUse", "host port in use", None),
    Reason.POD_AFFINITY: Word("PodAffinityMismatch", "pod affinity does not match", None),
    Reason.POD_ANTI_AFFINITY: Word("PodAntiAffinityMismatch", "pod anti-affinity does not match", None),
    Reason.OTHERS_ANTI_AFFINITY: Word("OthersAntiAffinity", "a pod there wants no such pod beside it", None),
    Reason.CPU: Word("InsufficientCPU", "CPU short", None),
    Reason.MEMORY: Word("InsufficientMemory", "memory short", None),
    Reason.STORAGE: Word("InsufficientEphemeralStorage", "ephemeral storage short", None),
    Reason.PODS: Word("TooManyPods", "no pod slot left", None),
    Reason.EXTENDED: Word("InsufficientExtendedResource", "extended resource short", None),
    Reason.SPREAD: Word("TopologySpread", "topology spread constraint does not hold", None),
    Reason.SPREAD_LABEL: Word(
        "TopologySpreadLabelMissing", "node lacks the label of a topology spread constraint", None
    ),
    Reason.VOLUME_NODE: Word("VolumeNodeAffinity", "a volume of the pod cannot be used on the node", None),
    Reason.VOLUME_ZONE: Word("VolumeZoneMismatch", "a volume of the pod is in another zone", None),
    Reason.VOLUME_LIMIT: Word("TooManyVolumes", "node can attach no more volumes", None),
    Reason.OTHER_DOMAIN: Word("OtherDomain", "node is in no domain that the topology rules of the gang allow", None),
    Reason.UNREGISTERED: Word("NodeUnregistered", "node has no such device", "node unregistered"),
    Reason.TOO_FEW_CARDS: Word(
        "NodeInsufficientDevice", "node has fewer cards than one container asks for", "NodeInsufficientDevice"
    ),
    Reason.MIG_NODE: Word("MigNotSupported", "node's GPUs are in MIG mode, which is not placed yet", None),
    Reason.WHOLE_CARDS_ONLY: Word(
        "WholeCardsOnly", "kubelet picks the card on this node, so only whole cards can be promised", None
    ),
    Reason.NODE_UNSETTLED: Word(
        "NodeUnsettled", "what the node says of its devices is incomplete or contradictory", None
    ),
    Reason.CARD_UNHEALTHY: Word("CardNotHealth", "GPU unhealthy", "CardNotHealth"),
    Reason.CARD_CORDONED: Word("CardCordoned", "GPU cordoned", "CardCordoned"),
    Reason.CARD_TYPE: Word("CardTypeMismatch", "GPU type does not match", "CardTypeMismatch"),
    Reason.CARD_NUMA: Word("NumaNotFit", "GPUs of one NUMA node are too few", "NumaNotFit"),
    Reason.CARD_UUID: Word("CardUuidMismatch", "GPU UUID does not match", "CardUuidMismatch"),
    Reason.CARD_SLOTS: Word("CardTimeSlicingExhausted", "GPU has no slot left", "CardTimeSlicingExhausted"),
    Reason.CARD_IN_USE: Word(
        "ExclusiveDeviceAllocateConflict",
        "GPU already in use, wanted exclusively",
        "ExclusiveDeviceAllocateConflict",
    ),
    Reason.CARD_QUOTA: Word("ResourceQuotaNotFit", "namespace quota for GPU memory or compute", "ResourceQuotaNotFit"),
    Reason.CARD_MEMORY: Word("CardInsufficientMemory", "GPU memory short", "CardInsufficientMemory"),
    Reason.CARD_COMPUTE: Word("CardInsufficientCore", "GPU compute short", "CardInsufficientCore"),
    Reason.CARD_COMPUTE_EXHAUSTED: Word(
        "CardComputeUnitsExhausted", "GPU compute fully booked", "CardComputeUnitsExhausted"
    ),
    Reason.CARD_MIG: Word("CardMigTopologyInfeasible", "GPU is in MIG mode", "CardMigTopologyInfeasible"),
    Reason.CARDS_TOO_FEW_FIT: Word(
        "AllocatedCardsInsufficientRequest",
        "some GPUs fit, but fewer than asked for",
        "AllocatedCardsInsufficientRequest",
    ),
    Reason.CARD_QUARANTINED: Word("CardQuarantined", "GPU in use by a pod but not registered by its node", None),
    Reason.POSTPONED: Word("Postponed", "the policy rather waits for a better place", None),
    Reason.GROUP_INCOMPLETE: Word("GroupIncomplete", "the pod group has fewer pods than its minMember", None),
    Reason.GROUP_NOT_PLACED: Word("GroupNotPlaced", "fewer members of the pod group fit than its minMember", None),
    Reason.GROUP_UNKNOWN: Word("GroupUnknown", "the pod group that the pod names is not known", None),
    Reason.QUOTA: Word("QuotaExceeded", "namespace quota exceeded", None),
    Reason.RESOURCE_CLAIMS: Word("ResourceClaimsNotSupported", "resource claims are not placed yet", None),
    Reason.INVALID_REQUEST: Word("InvalidRequest", "the pod's request cannot be understood", None),
    Reason.LIMIT_EXCEEDED: Word("LimitExceeded", "the pod exceeds one of Dovetail's limits", None),
    Reason.NO_NODES: Word("NoNodes", "the cluster has no nodes", None),
    Reason.SCHEDULING_GATED: Word("SchedulingGated", "the pod has scheduling gates", None),
    Reason.QUEUE_ORDER: Word("WaitsItsTurn", "others come before it in a strict queue and wait", None),
    Reason.CLAIM_MISSING: Word("ClaimMissing", "a persistent volume claim of the pod does not exist", None),
    Reason.CLAIM_UNBOUND: Word("ClaimUnbound", "a persistent volume claim of the pod is not bound yet", None),
    Reason.CLAIM_IN_USE: Word("ClaimInUse", "a ReadWriteOncePod claim of the pod is in use by another pod", None),
    Reason.VOLUME_NONE: Word("NoVolume", "no persistent volume is available for a claim of the pod", None),
    Reason.SET_ASIDE: Word("SetAside", "the scheduler failed on the pod and has set it aside", None),
    Reason.QUEUE_CEILING: Word("QueueCeiling", "the queue has reached the most that it may use", None),
    Reason.QUEUE_BORROWING: Word("QueueBorrowing", "the queue has used its guarantee and may borrow no more", None),
    Reason.NO_VICTIMS: Word("NoVictims", "no eviction that its rights allow would make room", None),
    Reason.NO_DOMAIN: Word("NoDomainHasRoom", "no domain of the required topology level has room for the gang", None),
    Reason.DOMAINS_TOO_FEW: Word("DomainsTooFew", "too few domains have room to spread the gang as it requires", None),
    Reason.POLICY_NOT_ALLOWED: Word("PolicyNotAllowed", "the pod names a policy that is not allowed here", None),
}

POD_LEVEL_REASONS = frozenset(r for r in Reason if r >= Reason.GROUP_INCOMPLETE)  # no node can change these

# What may refuse a node or a card, in the order of the checks: static rules, rules about other pods and volumes, what
# the node has left, its devices as a whole, then card by card.
CHECK_ORDER = (
    Reason.NODE_NAME,
    Reason.NODE_UNSCHEDULABLE,
    Reason.TAINT,
    Reason.NODE_SELECTOR,
    Reason.NODE_AFFINITY,
    Reason.HOST_PORT,
    Reason.VOLUME_LIMIT,
    Reason.VOLUME_NODE,
    Reason.VOLUME_NONE,
    Reason.VOLUME_ZONE,
    Reason.SPREAD_LABEL,
    Reason.SPREAD,
    Reason.OTHERS_ANTI_AFFINITY,
    Reason.POD_AFFINITY,
    Reason.POD_ANTI_AFFINITY,
    Reason.OTHER_DOMAIN,
    Reason.CPU,
    Reason.MEMORY,
    Reason.STORAGE,
    Reason.PODS,
    Reason.EXTENDED,
    Reason.NODE_UNSETTLED,
    Reason.MIG_NODE,
    Reason.UNREGISTERED,
    Reason.WHOLE_CARDS_ONLY,
    Reason.TOO_FEW_CARDS,
    Reason.CARD_QUARANTINED,
    Reason.CARD_UNHEALTHY,
    Reason.CARD_CORDONED,
    Reason.CARD_TYPE,
    Reason.CARD_UUID,
    Reason.CARD_SLOTS,
    Reason.CARD_IN_USE,
    Reason.CARD_QUOTA,
    Reason.CARD_MEMORY,
    Reason.CARD_COMPUTE,
    Reason.CARD_COMPUTE_EXHAUSTED,
    Reason.CARD_MIG,
    Reason.CARD_NUMA,  # here, as it concerns cards that fit one by one
    Reason.CARDS_TOO_FEW_FIT,
    Reason.POSTPONED,
)
_PASSED = {reason: number for number, reason in enumerate(CHECK_ORDER)}


def checks_passed(reason: Reason) -> int:
    """How many checks a node or card passed before it refused for this reason."""
    return _PASSED.get(reason, len(CHECK_ORDER))


def name(reason: Reason) -> str:
    return REASON_WORDS[reason].name


def sentence(reason: Reason) -> str:
    return REASON_WORDS[reason].sentence


def hami_name(reason: Reason) -> str:
    """HAMi's wording, or Dovetail's if HAMi has none."""
    word = REASON_WORDS[reason]
    return word.hami or word.name
