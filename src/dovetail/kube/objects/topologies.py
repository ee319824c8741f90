"""NodeResourceTopology (topology.node.k8s.io), as exporters write it: the fields that we read."""

from __future__ import annotations

from msgspec import field

from dovetail.kube.objects.core import Meta, Struct

TOPOLOGY_GROUP = "topology.node.k8s.io"


class TopologyAttribute(Struct, frozen=True):
    name: str = ""
    value: str = ""


class NodeResourceTopology(Struct, frozen=True):
    """The object has the name of its node. Zones are not read: the node's register names the NUMA node of each card."""

    metadata: Meta
    topology_policies: list[str] = field(default_factory=list)  # v1alpha1, and deprecated in v1alpha2
    attributes: list[TopologyAttribute] = field(default_factory=list)
