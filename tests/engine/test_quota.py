"""A namespace never holds more device memory or compute than its quotas allow, counted here once more by hand."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given

from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Share
from dovetail.model.pod import ContainerKind, Pod, Quota
from tests.engine.pictures import alone, made
from tests.strategies import World, quotas, worlds


def worst(pod: Pod, shares: tuple[Share, ...]) -> tuple[int, int]:
    """MiB and milli over the pod's NVIDIA cards, each at its worst moment (HAMi collapses init and app per card)."""
    staying: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    peak: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for share in shares:
        now = [staying[share.uuid][0] + share.memory_mib, staying[share.uuid][1] + share.compute_milli]
        peak[share.uuid] = [max(a, b) for a, b in zip(peak[share.uuid], now, strict=True)]
        if pod.containers[share.container].kind is not ContainerKind.INIT:
            staying[share.uuid] = now
    return sum(memory for memory, _ in peak.values()), sum(milli for _, milli in peak.values())


def booked(scheduler: Scheduler, models: dict[str, str]) -> tuple[int, int]:
    memory = compute = 0
    for held in scheduler.ledger.pods.values():
        shares = tuple(s for s in scheduler.ledger.shares(held.slot) if models[s.uuid] == "NVIDIA")
        mib, milli = worst(held.pod, shares)
        memory, compute = memory + mib, compute + milli
    return memory, compute


@given(worlds(), quotas)
def test_no_quota_is_exceeded(world: World, limits: tuple[Quota, ...]) -> None:
    scheduler = made(world.nodes, quotas=limits)
    vendors = {device.uuid: device.vendor for node in world.nodes for device in node.devices}
    scheduler.place(world.groups)
    memory, compute = booked(scheduler, vendors)
    assert memory <= limits[0].device_memory_mib["NVIDIA"]
    assert compute <= limits[0].device_compute_milli["NVIDIA"]


@given(worlds())
def test_a_quota_that_is_never_reached_changes_nothing(world: World) -> None:
    wide = Quota("default", "wide", device_memory_mib={"NVIDIA": 10**9}, device_compute_milli={"NVIDIA": 10**9})
    free, bounded = made(world.nodes), made(world.nodes, quotas=(wide,))
    for group in alone(world.groups):
        (one,), (other,) = free.place([group]), bounded.place([group])
        assert (one.node, one.shares) == (other.node, other.shares)
