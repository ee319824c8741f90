"""NodeResourcesAllocatable and ScarceResourceAvoidance, with the numbers of their own tests."""

from __future__ import annotations

import pytest

from dovetail.engine.why.explain import verdicts
from dovetail.model.node import Node
from dovetail.model.pod import Pod
from tests.builders import GIB, ask, cluster, node, place, pod, use
from tests.policies.scores import scores

MODES = ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)]
MIB = 2**20


def sized(name: str, cpu: int, memory: int, **extended: int) -> Node:
    return node(name, cpu=cpu, extended={"memory": memory, **extended})


def wants(policy: str) -> Pod:
    return pod("p", node_policy=policy, cpu=100)


def test_three_nodes_of_scheduler_plugins() -> None:
    """Raw: cpu 2^20 × m + memory 1 × bytes, so 2,000 / 4,000 / 6,000 units of 2^20: the middle is half-way."""
    nodes = [sized(f"n{n}", n * 1000, n * 1000 * MIB) for n in (1, 2, 3)]
    least = scores("least-allocatable", nodes, wants("least-allocatable"))
    most = scores("most-allocatable", nodes, wants("most-allocatable"))
    assert least == {"n1": 100.0, "n2": 50.0, "n3": 0.0}
    assert most == {"n1": 0.0, "n2": 50.0, "n3": 100.0}


def test_small_machines_before_large_ones() -> None:
    """In units of 2^20: 16,000 + 65,536 = 81,536; 64,000 + 262,144 = 326,144; 96,000 + 786,432 = 882,432.

    (882,432 − 326,144) / (882,432 − 81,536) = 0.6946.
    """
    nodes = [
        sized("large", 96_000, 768 * GIB),
        sized("middle", 64_000, 256 * GIB),
        sized("small", 16_000, 64 * GIB),
    ]
    found = scores("least-allocatable", nodes, wants("least-allocatable"))
    assert found == {"small": 100.0, "middle": 69.0, "large": 0.0}


@pytest.mark.parametrize("mode", MODES)
def test_the_smallest_and_the_largest_node_are_taken(mode: str) -> None:
    nodes = [sized("a", 2000, 2 * GIB), sized("b", 1000, GIB), sized("c", 3000, 3 * GIB)]
    scheduler = cluster(*nodes, mode=mode)
    least = [pod(f"l{n}", node_policy="least-allocatable", cpu=600) for n in range(3)]
    most = [pod(f"m{n}", node_policy="most-allocatable", cpu=600) for n in range(3)]
    # b has room for one; then a, the next smallest. What is in use does not count: c is taken three times.
    assert [where for where, _ in place(scheduler, *least)] == ["b", "a", "a"]
    assert [where for where, _ in place(scheduler, *most)] == ["c", "c", "c"]


def test_a_weight_on_gpus_keeps_gpu_nodes_free() -> None:
    """By CPU and memory `gpus` is smaller; with 2^40 per GPU it is the larger node by far."""
    nodes = [
        node("gpus", gpus=8, cpu=8000, extended={"nvidia.com/gpu": 8}),
        node("plain", cpu=64_000),
    ]
    assert scores("least-allocatable", nodes, wants("least-allocatable")) == {"gpus": 100.0, "plain": 0.0}
    weighted = {"cpu": 2**20, "memory": 1, "nvidia.com/gpu": 2**40}
    found = scores("least-allocatable", nodes, wants("least-allocatable"), resources=weighted)
    assert found == {"gpus": 0.0, "plain": 100.0}


def test_equal_nodes_score_0_and_use_is_ignored() -> None:
    scheduler = cluster(node("a", gpus=1), node("b", gpus=1))
    use(scheduler, "a", "a/0", 1, 4000, 50)
    found = {v.node: v.score for v in verdicts(scheduler, wants("most-allocatable"))}
    assert found == {"a": 0.0, "b": 0.0}


@pytest.mark.parametrize("weight", [0, -1, True, "1", 2**41])
def test_a_wrong_weight_is_an_error_that_names_it(weight: object) -> None:
    with pytest.raises(ValueError, match=r"policyArguments.least-allocatable.resources.cpu: expected a weight"):
        scores("least-allocatable", [node("n")], wants("least-allocatable"), resources={"cpu": weight})


# ---- ScarceResourceAvoidance


def bare(name: str, *cards: int, **extended: int) -> Node:
    """CPU and memory only, with cards or other resources."""
    return Node(
        name,
        {"cpu": 8000, "memory": GIB, "pods": 110, **extended},
        node(name, gpus=cards[0]).devices if cards else (),
    )


def test_a_cpu_pod_avoids_gpu_nodes() -> None:
    """Not asked for: nothing; the GPU; GPU and storage; GPU and two others. Scarce of these: the GPU."""
    nodes = [
        bare("cpu"),
        bare("gpu", 2, **{"nvidia.com/gpu": 2}),
        bare("gpu-storage", 2, **{"nvidia.com/gpu": 2, "ephemeral-storage": GIB}),
        bare("gpu-others", 2, **{"nvidia.com/gpu": 2, "a.b/c": 1, "d.e/f": 1}),
    ]
    wanted = pod("p", node_policy="scarce-resource-avoidance", cpu=100, extended={"memory": 1})
    found = scores("scarce-resource-avoidance", nodes, wanted)
    assert found == {"cpu": 100.0, "gpu": 0.0, "gpu-storage": 50.0, "gpu-others": 66.0}


def test_gpu_pods_may_use_them_and_other_resources_can_be_scarce() -> None:
    nodes = [bare("gpu", 2, **{"nvidia.com/gpu": 2}), bare("rdma", 2, **{"nvidia.com/gpu": 2, "rdma/hca": 1})]
    asks = {"cpu": 100, "extended": {"memory": 1}}
    wanted = pod("p", ask(1, 100), node_policy="scarce-resource-avoidance", **asks)  # type: ignore[arg-type]
    assert scores("scarce-resource-avoidance", nodes, wanted) == {"gpu": 100.0, "rdma": 100.0}
    found = scores("scarce-resource-avoidance", nodes, wanted, resources=["nvidia.com/gpu", "rdma/hca"])
    assert found == {"gpu": 100.0, "rdma": 0.0}  # one type is not asked for, and it is scarce


@pytest.mark.parametrize("mode", MODES)
def test_cpu_pods_leave_gpu_nodes_to_others(mode: str) -> None:
    scheduler = cluster(bare("a-gpu", 2, **{"nvidia.com/gpu": 2}), bare("b-cpu"), mode=mode)
    pods = [pod(f"p{n}", node_policy="scarce-resource-avoidance", cpu=3000) for n in range(3)]
    assert [where for where, _ in place(scheduler, *pods)] == ["b-cpu", "b-cpu", "a-gpu"]  # 8 cores: two fit
