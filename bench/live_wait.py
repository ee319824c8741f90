"""Waiting times: from freed room to a bound pod, and from a pod's arrival to its reason for waiting.

All the time, pods that fit on no node wait in the queue, with hundreds of shapes. The clock starts before the request
that frees room (DELETE) or creates the pod (POST). It stops when the benchmark's own watch shows the result.
"""

from __future__ import annotations

import time
from functools import partial

from bench import live_load as load
from bench.live_cluster import NODES, PODS, Sight, create, delete_pods, say, watching
from bench.live_contenders import Dovetail
from dovetail.kube.api.client import Api
from tools.controlplane.client import Object
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY, cards, node, pod
from tools.controlplane.plane import ControlPlane

HOPELESS = 500
ROUNDS = 100
TIGHT = {"example.com/tight": "yes"}
Spread = dict[str, float]


def spread(seconds: list[float]) -> Spread:
    """p50 and p99 by nearest rank."""
    order = sorted(seconds)

    def rank(percent: int) -> float:
        return round(order[max(0, -(-len(order) * percent // 100) - 1)], 3)

    return {"p50": rank(50), "p99": rank(99)}


def whole_card(name: str) -> Object:
    """A pod that asks for a whole card, on the one node where every card is taken."""
    limits = {GPU: 1, GPU_MEMORY: load.CARD_MIB, GPU_CORES: 100}
    return pod(name, limits, "dovetail", labels={"app": "tight"}, nodeSelector=TIGHT)


async def waits(plane: ControlPlane, api: Api) -> tuple[Spread, Spread]:
    """Room to bound, and arrival to reason."""
    await api.post(NODES, node("tight", cards("tight", load.CARDS, load.CARD_MIB, load.MODEL), TIGHT))
    dovetail = Dovetail(plane)
    try:
        async with watching(plane) as sight:
            dovetail.start()
            await _fill(api, sight)
            arrivals = await _arrive(api, sight)
            rooms = await _make_room(api, sight)
            return spread(rooms), spread(arrivals)
    finally:
        dovetail.stop()
        await delete_pods(api)
        await api.delete(f"{NODES}/tight")


async def _fill(api: Api, sight: Sight) -> None:
    """Create pods that take the tight node's cards, pods that wait for one, and pods that fit on no node."""
    names = [f"tight-{n:05d}" for n in range(load.CARDS + ROUNDS)]
    for name in names[: load.CARDS]:
        await api.post(PODS, whole_card(name))
    await sight.until(lambda: len(sight.bound) == load.CARDS, 120, "the tight node is full")
    rest = names[load.CARDS :]
    await create(api, PODS, map(whole_card, rest), len(rest), "pods that wait for room")
    began = time.monotonic()
    await create(api, PODS, load.hopeless(HOPELESS), HOPELESS, "hopeless pods")
    await sight.until(lambda: len(sight.waits) == HOPELESS + ROUNDS, 120, "all say why they wait")
    say(f"  {HOPELESS} hopeless pods at once: all say why {time.monotonic() - began:.1f} s after the first was sent")


async def _arrive(api: Api, sight: Sight) -> list[float]:
    found = []
    for n, item in enumerate(load.hopeless(ROUNDS, first=HOPELESS)):
        name, began = item["metadata"]["name"], time.monotonic()
        await api.post(PODS, item)
        await sight.until(partial(sight.waits.__contains__, name), 60, f"the reason of {name}")
        found.append(sight.waits[name] - began)
        if n % 50 == 49:
            say(f"  arrival to reason: {n + 1} of {ROUNDS}")
    return found


async def _make_room(api: Api, sight: Sight) -> list[float]:
    """Delete one pod per round. A pod that gets the card is deleted in a later round."""
    found = []
    for n in range(ROUNDS):
        there = sorted(name for name in sight.bound if name not in sight.gone)
        before, began = len(sight.bound), time.monotonic()
        sight.gone.add(there[0])
        await api.delete(f"{PODS}/{there[0]}", params={"gracePeriodSeconds": "0"})
        await sight.until(lambda before=before: len(sight.bound) > before, 60, "a bound pod")  # type: ignore[misc]
        found.append(max(sight.bound.values()) - began)
        if n % 50 == 49:
            say(f"  room to bound: {n + 1} of {ROUNDS}")
    return found
