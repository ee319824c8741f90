"""The ledger as plain values by name, so that two of them can be compared whatever their rows and slots are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

from dovetail.engine.kernel.state import (
    ENTRY_NEXT,
    FREE,
    FREE_ENTRIES,
    FREE_ENTRY,
    FREE_POD,
    FREE_PODS,
    JOURNAL_DEPTH,
    JOURNAL_LENGTH,
    NONE,
    POD_ENTRY,
    POD_ROW,
    POD_STATE,
)
from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Decision, Share
from dovetail.model.events import NodeChanged, SignalsMeasured
from dovetail.model.node import Node
from dovetail.model.pod import Group, Quota
from dovetail.model.reason import Reason
from dovetail.model.signals import CardSignals, NodeSignals
from tests.strategies import ARGUMENTS, World


def made(
    nodes: Iterable[Node],
    mode: str = "interpreted",
    quotas: tuple[Quota, ...] = (),
    measured: bool = True,
    **options: Any,
) -> Scheduler:
    """A scheduler with these nodes, each with some measured load."""
    scheduler = Scheduler(ARGUMENTS, quotas, mode, **options)
    for node in nodes:
        scheduler.handle(NodeChanged(0.0, node))
        if measured:
            scheduler.handle(SignalsMeasured(0.0, node.name, signals_of(node)))
    return scheduler


def signals_of(node: Node) -> NodeSignals:
    """Some load, by the names of node and cards. Every third card is not measured."""

    def drawn(name: str, most: int) -> int:
        return crc32(name.encode()) % (most + 1)

    cards = tuple(
        CardSignals(card.uuid, drawn(f"{card.uuid} c", 1000), drawn(f"{card.uuid} m", 900), drawn(card.uuid, 300))
        for n, card in enumerate(node.devices)
        if n % 3 != 2
    )
    cpu, deviation, memory = (drawn(f"{node.name} {n}", most) for n, most in enumerate((1000, 300, 900)))
    network = drawn(f"{node.name} net", 900_000)
    return NodeSignals(0.0, cpu, deviation, memory, 50, cards, drawn(node.name, 500), network, 1_000_000)


def told(world: World, mode: str = "interpreted", **options: Any) -> Scheduler:
    """A scheduler that knows the workload beforehand, so that joint policies learn nothing on the way."""
    scheduler = made(world.nodes, mode, **options)
    scheduler.outlook.expect((pod, 1) for group in world.groups for pod in group.pods)
    return scheduler


def picture(scheduler: Scheduler) -> dict[str, Any]:
    """What is in use, and by whom."""
    ledger, columns = scheduler.ledger, list(scheduler.intern.columns)
    nodes: dict[str, Any] = {}
    for name, row in sorted(ledger.row_of.items()):
        used = ledger.rows.used[row].tolist()
        nodes[name] = (
            ledger.is_active(row),
            {columns[n]: amount for n, amount in enumerate(used[: len(columns)]) if amount},
            ledger.rows.scored[row].tolist(),
            {device.uuid: ledger.rows.held[row, n].tolist() for n, device in enumerate(ledger.devices(row))},
            ledger.rows.sums[row].tolist(),
            ledger.rows.signal[row].tolist(),
            {device.uuid: ledger.rows.card_signal[row, n].tolist() for n, device in enumerate(ledger.devices(row))},
        )
    pods = {
        uid: (
            ledger.node_of(uid),
            ledger.shares(held.slot),
            int(ledger.book.pod[held.slot, POD_STATE]),
            held.assumed,
        )
        for uid, held in sorted(ledger.pods.items())
    }
    heads = ledger.heads
    return {"nodes": nodes, "pods": pods, "journal": (int(heads[JOURNAL_DEPTH]), int(heads[JOURNAL_LENGTH]))}


def sizes(scheduler: Scheduler) -> dict[str, Any]:
    """How many names, numbers and lines of each sort there are."""
    ledger, intern = scheduler.ledger, scheduler.intern
    names = ("columns", "vendors", "kinds", "uuids", "hardware", "rules", "shapes", "owners")
    found: dict[str, Any] = {name: (len(getattr(intern, name)), set(getattr(intern, name))) for name in names}
    found["nodes"], found["classes"] = (len(ledger.nodes), ledger.storage.size), ledger.places.classes
    found["lines"] = ledger.storage.lines
    return {
        **found,
        "learning": scheduler.outlook.learning,
        "ghosts": {row: ledger.devices(row) for row in range(len(ledger.nodes))},
    }


def slots(scheduler: Scheduler) -> dict[str, Any]:
    """Which slots are taken, and that the free lists hold exactly the others."""
    ledger = scheduler.ledger
    pod, entry = ledger.book.pod, ledger.book.entry
    taken = {slot for slot in range(len(pod)) if pod[slot, POD_STATE] != FREE}
    free = _walk(pod, POD_ENTRY, int(ledger.heads[FREE_POD]))
    chained: set[int] = set()
    for slot in taken:
        chained |= _walk(entry, ENTRY_NEXT, int(pod[slot, POD_ENTRY]))
    unchained = _walk(entry, ENTRY_NEXT, int(ledger.heads[FREE_ENTRY]))
    assert len(free) == ledger.heads[FREE_PODS]
    assert len(unchained) == ledger.heads[FREE_ENTRIES]
    assert free | taken == set(range(len(pod)))
    assert not free & taken
    assert chained | unchained == set(range(len(entry)))
    assert not chained & unchained
    assert all(pod[slot, POD_ROW] == NONE for slot in free)
    return {"taken": taken, "chained": chained}


def _walk(table: Any, link: int, at: int) -> set[int]:
    seen: set[int] = set()
    while at != NONE:
        assert at not in seen, "a free list that bites its tail"
        seen.add(at)
        at = int(table[at, link])
    return seen


def said(decisions: Iterable[Decision]) -> list[tuple[str, str | None, tuple[Share, ...], Reason]]:
    """Decisions without the generation: what counts."""
    return [(d.uid, d.node, d.shares, d.reason) for d in decisions]


def alone(groups: Iterable[Group]) -> list[Group]:
    """Every pod on its own."""
    return [Group(pod.key, (pod,)) for group in groups for pod in group.pods]
