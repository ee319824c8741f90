"""Our own short cluster file."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.objects.problems import InputError
from dovetail.model.node import Enforcer, Node, Taint
from tests.kube.manifests import Object, node, read


def cluster(*pools: Object) -> Object:
    return {"apiVersion": "dovetail.dev/v1", "kind": "Cluster", "nodes": list(pools)}


def gpus(**fields: Any) -> Object:
    return {"model": "NVIDIA A100-SXM4-80GB", "count": 4, "memory": 81920, **fields}


def nodes(*pools: Object) -> tuple[Node, ...]:
    return read(cluster(*pools)).nodes


def test_a_pool_of_equal_nodes_and_one_by_its_name() -> None:
    found = nodes({"name": "train", "count": 2, "gpus": gpus()}, {"name": "web", "cpu": 8, "memory": "16Gi"})
    assert [n.name for n in found] == ["train-0", "train-1", "web"]
    assert [d.uuid for d in found[1].devices] == [f"GPU-train-1-{i}" for i in range(4)]
    assert (found[0].enforcer, found[0].allocatable["nvidia.com/gpu"]) == (Enforcer.DOVETAIL, 40)
    assert (found[2].allocatable["cpu"], found[2].allocatable["memory"], found[2].devices) == (8000, 16 << 30, ())


def test_memory_is_mib_or_a_quantity() -> None:
    found = nodes({"name": "a", "gpus": gpus(memory="80Gi")}, {"name": "b", "gpus": gpus(memory="81920")})
    assert [n.devices[0].memory_mib for n in found] == [81920, 81920]


def test_labels_taints_extended_and_whole_cards() -> None:
    (found,) = nodes(
        {
            "name": "a",
            "labels": {"zone": "x"},
            "taints": ["gpu=yes:NoSchedule", {"key": "k", "effect": "NoExecute"}],
            "extended": {"example.com/dongle": 8},
            "gpus": [gpus(count=1, numa=1, compute=150), gpus(model="Tesla T4", count=1, memory=15360)],
            "enforcer": "stock",
        }
    )
    assert found.taints == (Taint("gpu", "yes", "NoSchedule"), Taint("k", "", "NoExecute"))
    assert found.allocatable["example.com/dongle"] == 8
    assert found.labels == {"zone": "x", "kubernetes.io/hostname": "a"}
    cards = [(d.index, d.model, d.slots, d.numa, d.compute_milli) for d in found.devices]
    assert cards == [(0, "NVIDIA A100-SXM4-80GB", 1, 1, 1500), (1, "Tesla T4", 1, 0, 1000)]


def test_links_by_word_by_groups_and_by_matrix() -> None:
    assert nodes({"name": "a", "gpus": gpus(count=2, links="nvlink")})[0].links == ((0, 600), (600, 0))
    pcie = nodes({"name": "a", "gpus": gpus(count=3, numa=[0, 0, 1], links="pcie")})[0].links
    assert pcie == ((0, 20, 10), (20, 0, 10), (10, 10, 0))
    pairs = nodes({"name": "a", "gpus": gpus(links=[[0, 1], [2, 3]], numa=[0, 0, 1, 1])})[0].links
    assert pairs == ((0, 600, 10, 10), (600, 0, 10, 10), (10, 10, 0, 600), (10, 10, 600, 0))
    assert nodes({"name": "a", "gpus": gpus(count=2, links=[[0, 7], [7, 0]])})[0].links == ((0, 7), (7, 0))
    assert nodes({"name": "a", "gpus": gpus()})[0].links == ()


@pytest.mark.parametrize(
    ("pool", "field"),
    [
        ({"name": "a", "count": -1}, "nodes[0].count"),
        ({"name": "a", "count": 10**9}, "nodes[0].count"),
        ({"name": ""}, "nodes[0].name"),
        ({"count": 1}, "nodes[0].name"),
        ({"name": "a", "cpu": "-1"}, "nodes[0].cpu"),
        ({"name": "a", "extended": {"x/y": 0.5}}, "nodes[0].extended.x/y"),
        ({"name": "a", "enforcer": "me"}, "nodes[0].enforcer"),
        ({"name": "a", "gpus": gpus(count=10**6)}, "nodes[0].gpus.count"),
        ({"name": "a", "gpus": gpus(memory="0")}, "nodes[0].gpus.memory"),
        ({"name": "a", "gpus": gpus(memory="lots")}, "nodes[0].gpus.memory"),
        ({"name": "a", "gpus": gpus(numa=[0, 1])}, "nodes[0].gpus.numa"),
        ({"name": "a", "gpus": gpus(links="wifi")}, "nodes[0].gpus.links"),
        ({"name": "a", "gpus": gpus(links=[[0, 1], [0, 3]])}, "nodes[0].gpus.links"),
        ({"name": "a", "gpus": gpus(vendor="ACME")}, "nodes[0].gpus.vendor"),
        ({"name": "a", "gpus": [gpus(), gpus(slots=0)]}, "nodes[0].gpus[1].slots"),
        ({"name": "a", "labels": {"on": True}}, "nodes[0].labels.on"),
    ],
)
def test_mistakes_name_the_field(pool: Object, field: str) -> None:
    with pytest.raises(InputError) as caught:
        nodes(pool)
    assert field in [problem.field for problem in caught.value.problems]


def test_a_node_defined_twice_is_an_error() -> None:
    with pytest.raises(InputError, match="also defined by"):
        read(cluster({"name": "a"}), node("a"))
