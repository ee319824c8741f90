"""How kubelet aligns the cards of a pod with NUMA nodes: from the node itself, or from its NodeResourceTopology.

Only `single-numa-node` refuses pods that would be placed otherwise, as in scheduler-plugins'
NodeResourceTopologyMatch (pkg/noderesourcetopology/filter.go).
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.kube.files.decode import Found
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable
from dovetail.kube.objects.topologies import NodeResourceTopology
from dovetail.model.node import Alignment

ALIGNMENT_KEY = "dovetail.dev/numa-alignment"
SINGLE_NUMA_NODE = "single-numa-node"
POLICY_ATTRIBUTE, SCOPE_ATTRIBUTE = "topologyManagerPolicy", "topologyManagerScope"
OLD_POLICIES = {
    "SingleNUMANodeContainerLevel": Alignment.CONTAINER,
    "SingleNUMANodePodLevel": Alignment.POD,
}


def stated_alignment(meta: objects.Meta, where: str, problems: Problems) -> Alignment | None:
    """What the annotation or label of the node says; None = nothing. A wrong word counts as nothing."""
    for place, texts in (("annotations", meta.annotations), ("labels", meta.labels)):
        text = texts.get(ALIGNMENT_KEY, "")
        if text in tuple(Alignment):
            return Alignment(text)
        if text:
            message = f"{printable(text, 40)!r} is no alignment; write one of {', '.join(Alignment)}"
            problems.error(where, f"metadata.{place}.{ALIGNMENT_KEY}", message)
    return None


def alignment_of(source: NodeResourceTopology) -> Alignment:
    """The alignment that an exporter found in kubelet's configuration."""
    said = {attribute.name: attribute.value for attribute in source.attributes}
    if POLICY_ATTRIBUTE in said:
        if said[POLICY_ATTRIBUTE] != SINGLE_NUMA_NODE:
            return Alignment.NONE
        return Alignment.POD if said.get(SCOPE_ATTRIBUTE) == Alignment.POD else Alignment.CONTAINER
    return next((OLD_POLICIES[name] for name in source.topology_policies if name in OLD_POLICIES), Alignment.NONE)


def alignments(found: Iterable[Found]) -> dict[str, Alignment]:
    """By node, what NodeResourceTopology objects say."""
    return {item.name: alignment_of(item.value) for item in found}
