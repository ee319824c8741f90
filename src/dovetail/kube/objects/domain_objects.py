"""Objects that describe where nodes are: Topologies of Kueue v0.14 and KAI v0.16, HyperNodes of Volcano v1.15."""

from __future__ import annotations

from typing import Any

from dovetail.kube.objects.core import LabelSelector, Meta, Struct

KUEUE_GROUP, KAI_TOPOLOGY_GROUP, HYPER_NODE_GROUP = "kueue.x-k8s.io", "kai.scheduler", "topology.volcano.sh"


class TopologyLevel(Struct, frozen=True):
    node_label: str = ""


class TopologySpec(Struct, frozen=True):
    levels: list[TopologyLevel] = []  # the widest first


class Topology(Struct, frozen=True):
    metadata: Meta
    spec: TopologySpec = TopologySpec()


class ExactMatch(Struct, frozen=True):
    name: str = ""


class RegexMatch(Struct, frozen=True):
    pattern: str = ""


class MemberSelector(Struct, frozen=True):
    """One of three ways to name members."""

    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class HyperNodeMember(Struct, frozen=True):
    type: str = ""  # Node or HyperNode
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(Struct, frozen=True):
    tier: int | str = 0  # text in the first versions
    tier_name: str = ""
    members: list[HyperNodeMember] = []


class HyperNode(Struct, frozen=True):
    """Nodes that share a switch, or HyperNodes of a lower tier."""

    metadata: Meta
    spec: HyperNodeSpec = HyperNodeSpec()


TOPOLOGY_KINDS: dict[tuple[str, str], type[Any]] = {
    (KUEUE_GROUP, "Topology"): Topology,
    (KAI_TOPOLOGY_GROUP, "Topology"): Topology,
    (HYPER_NODE_GROUP, "HyperNode"): HyperNode,
}
TOPOLOGY_KINDS_WITHOUT_NAMESPACE = frozenset(kind for _, kind in TOPOLOGY_KINDS)
TopologyObject = Topology | HyperNode
