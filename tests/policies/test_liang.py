"""liang's BNP and CMDN, with the numbers of its own tests: policies that compare all nodes that fit."""

from __future__ import annotations

import pytest

from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.signals import NodeSignals
from tests.builders import node, pod
from tests.policies.measured_clusters import arrives, measured, said

MODES = ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)]
MBIT = 1000  # kbit
GBIT = 1000 * MBIT


def needing(kbit: int, policy: str = "balanced-network", name: str = "p") -> Pod:
    return pod(name, node_policy=policy, network_kbit=kbit)


def networks(loads: list[int], gbits: list[float]) -> list[tuple[Node, NodeSignals | None]]:
    """n0, n1, … with these loads in kbit/s and capacities in Gbit/s."""
    return [
        (node(f"n{n}"), NodeSignals(0.0, network_kbit=load, network_capacity_kbit=int(gbit * GBIT)))
        for n, (load, gbit) in enumerate(zip(loads, gbits, strict=True))
    ]


@pytest.mark.parametrize(
    ("kbit", "loads", "gbits", "expected"),
    [
        (1, [0, 0, 0], [1, 1.5, 2.5], [0, 66, 100]),
        (1, [512, 4096, 2048, 1024], [1, 1, 2, 3], [100, 0, 79, 83]),
        (2, [7, 83_049, 461_394], [1, 1.5, 2.5], [100, 47, 0]),
    ],
)
def test_the_network_loads_become_most_even(
    kbit: int, loads: list[int], gbits: list[float], expected: list[int]
) -> None:
    found = said(measured(networks(loads, gbits)), needing(kbit))
    assert list(found.values()) == [float(points) for points in expected]


def test_nodes_without_room_or_measurement_score_0_and_do_not_count() -> None:
    nodes = networks([0, 0, 0, 900 * MBIT], [1, 1.5, 2.5, 1])
    nodes.append((node("n4"), None))
    found = said(measured(nodes), needing(101 * MBIT))
    assert found["n3"] == found["n4"] == 0.0  # 900 + 101 Mbit exceed 1 Gbit
    assert (found["n0"], found["n2"]) == (0.0, 100.0)


def test_no_need_scores_0_and_a_single_node_100() -> None:
    assert said(measured(networks([0, 5], [1, 1])), needing(0)) == {"n0": 0.0, "n1": 0.0}
    assert said(measured(networks([5], [1])), needing(1)) == {"n0": 100.0}
    assert said(measured(networks([5, 5], [1, 1])), needing(1)) == {"n0": 0.0, "n1": 0.0}  # both the same


@pytest.mark.parametrize("mode", MODES)
def test_the_pod_goes_where_the_vectors_say(mode: str) -> None:
    assert arrives(measured(networks([0, 0, 0], [1, 1.5, 2.5]), mode), needing(1)) == "n2"
    assert arrives(measured(networks([512, 4096, 2048, 1024], [1, 1, 2, 3]), mode), needing(1)) == "n0"


# ---- CMDN: TOPSIS over five figures


def five(
    cpu: list[int], memory: list[int], network: list[int], disk: list[int], gbits: list[float]
) -> list[tuple[Node, NodeSignals | None]]:
    """Loads in per cent; network in kbit/s of Gbit/s, which is 0 % for a few kbit."""
    return [
        (
            node(f"n{n}"),
            NodeSignals(
                0.0,
                cpu[n] * 10,
                memory=memory[n] * 10,
                disk=disk[n] * 10,
                network_kbit=network[n],
                network_capacity_kbit=int(gbits[n] * GBIT),
            ),
        )
        for n in range(len(cpu))
    ]


TWO = five([25, 18], [68, 38], [18, 22], [8, 35], [1, 1.5])
THREE = five([8, 68, 20], [16, 55, 10], [12, 68, 33], [0, 0, 0], [1, 1.5, 2])


@pytest.mark.parametrize("mode", MODES)
def test_loaded_nodes_are_nearest_to_the_ideal(mode: str) -> None:
    """Two: squares of CPU 949, memory 6,068, disk 1,289. n0 is 7/949 and 30/6,068 above n1, and 27/1,289 below.

    √(0.00738² + 0.00494²) = 0.00888 against 0.02095: 0.00888 / 0.02983 = 29.8 %.
    """
    assert said(measured(TWO), needing(0, "topsis")) == {"n0": 30.0, "n1": 70.0}
    assert said(measured(THREE), needing(0, "topsis")) == {"n0": 10.0, "n1": 100.0, "n2": 13.0}
    assert arrives(measured(THREE, mode), needing(0, "topsis")) == "n1"
    assert arrives(measured(THREE, mode, topsis={"balance": True}), needing(0, "topsis")) == "n0"


def test_balance_turns_the_scores_round() -> None:
    found = said(measured(THREE, topsis={"balance": True}), needing(0, "topsis"))
    assert found == {"n0": 90.0, "n1": 0.0, "n2": 87.0}


def test_loads_above_80_per_cent_count_as_0() -> None:
    """n0 has 81 % of CPU, which counts as 0: n1 with 40 % is the ideal in the only column that differs."""
    nodes = five([81, 40], [10, 10], [0, 0], [0, 0], [1, 1])
    assert said(measured(nodes), needing(0, "topsis")) == {"n0": 0.0, "n1": 100.0}


def test_a_wrong_argument_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"policyArguments.topsis.balance: expected true or false, got 1"):
        measured(TWO, topsis={"balance": 1})
