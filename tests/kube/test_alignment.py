"""How a node's kubelet aligns GPUs with NUMA nodes: what files say, and what it means for a plan."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.conversion.alignment import alignment_of
from dovetail.kube.conversion.cluster import Settings, load
from dovetail.kube.files.documents import Document
from dovetail.kube.objects.core import Meta
from dovetail.kube.objects.topologies import NodeResourceTopology, TopologyAttribute
from dovetail.model.node import Alignment


def topology(*policies: str, **attributes: str) -> NodeResourceTopology:
    return NodeResourceTopology(
        Meta(name="n"), list(policies), [TopologyAttribute(name, value) for name, value in attributes.items()]
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (topology(topologyManagerPolicy="single-numa-node", topologyManagerScope="pod"), Alignment.POD),
        (topology(topologyManagerPolicy="single-numa-node", topologyManagerScope="container"), Alignment.CONTAINER),
        (topology(topologyManagerPolicy="single-numa-node"), Alignment.CONTAINER),  # kubelet's default scope
        (topology(topologyManagerPolicy="restricted", topologyManagerScope="pod"), Alignment.NONE),
        (topology("SingleNUMANodePodLevel"), Alignment.POD),
        (topology("SingleNUMANodeContainerLevel"), Alignment.CONTAINER),
        (topology("BestEffort"), Alignment.NONE),
        (topology("SingleNUMANodePodLevel", topologyManagerPolicy="none"), Alignment.NONE),  # attributes go first
        (topology(), Alignment.NONE),
    ],
)
def test_what_an_exporter_writes(said: NodeResourceTopology, expected: Alignment) -> None:
    assert alignment_of(said) is expected


def node(name: str, **annotations: str) -> Document:
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {f"dovetail.dev/{k}": v for k, v in annotations.items()}},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi"}},
    }
    return Document(f"{name}.yaml#1", "Node", "v1", body)


def test_a_node_says_it_or_its_topology_and_the_node_goes_first() -> None:
    body: dict[str, Any] = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "a"},
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
        "zones": [{"name": "node-0", "type": "Node", "resources": []}],
    }
    documents = [
        node("a"),
        node("b", **{"numa-alignment": "pod"}),
        node("c"),
        Document("nrt.yaml#1", body["kind"], body["apiVersion"], body),
    ]
    nodes = {one.name: one.alignment for one in load(documents, Settings()).nodes}
    assert nodes == {"a": Alignment.CONTAINER, "b": Alignment.POD, "c": Alignment.NONE}


def test_a_wrong_word_is_an_error_that_names_the_right_ones() -> None:
    (problem,) = load([node("a", **{"numa-alignment": "socket"})], Settings()).problems
    assert problem.field == "metadata.annotations.dovetail.dev/numa-alignment"
    assert problem.message == "'socket' is no alignment; write one of none, container, pod"
