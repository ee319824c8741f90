"""Queue orders: the keys, with the arithmetic shown."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model.pod import Group, Qos
from dovetail.policies.orders import ORDERS, JobFacts
from tests.builders import pod


def group(name: str, *classes: Qos, **facts: Any) -> Group:
    pods = [pod(f"{name}{n}", qos=qos) for n, qos in enumerate(classes or (Qos.BEST_EFFORT,))]
    return Group(f"default/{name}", tuple(pods), length=facts.pop("length", None))


def facts(arrival: float = 0.0, priority: int = 0, **more: Any) -> JobFacts:
    return JobFacts(arrival, priority, "default", **more)


def in_order(order: str, **jobs: tuple[Group, JobFacts]) -> list[str]:
    """The names by key, then as every order ends: by priority and age."""
    keys = {n: (*ORDERS[order].key(g, f), -f.priority, f.arrival) for n, (g, f) in jobs.items()}
    return sorted(jobs, key=lambda name: keys[name])


def test_qos_decides_among_equal_priorities() -> None:
    """QOSSort: priority, then Guaranteed > Burstable > BestEffort, then age. A gang has its lowest class."""
    assert in_order(
        "qos",
        effort=(group("a"), facts(0.0)),
        burst=(group("b", Qos.BURSTABLE), facts(1.0)),
        sure=(group("c", Qos.GUARANTEED), facts(2.0)),
        mixed=(group("d", Qos.GUARANTEED, Qos.BURSTABLE), facts(3.0)),
        high=(group("e"), facts(9.0, priority=1)),
    ) == ["high", "sure", "burst", "mixed", "effort"]


def test_coscheduling_puts_a_group_that_failed_behind() -> None:
    """Created at 1, 2 and 3; the first failed at 5. With the time of the failure, it comes last: 2, 3, 5."""
    assert in_order(
        "coscheduling",
        failed=(group("a"), facts(1.0, failed=5.0)),
        second=(group("b"), facts(2.0)),
        third=(group("c"), facts(3.0)),
        high=(group("d"), facts(9.0, priority=1, failed=9.0)),
    ) == ["high", "second", "third", "failed"]


def test_the_smallest_dominant_share_is_first() -> None:
    """2 of 8 GPUs and 60 of 100 CPUs are 0.6; 4 of 8 GPUs are 0.5."""
    cpus, gpus = max(2 / 8, 60 / 100), max(4 / 8, 0.0)
    assert in_order(
        "dominant-share",
        cpu=(group("a"), facts(0.0, priority=9, queue_share=cpus)),
        gpu=(group("b"), facts(1.0, queue_share=gpus)),
        none=(group("c"), facts(2.0)),
    ) == ["none", "gpu", "cpu"]


def test_least_attained_service() -> None:
    """2 GPUs for 10 s are 20 GPU-seconds; 1 GPU for 15 s are 15."""
    assert in_order(
        "least-attained-service",
        wide=(group("a"), facts(0.0, service=2 * 10.0)),
        narrow=(group("b"), facts(1.0, service=1 * 15.0)),
        new=(group("c"), facts(2.0)),
    ) == ["new", "narrow", "wide"]


def test_shortest_first_and_unknown_lengths_last() -> None:
    assert in_order(
        "shortest-first",
        unknown=(group("a"), facts(0.0)),
        long=(group("b"), facts(1.0, length=100.0)),
        short=(group("c"), facts(2.0, length=10.0)),
        none=(group("d"), facts(3.0, length=0.0)),
    ) == ["none", "short", "long", "unknown"]


@pytest.mark.parametrize("name", ORDERS)
def test_every_row_has_its_name_and_a_sentence(name: str) -> None:
    assert ORDERS[name].name == name
    assert ORDERS[name].title.endswith(".")
