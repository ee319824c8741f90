"""TargetLoadPacking and LoadVariationRiskBalancing, over CPU and over GPUs, with the numbers of their own tests."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.signals import CardSignals, NodeSignals
from tests.builders import ask, node, pod
from tests.policies.measured_clusters import arrives, measured, said, tell

MODES = ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)]
# Load in per cent with the pod -> score, at a target of 40 %: 60 × load / 40 + 40, then 40 × (100 − load) / 60.
LOADS = {0: 40, 10: 55, 20: 70, 30: 85, 40: 100, 41: 39, 50: 33, 60: 27, 80: 13, 100: 0, 110: 0}


def expecting(milli: int, policy: str = "target-load", name: str = "p") -> Pod:
    """A pod whose containers have CPU limits of so much together."""
    return pod(name, node_policy=policy, cpu=1, expected_cpu_milli=milli)


def loaded(*percents: int, cpu: int = 100_000) -> list[tuple[Node, NodeSignals | None]]:
    return [(node(f"n{p}", cpu=cpu), NodeSignals(0.0, p * 10)) for p in percents]


def test_a_node_scores_100_at_the_target_and_little_above() -> None:
    """The pod expects 1 of 100,000 milli, so a load is practically the measured one."""
    below = [percent for percent in LOADS if percent not in (40, 100)]
    found = said(measured(loaded(*below)), expecting(1))
    assert found == {f"n{percent}": float(LOADS[percent]) for percent in below}


def test_the_pods_own_cpu_counts_to_the_milli() -> None:
    """39 % + 1,000 of 100,000 milli are 40 %: the best score. One milli more is above the target."""
    scheduler = measured(loaded(39, 99))
    assert said(scheduler, expecting(1000)) == {"n39": 100.0, "n99": 0.0}
    assert said(scheduler, expecting(1001)) == {"n39": 40.0, "n99": 0.0}  # 40 × 59.999 / 60 = 39.999


def test_a_node_at_its_target_is_not_above_it_by_rounding() -> None:
    """0.1 + 0.2 is 0.30000000000000004."""
    scheduler = measured(loaded(10), target_load={"target": 30})
    assert said(scheduler, expecting(20_000)) == {"n10": 100.0}
    assert said(scheduler, expecting(90_000)) == {"n10": 0.0}  # 100 %


def test_without_limits_1_5_times_the_request_and_without_a_request_one_core() -> None:
    scheduler = measured(loaded(0, cpu=10_000))
    request = pod("p", node_policy="target-load", cpu=2000)
    assert said(scheduler, request) == {"n0": 85.0}  # 3,000 of 10,000 milli: 30 %
    assert said(scheduler, pod("q", node_policy="target-load")) == {"n0": 55.0}  # 1,000: 10 %


def test_a_node_that_is_not_measured_scores_0_and_the_target_can_be_set() -> None:
    nodes = [*loaded(20), (node("dark", cpu=100_000), None)]
    assert said(measured(nodes), expecting(1)) == {"n20": 70.0, "dark": 0.0}
    # 40 × 20 / 60 + 60 = 73.3
    assert said(measured(nodes, target_load={"target": 60}), expecting(1)) == {"n20": 73.0, "dark": 0.0}


@pytest.mark.parametrize("target", [0, 100, 40.5, True, "40"])
def test_a_wrong_target_is_an_error_that_names_it(target: object) -> None:
    with pytest.raises(ValueError, match=r"policyArguments.target-load.target: expected per cent"):
        measured(loaded(20), target_load={"target": target})


@pytest.mark.parametrize("mode", MODES)
def test_pods_that_a_measurement_does_not_show_are_added(mode: str) -> None:
    """Two nodes with 10 and 30 %. Each pod adds 10 %: the fuller one first, until it is at its target."""
    scheduler = measured(loaded(10, 30), mode=mode)
    assert arrives(scheduler, expecting(10_000, name="a")) == "n30"  # 40 %: 100, against 20 %: 70
    assert arrives(scheduler, expecting(10_000, name="b")) == "n10"  # 50 %: 33, against 20 %: 70
    tell(scheduler, "n30", NodeSignals(30.0, 300))  # 30 s later: the pod that came at 0 s is not shown yet
    assert said(scheduler, expecting(10_000, name="c"))["n30"] == 33.0
    tell(scheduler, "n30", NodeSignals(60.0, 300))  # the first measurement since then that may show nothing of it
    assert said(scheduler, expecting(10_000, name="c"))["n30"] == 33.0
    tell(scheduler, "n30", NodeSignals(95.0, 400))  # a minute after the measurement of 30 s: it is shown
    assert said(scheduler, expecting(10_000, name="c"))["n30"] == 33.0  # 40 + 10, not 40 + 10 + 10
    tell(scheduler, "n30", NodeSignals(96.0, 300))
    assert arrives(scheduler, expecting(10_000, name="c")) == "n30"  # 30 + 10: at the target again


# ---- LoadVariationRiskBalancing


def varied(avg: int, std: int, **arguments: Any) -> dict[str, float | None]:
    """A node of 100 cores; the pod asks for 10 of them. Average and standard deviation in cores."""
    one = [(node("n", cpu=100_000), NodeSignals(0.0, avg * 10, std * 10))]
    scheduler = measured(one, load_variation=arguments)
    return said(scheduler, pod("p", node_policy="load-variation", cpu=10_000))


def test_risk_is_mean_plus_deviation() -> None:
    assert varied(40, 36) == {"n": pytest.approx(57.0)}  # 100 × (1 − (0.5 + 0.36) / 2)
    assert varied(200, 36, sensitivity=2) == {"n": pytest.approx(20.0)}  # mean 1; √0.36 = 0.6
    assert varied(40, 120, sensitivity=2) == {"n": pytest.approx(25.0)}  # mean 0.5; deviation 1
    assert varied(30, 10) == {"n": pytest.approx(75.0)}  # 100 × (1 − (0.4 + 0.1) / 2)
    assert varied(30, 10, margin=3, sensitivity=2) == {"n": pytest.approx(32.6, abs=0.05)}  # 3 × √0.1 = 0.949


def test_the_worse_of_cpu_and_memory_counts_and_what_is_not_measured_does_not() -> None:
    nodes: list[tuple[Node, NodeSignals | None]] = [
        (node("both"), NodeSignals(0.0, 200, 0, 600, 0)),
        (node("cpu"), NodeSignals(0.0, 200, 0)),
        (node("dark"), None),
        (node("memory"), NodeSignals(0.0, None, None, 600, 0)),
    ]
    found = said(measured(nodes), pod("p", node_policy="load-variation"))
    # min(100 × (1 − 0.2 / 2), 100 × (1 − 0.6 / 2))
    assert found == {"both": 70.0, "cpu": 90.0, "memory": 70.0, "dark": 0.0}


@pytest.mark.parametrize("mode", MODES)
def test_a_steady_node_beats_one_with_less_load_and_peaks(mode: str) -> None:
    nodes: list[tuple[Node, NodeSignals | None]] = [
        (node("peaks"), NodeSignals(0.0, 200, 300)),  # 100 × (1 − (0.2 + 0.3) / 2) = 75
        (node("steady"), NodeSignals(0.0, 300, 50)),  # 82.5
    ]
    assert arrives(measured(nodes, mode=mode), pod("p", node_policy="load-variation")) == "steady"


def test_pods_between_two_measurements_do_not_all_go_to_the_same_node() -> None:
    """Both idle: 95 for the first pod of 10 %. Then a has 10 % more that no measurement shows: 90 against 95."""
    nodes = [(node(name, cpu=100_000), NodeSignals(0.0, 0, 0)) for name in "ab"]
    scheduler = measured(nodes)
    pods = [pod(f"p{n}", node_policy="load-variation", cpu=10_000, expected_cpu_milli=10_000) for n in range(4)]
    assert [arrives(scheduler, one) for one in pods] == ["a", "b", "a", "b"]


# ---- the same over GPUs


def gpus(name: str, *loads: int, memory: int | None = None, deviation: int | None = None) -> tuple[Node, NodeSignals]:
    """A node with a card for each load in per cent."""
    cards = tuple(CardSignals(f"{name}/{n}", load * 10, memory, deviation) for n, load in enumerate(loads))
    return node(name, gpus=len(loads)), NodeSignals(0.0, cards=cards)


def asking(cores: int, memory: int = 0, policy: str = "gpu-target-load", name: str = "p") -> Pod:
    return pod(name, ask(1, memory, cores), node_policy=policy)


@pytest.mark.parametrize("mode", MODES)
def test_gpu_nodes_are_packed_up_to_the_target(mode: str) -> None:
    """10, 35 and 60 % with 5 % more: 60 × 15/40 + 40 = 62.5; 100; 40 × 35/60 = 23.3."""
    scheduler = measured([gpus("a", 10), gpus("b", 35), gpus("c", 60)], mode=mode)
    assert said(scheduler, asking(5)) == {"a": 63.0, "b": 100.0, "c": 23.0}
    assert arrives(scheduler, asking(5)) == "b"
    # b is at 40 % now, though its measurement does not show it: 45 % scores 40 × 55 / 60 = 36.7
    assert said(scheduler, asking(5, name="q")) == {"a": 63.0, "b": 37.0, "c": 23.0}
    assert arrives(scheduler, asking(5, name="q")) == "a"


def test_the_mean_of_the_cards_counts_and_the_scarcer_of_compute_and_memory() -> None:
    scheduler = measured([gpus("two", 10, 30), gpus("tight", 10, memory=700)])
    # two: (10 + 30) / 2 + 20 / 2 = 30 %. tight: 30 % of compute, but 70 % of memory: 40 × 30 / 60.
    assert said(scheduler, asking(20)) == {"two": 85.0, "tight": 20.0}
    # 800 of 8,000 MiB more: 80 % of memory
    assert said(scheduler, asking(20, 800))["tight"] == 13.0


def test_gpu_risk_is_mean_plus_deviation_over_time() -> None:
    """One card at 40 %, the pod asks for 10 %: as for CPU 100 × (1 − (0.5 + 0.36) / 2)."""
    scheduler = measured([gpus("n", 40, deviation=360), gpus("calm", 40)])
    found = said(scheduler, asking(10, policy="gpu-load-variation"))
    assert found == {"n": pytest.approx(57.0), "calm": pytest.approx(75.0)}


def test_gpu_policies_on_nodes_without_cards_or_measurements() -> None:
    scheduler: Scheduler = measured([(node("bare"), NodeSignals(0.0, 100)), (node("dark", gpus=1), None)])
    for policy in ("gpu-target-load", "gpu-load-variation"):
        assert said(scheduler, pod("p", node_policy=policy, cpu=100)) == {"bare": 0.0, "dark": 0.0}
