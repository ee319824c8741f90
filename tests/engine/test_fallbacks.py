"""A policy that needs measurements, while there are none: its fallback decides, and no longer than that."""

from __future__ import annotations

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import explain, verdicts
from dovetail.model.events import NodeGone, SignalsMeasured
from dovetail.model.signals import CardSignals, NodeSignals
from tests.builders import ask, cluster, node, place, pod, use

MODES = ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)]


def where(scheduler: Scheduler, name: str, policy: str = "gpu-target-load") -> str | None:
    return place(scheduler, pod(name, ask(1, 100, 5), node_policy=policy))[0][0]


def measured(scheduler: Scheduler, at: float, name: str, *loads: int) -> None:
    cards = tuple(CardSignals(f"{name}/{n}", load) for n, load in enumerate(loads))
    scheduler.handle(SignalsMeasured(at, name, NodeSignals(at, cards=cards)))


@pytest.mark.parametrize("mode", MODES)
def test_the_fallback_decides_until_the_first_and_after_the_last_measurement(mode: str) -> None:
    """`a` is half full, so that `spread` takes b; at 35 % and 5 % more, `gpu-target-load` takes a."""
    scheduler = cluster(node("a", gpus=1), node("b", gpus=1), mode=mode)
    use(scheduler, "a", "a/0", 1, 4000, 0)
    assert where(scheduler, "p1") == "b"
    scheduler.handle(SignalsMeasured(1.0, "a", NodeSignals(1.0, cpu=100)))  # nothing about cards
    assert where(scheduler, "p2") == "b"
    measured(scheduler, 2.0, "a", 350)
    assert where(scheduler, "p3") == "a"
    measured(scheduler, 3.0, "a")  # nothing is known any more
    assert where(scheduler, "p4") == "b"
    measured(scheduler, 4.0, "a", 350)
    scheduler.handle(NodeGone(5.0, "a"))
    assert where(scheduler, "p5") == "b"
    assert scheduler.ledger.places.signals.sorts == 0


def test_what_is_measured_in_a_transaction_is_in_force_until_it_is_undone() -> None:
    scheduler = cluster(node("a", gpus=1), node("b", gpus=1))
    use(scheduler, "a", "a/0", 1, 4000, 0)
    with scheduler.ledger.transaction():
        scheduler.ledger.measure("a", NodeSignals(1.0, cards=(CardSignals("a/0", 350),)))
        assert where(scheduler, "p1") == "a"
    assert where(scheduler, "p1") == "b"


def test_explain_shows_the_scores_of_the_policy_that_decides() -> None:
    """spread: 10 × 4,000 / 8,000 of memory and 1 of 10 slots; lowest first. gpu-target-load: 100 at the target."""
    scheduler = cluster(node("a", gpus=1), node("b", gpus=1))
    use(scheduler, "a", "a/0", 1, 4000, 0)
    wanted = pod("p", ask(1, 100, 5), node_policy="gpu-target-load")
    assert {one.node: one.score for one in verdicts(scheduler, wanted)} == {"a": 6.0, "b": 0.0}
    assert [one.node for one in explain(scheduler, wanted).verdicts] == ["b", "a"]
    measured(scheduler, 1.0, "a", 350)
    assert [(one.node, one.score) for one in explain(scheduler, wanted).verdicts] == [("a", 100.0), ("b", 0.0)]
