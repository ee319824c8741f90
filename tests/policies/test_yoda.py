"""Yoda's score, mended and as written, and its queue order."""

from __future__ import annotations

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.model.card_specs import CardSpec, spec_of
from dovetail.model.decision import Share
from dovetail.model.events import PodObserved
from dovetail.model.node import Node
from dovetail.model.pod import Pod, RunningPod
from dovetail.model.signals import CardSignals, NodeSignals
from dovetail.policies.orders import ORDERS, JobFacts
from tests.builders import ask, card, group, node, pod
from tests.policies.measured_clusters import arrives, measured, said

MODES = ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)]


def holding(name: str, model: str, memory: int, free: int) -> tuple[Node, NodeSignals]:
    """A node with one card, of which so much memory is free as measured (in per mille, rounded up)."""
    used = -(-(memory - free) * 1000 // memory)
    return (
        node(name, card(f"{name}/0", memory, model=model)),
        NodeSignals(0.0, cards=(CardSignals(f"{name}/0", 0, used),)),
    )


def two_cards(mode: str = "interpreted") -> Scheduler:
    """A T4 with 12,000 of 15,109 MiB free, 3,000 asked for; a V100 with 4,000 of 16,160 free, 12,000 asked for."""
    scheduler = measured([holding("t4", "Tesla T4", 15_109, 12_000), holding("v100", "Tesla V100", 16_160, 4000)], mode)
    for name, memory in (("t4", 3000), ("v100", 12_000)):
        running = RunningPod(pod(f"on-{name}", ask(1, memory)), name, (Share(0, f"{name}/0", memory, 0),))
        scheduler.handle(PodObserved(0.0, running))
    return scheduler


def wanting(policy: str) -> Pod:
    return pod("p", ask(1, 1000), node_policy=policy)


@pytest.mark.parametrize("mode", MODES)
def test_a_t4_beats_a_v100_that_is_nearly_full(mode: str) -> None:
    """T4: bandwidth 35, clock 100, cores 50, power 23, free 2 × 100, memory 93: 501. Not asked for 3 × 80, free 2 × 79.

    V100: 100, clock 17, 100, 100, free 2 × 33, 100: 483. 3 × 25, 2 × 24.
    """
    assert said(two_cards(), wanting("yoda")) == {"t4": 899.0, "v100": 606.0}
    assert arrives(two_cards(mode), wanting("yoda")) == "t4"


def test_as_written_the_clock_is_compared_with_the_bandwidth() -> None:
    """100 × 5,001 / 900 = 555 instead of 100, and 100 × 877 / 900 = 97 instead of 17."""
    assert said(two_cards(), wanting("yoda-as-written")) == {"t4": 899.0 + 455, "v100": 606.0 + 80}


def test_as_written_many_cards_win_and_mended_they_do_not() -> None:
    nodes: list[tuple[Node, NodeSignals | None]] = [
        (node("eight", *(card(f"e{n}", 15_360, n, model="Tesla T4") for n in range(8))), None),
        (node("one", card("o0", 16_384, model="Tesla V100")), None),
    ]
    # eight: 35 + 100 + 50 + 23 + 2 × 93 + 93 = 487 for each card, 500 for the empty node. one: 617 + 500.
    assert said(measured(nodes), wanting("yoda")) == {"eight": 987.0, "one": 1117.0}
    assert said(measured(nodes), wanting("yoda-as-written"))["eight"] == 8 * (487.0 + 455) + 500


def test_without_a_measurement_free_is_what_no_pod_asked_for_and_pods_without_cards_score_0() -> None:
    scheduler = measured([(node("n", card("n/0", 10_000, model="Tesla T4")), None)])
    running = RunningPod(pod("there", ask(1, 2500)), "n", (Share(0, "n/0", 2500, 0),))
    scheduler.handle(PodObserved(0.0, running))
    # Each value is the highest: 100 + 100 + 100 + 100 + 200 + 100; 3 × 75 + 2 × 75.
    assert said(scheduler, wanting("yoda")) == {"n": 700.0 + 375}
    assert said(scheduler, pod("q", node_policy="yoda", cpu=100)) == {"n": 0.0}


def test_models_are_known_by_whole_words() -> None:
    assert spec_of("NVIDIA A100-SXM4-80GB").bandwidth == 2039
    assert spec_of("NVIDIA A100-SXM4-40GB").bandwidth == 1555
    assert spec_of("NVIDIA A100-PCIE-40GB").power == 250
    assert spec_of("NVIDIA L40S").cores == 18_176
    assert spec_of("NVIDIA L40") == CardSpec()  # not listed


def test_the_order_is_by_label_then_by_age() -> None:
    key = ORDERS["yoda"].key
    facts = JobFacts(arrival=0.0, priority=0, tenant="t")

    def of(**labels: str) -> tuple[int, ...]:
        return key(group(pod("p", labels={f"scv/{name}": value for name, value in labels.items()})), facts)

    assert of(priority="7") < of(priority="3") < of() == of(priority="high") == of(priority="-1")
    assert of(priority="9" * 10) == of()  # not a number that fits
