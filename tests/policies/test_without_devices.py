"""Policies of pods that ask for no device: kube-scheduler's points, and nodes with cards last."""

from __future__ import annotations

from tests.builders import cluster, node, place, pod
from tests.policies.scores import scores
from tests.policies.test_kubernetes import BUSY, DONGLE, GIB, asks, machine, with_policy

POLICY = "kubernetes"


def test_the_two_scores_are_added_up() -> None:
    """n1 has 1 CPU and 2 GiB in use, the pod asks 500m and 1 GiB.

    LeastAllocated: 71 and 90 (test_kubernetes.py). Balance of n1: (1500/4000 − 3/16) / 2 = 0.094 → 90 with the pod,
    (0.25 − 0.125) / 2 → 93 without: 50 + (50 + 90 − 93) // 2 = 73. Of n2: 96 with it, 100 without: 50 + 46 // 2 = 73.
    """
    nodes, wanted = [machine("n1"), machine("n2")], with_policy(asks("p", 500, GIB), POLICY)
    assert scores(POLICY, nodes, wanted, BUSY) == {"n1": 71.0 + 73, "n2": 90.0 + 73}


def test_a_pod_that_evens_the_node_out_gets_more() -> None:
    """n1 has 1 CPU and 2 GiB of 4 and 16 in use; 2 GiB of memory and 10m make it 0.2525 and 0.25: 99 against 93."""
    nodes, wanted = [machine("n1")], with_policy(asks("p", 10, 2 * GIB), POLICY)
    # LeastAllocated: (4000 − 1010) × 100 // 4000 = 74 and (16 − 4) × 100 // 16 = 75, mean 74; 50 + (50 + 6) // 2 = 78
    assert scores(POLICY, nodes, wanted, BUSY) == {"n1": 74.0 + 78}


def test_a_pod_that_asks_for_nothing_is_not_balanced() -> None:
    """kube-scheduler leaves the score out: 97 as LeastAllocated alone."""
    assert scores(POLICY, [machine("n1")], with_policy(asks("p", 0, 0), POLICY)) == {"n1": 97.0}


def test_three_resources_by_their_standard_deviation() -> None:
    """Used parts 0.125, 0.0625 and 0.25: mean 0.1458, deviation 0.0780 → 92; 50 + (50 + 92 − 100) // 2 = 71.

    LeastAllocated: 87, 93 and 75, mean 85.
    """
    nodes, wanted = [machine("n1", dongles=8)], with_policy(asks("p", 500, GIB, dongles=2), POLICY)
    weights = {"cpu": 1, "memory": 1, DONGLE: 1}
    assert scores(POLICY, nodes, wanted, resources=weights) == {"n1": 85.0 + 71}


def test_nodes_without_cards_come_first_however_full() -> None:
    """The CPU node is nearly full, the GPU node empty: 1,200 points are more than any fullness makes."""
    town = cluster(node("cpu", cpu=10_000), node("gpu", gpus=4, cpu=64_000))
    pods = [pod(f"p{n}", cpu=1000, node_policy="off-devices") for n in range(11)]
    assert [where for where, _ in place(town, *pods)] == ["cpu"] * 10 + ["gpu"]


def test_four_empty_nodes_share_the_pods_and_the_gpu_node_stays_free() -> None:
    """Ten 1-CPU pods beside four empty CPU nodes and a GPU node in use: 3, 3, 2 and 2, none beside the cards."""
    town = cluster(node("gpu", gpus=4, cpu=8000), *(node(f"cpu-{n}", cpu=8000) for n in range(4)))
    where = [node for node, _ in place(town, *(pod(f"p{n}", cpu=1000, node_policy="off-devices") for n in range(10)))]
    assert sorted(where.count(f"cpu-{n}") for n in range(4)) == [2, 2, 3, 3]
