"""A load-aware node policy and GPU policy: they plug in from here, by what they say of themselves. None is shipped."""

from __future__ import annotations

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import Bind, GroupArrived, NodeChanged, NodeGone, SignalsMeasured
from dovetail.model.signals import CardSignals, NodeSignals
from dovetail.policies.rows import CPU_LOAD, CPU_LOAD_DEVIATION, Card, DevicePolicy, Ints, NodePolicy, Rows, Wants
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES
from tests.builders import ask, cluster, group, node, pod

UNKNOWN = 500  # a node that was not measured counts as half busy


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    """Mean CPU load plus its standard deviation: a node that is often busy is a risk."""
    mean, deviation = rows.signal[i, CPU_LOAD], rows.signal[i, CPU_LOAD_DEVIATION]
    return float(mean + max(deviation, 0)) if mean >= 0 else float(UNKNOWN)


def key(card: Card) -> float:
    return -float(card.load)


COOLEST = NodePolicy("coolest", "The node with the least load.", score, reads_signals=True, lowest_wins=True)
COOL_CARD = DevicePolicy("cool-card", "The card with the least load.", key, reads_signals=True)


def measured(scheduler: Scheduler, at: float, name: str, cpu: int, deviation: int, *cards: int) -> None:
    loads = tuple(CardSignals(f"{name}/{n}", load) for n, load in enumerate(cards))
    assert scheduler.handle(SignalsMeasured(at, name, NodeSignals(at, cpu, deviation, cards=loads))) == ()


@pytest.mark.parametrize("mode", ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])
def test_pods_go_where_the_measured_load_is_least(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NODE_POLICIES, "coolest", COOLEST)
    monkeypatch.setitem(DEVICE_POLICIES, "cool-card", COOL_CARD)
    scheduler = cluster(node("a", gpus=2), node("b", gpus=2), node("c", gpus=2), mode=mode)

    def arrives(name: str) -> tuple[str | None, str]:
        wanted = pod(name, ask(1, 100), node_policy="coolest", gpu_policy="cool-card")
        (effect,) = scheduler.handle(GroupArrived(0.0, group(wanted)))
        assert isinstance(effect, Bind)
        return effect.decision.node, effect.decision.shares[0].uuid

    assert arrives("p1") == ("a", "a/1")  # nothing is measured: 500 each, the first name
    measured(scheduler, 1.0, "a", 600, 0)
    measured(scheduler, 1.0, "b", 400, 150)  # 550
    assert arrives("p2") == ("c", "c/1")  # 500
    measured(scheduler, 2.0, "b", 400, 50, 100, 900)  # 450, and its first card is the cooler one
    assert [arrives("p3"), arrives("p4")] == [("b", "b/0"), ("b", "b/0")]
    measured(scheduler, 1.5, "b", 900, 0)  # older than what is known
    assert arrives("p5") == ("b", "b/0")
    scheduler.handle(NodeGone(3.0, "b"))
    scheduler.handle(NodeChanged(4.0, node("b", gpus=2)))  # back, and unmeasured: 500, as c
    measured(scheduler, 5.0, "c", 300, 0)
    again = pod("p6", ask(1, 100), node_policy="coolest", gpu_policy="cool-card")
    assert scheduler.place([group(again)])[0].node == "c"
