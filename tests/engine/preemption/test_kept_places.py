"""Large groups are not starved by small ones: places are kept for the first group of the queue."""

from __future__ import annotations

from random import Random

from dovetail.engine.scheduler import Rights
from dovetail.policies.yielding import YIELD_BY_PRIORITY
from tests.builders import node
from tests.engine.preemption.world import Cluster, job

NODES, GPUS = 8, 4


def started_after(rights: Rights, ticks: int = 400) -> int | None:
    """Ticks until a gang of half the cluster starts, while small jobs keep 32 GPUs busy; None = it does not start.

    At each tick two small jobs end and two arrive, each for one GPU: a job lasts 16 ticks on average.
    """
    chance = Random(7)
    cluster = Cluster(*(node(f"n{n}", gpus=GPUS) for n in range(NODES)), rights=rights)
    for number in range(NODES * GPUS + 4):
        cluster.arrive(job(f"small{number}", created=cluster.now))
    began = cluster.now
    cluster.arrive(*(job(f"gang{n}", gpus=GPUS, created=began) for n in range(NODES // 2)), group="gang")
    for tick in range(ticks):
        running = sorted(name for name in cluster.bound if name.startswith("small"))
        cluster.end(*chance.sample(running, 2))
        for number in range(2):
            cluster.arrive(job(f"small-{tick}-{number}", created=cluster.now))
        if "gang0" in cluster.bound:
            assert all(f"gang{n}" in cluster.bound for n in range(NODES // 2))
            return tick
    return None


def test_a_gang_of_half_the_cluster_starts_in_bounded_time() -> None:
    """Four nodes must empty: 16 GPUs whose jobs each last 16 ticks on average; 150 ticks are plenty."""
    found = started_after(Rights(yielding=YIELD_BY_PRIORITY, keep_after=30.0))
    assert found is not None
    assert found < 150


def test_without_kept_places_it_does_not_start() -> None:
    assert started_after(Rights(yielding=YIELD_BY_PRIORITY)) is None


def test_kept_places_are_visible_and_end_with_their_group() -> None:
    cluster = Cluster(node("a", gpus=2), node("b", gpus=2), rights=Rights(keep_after=10.0))
    for number in range(4):
        cluster.arrive(job(f"small{number}"))
    cluster.arrive(job("big", gpus=2, created=cluster.now))
    assert cluster.scheduler.claims.kept_for == ""
    cluster.now += 20
    cluster.arrive(job("late", created=cluster.now))
    assert cluster.scheduler.claims.kept_for == "default/big"
    cluster.end("small0")
    assert (
        "late" not in cluster.bound or cluster.node_of("late") != cluster.scheduler.nominated.promised["uid-big"].node
    )
    cluster.end("big")
    cluster.now += 5
    cluster.arrive(job("last", created=cluster.now))
    assert cluster.scheduler.claims.kept_for == ""
