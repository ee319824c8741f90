"""The counts of queues equal a count from the ledger, after any order of events and after undone transactions."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Scheduler
from dovetail.model.device import Device
from dovetail.model.events import GroupArrived, NodeChanged, NodeGone, PodGone, QueueChanged
from dovetail.model.pod import ContainerKind, Group, Pod
from dovetail.model.rights import Queue
from tests.engine.pictures import made
from tests.properties import with_examples
from tests.strategies import World, worlds

NAMES = ("", "left", "right", "deep", "deeper")
PARENTS = {"deep": "left", "deeper": "deep"}
RESOURCES = ("cpu", "memory", "pods", "gpus", "gpu-memory", "gpu-compute", "gpus/A100", "gpu-memory/T4", "gpus/NVIDIA")
WORDS = {"A100": "NVIDIA A100-SXM4-80GB", "T4": "NVIDIA T4"}


def queue(chance: Random, name: str, tight: bool) -> Queue:
    """A queue that names some resources; without `tight`, its ceilings are never reached."""
    some = chance.sample(RESOURCES, 4)
    ceiling = {one: chance.choice((500, 1000, 3000)) if tight else 2**40 for one in some}
    return Queue(name, "capacity", PARENTS.get(name, ""), (), ceiling=ceiling, guarantee={some[0]: 2**40})


def matches(model: str, product: str) -> bool:
    return product == WORDS[model] if model in WORDS else product.startswith(model)


def amounts_of(pod: Pod, cards: dict[str, Device], scheduler: Scheduler) -> Counter[str]:
    """What the pod holds, from its shares: each card at its worst moment."""
    staying: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    peak: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for share in scheduler.ledger.held_shares(pod.uid):
        now = [staying[share.uuid][0] + share.memory_mib, staying[share.uuid][1] + share.compute_milli]
        peak[share.uuid] = [max(a, b) for a, b in zip(peak[share.uuid], now, strict=True)]
        if pod.containers[share.container].kind is not ContainerKind.INIT:
            staying[share.uuid] = now
    counted = Counter({**pod.resources, "pods": 1})
    for uuid, (memory, compute) in peak.items():
        card = cards[uuid]
        parts = [compute * 1000 // max(1, card.compute_milli), -(-memory * 1000 // max(1, card.memory_mib))]
        gpus = min(1000, max(parts)) if memory or compute else 1000
        for what, amount in (("gpus", gpus), ("gpu-memory", memory), ("gpu-compute", compute)):
            counted[what] += amount
            for model in ("A100", "T4", "NVIDIA"):
                if matches(model, card.model):
                    counted[f"{what}/{model}"] += amount
    return counted


def check(scheduler: Scheduler) -> None:
    queues, ledger = scheduler.placer.queues, scheduler.ledger
    cards = {device.uuid: device for row in range(len(ledger.nodes)) for device in ledger.devices(row)}
    known = {name for name in NAMES if queues.status(name) is not None}
    expected: dict[str, Counter[str]] = defaultdict(Counter)
    for held in ledger.pods.values():
        name = held.pod.queue
        while name in known:
            expected[name].update(amounts_of(held.pod, cards, scheduler))
            name = PARENTS.get(name, "")
    for name in known:
        status = queues.status(name)
        assert status is not None
        assert {r: n for r, n in status.used.items() if n} == {
            r: n for r, n in expected[name].items() if n and r in status.used
        }
        assert all(r in status.used for r, n in expected[name].items() if n and r in queues._measures.tracked)


def recounted(scheduler: Scheduler) -> dict[str, object]:
    """All counts, and all of them again from scratch."""
    queues = scheduler.placer.queues

    def seen() -> dict[str, object]:
        return {name: (+b.used, +b.own, +b.waits) for name, b in queues._fresh().by_name.items()}

    before = seen()
    queues._stale = True
    assert seen() == before
    return before


def in_queues(world: World) -> list[Group]:
    chance = world.chance
    return [replace(one, pods=tuple(replace(p, queue=chance.choice(NAMES)) for p in one.pods)) for one in world.groups]


@with_examples(150)
@given(worlds(), st.booleans())
def test_counts_follow_every_event(world: World, tight: bool) -> None:
    scheduler, chance = made(world.nodes), world.chance
    for name in NAMES[1:]:
        scheduler.handle(QueueChanged(0.0, name, queue(chance, name, tight)))
    for group in in_queues(world):
        scheduler.handle(GroupArrived(1.0, group))
        event = chance.randrange(8)
        if event == 0 and len(scheduler.ledger.pods):
            scheduler.handle(PodGone(2.0, chance.choice(list(scheduler.ledger.pods))))
        elif event == 1:
            name = chance.choice(NAMES[1:])
            scheduler.handle(QueueChanged(2.0, name, chance.choice((None, queue(chance, name, tight)))))
        elif event == 2:
            node = chance.choice(world.nodes)
            larger = tuple(msgspec.structs.replace(d, memory_mib=d.memory_mib * 2) for d in node.devices[:2])
            scheduler.handle(NodeChanged(2.0, replace(node, devices=larger)))
        elif event == 3:
            scheduler.handle(NodeGone(2.0, chance.choice(world.nodes).name))
        check(scheduler)
    audit.validate(scheduler.ledger)
    recounted(scheduler)


@with_examples(150)
@given(worlds(), st.booleans(), st.integers(0, 8))
def test_an_undone_transaction_changes_no_count(world: World, tight: bool, stay: int) -> None:
    scheduler, chance = made(world.nodes), world.chance
    for name in NAMES[1:]:
        scheduler.handle(QueueChanged(0.0, name, queue(chance, name, tight)))
    groups = in_queues(world)
    scheduler.place(groups[:stay])
    before = recounted(scheduler)
    with scheduler.ledger.transaction():
        for uid in list(scheduler.ledger.pods)[::2]:
            scheduler.ledger.release(uid)
            check(scheduler)
        scheduler.place(groups[stay:])
        check(scheduler)
        with scheduler.ledger.transaction() as inner:
            for uid in list(scheduler.ledger.pods)[1::2]:
                scheduler.ledger.release(uid)
            if chance.random() < 0.5:
                inner.commit()
        check(scheduler)
    assert recounted(scheduler) == before
    check(scheduler)


@given(worlds())
def test_no_ceiling_is_exceeded(world: World) -> None:
    scheduler, chance = made(world.nodes), world.chance
    ceilings = {name: queue(chance, name, tight=True).ceiling for name in NAMES[1:]}
    for name, ceiling in ceilings.items():
        scheduler.handle(QueueChanged(0.0, name, Queue(name, "capacity", PARENTS.get(name, ""), ceiling=ceiling)))
    scheduler.place(in_queues(world))
    for name, ceiling in ceilings.items():
        status = scheduler.placer.queues.status(name)
        assert status is not None
        assert all(status.used.get(resource, 0) <= most for resource, most in ceiling.items())
