"""A namespace never holds more device memory or compute than its quotas allow, counted here once more by hand."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given

from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Share
from dovetail.model.events import Bind, GroupArrived, PodGone, QuotaChanged
from dovetail.model.pod import ContainerKind, Group, Pod, Quota
from dovetail.model.rules import NodeRules
from tests import builders
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


def test_a_pod_that_waited_before_its_namespace_had_a_quota_is_tried_when_the_quota_has_room() -> None:
    """It waited for room on `b`. Now `b` has room and the quota has not, until another pod leaves `a`."""
    nodes = [builders.node(name, gpus=1, labels={"zone": name}) for name in "ab"]
    scheduler = made(nodes)

    def placed(name: str, zone: str, namespace: str = "default") -> bool:
        rules = NodeRules(selector=(("zone", zone),))
        pod = builders.pod(name, builders.ask(cores=100), namespace=namespace, node_rules=rules)
        return isinstance(scheduler.handle(GroupArrived(1.0, Group(pod.key, (pod,))))[0], Bind)

    assert [placed("first", "a"), placed("other", "b", "another"), placed("waits", "b")] == [True, True, False]
    scheduler.handle(QuotaChanged(2.0, "default", "q", Quota("default", "q", device_compute_milli={"NVIDIA": 1000})))
    scheduler.wake.forget()  # as at times: lists of waiting requests are made again, with what the quota leaves
    assert scheduler.handle(PodGone(3.0, "uid-other")) == ()
    (bind,) = scheduler.handle(PodGone(4.0, "uid-first"))
    assert isinstance(bind, Bind)
    assert bind.pod.name == "waits"
