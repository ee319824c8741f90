"""Fragments (idle GPU that typical pods cannot use) after each decision, computed from the log of a replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.kernel.build import builder
from dovetail.engine.kernel.state import NONE, TAKEN_CARD, TAKEN_COMPUTE, TAKEN_MEMORY
from dovetail.engine.ledger.decisions import Decisions
from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Decision
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.cards import part_left
from dovetail.policies.outlook import TOTAL, usable
from dovetail.policies.rows import CARD_KIND, CARD_MEMORY, CPU_COLUMN, Floats, Ints
from dovetail.sim.cast import card_index


class EmptyCluster(NamedTuple):
    """The nodes before the first decision, in the order of the ledger's rows."""

    kind: Ints  # [node]: the kind of its GPUs
    cards: Ints  # [node]
    memory: Ints  # [node]: MiB of each of its GPUs
    cpu: Ints  # [node]: milli left
    held: Ints  # [node, card, compute and memory]: held by pods
    left: Ints  # [node, card]: milli left, the smaller of compute and memory
    outlook: Ints  # typical pods, in the layout of policies/outlook.py


def empty_cluster(scheduler: Scheduler) -> EmptyCluster:
    """The nodes of a fresh scheduler.

    Prepares the outlook even if no policy needs it: the measure of fragments does.
    """
    scheduler.outlook.prepare()
    size, rows = len(scheduler.ledger.nodes), scheduler.ledger.rows
    cards = rows.fact[:size, 0].copy()
    left = np.where(np.arange(rows.left.shape[1]) < cards[:, None], WHOLE_CARD, 0)
    held = np.zeros((*left.shape, 2), dtype=np.int64)
    first = rows.card[:size, 0]
    room = rows.cap[:size, CPU_COLUMN].copy()
    return EmptyCluster(
        first[:, CARD_KIND].copy(), cards, first[:, CARD_MEMORY].copy(), room, held, left, rows.outlook.copy()
    )


class DecisionLog(NamedTuple):
    """Decisions as arrays."""

    rows: Ints  # [pod]: its node's row, or NONE
    starts: Ints  # [pod]: its first line of `taken`
    taken: Ints  # [line]: card, compute in milli, MiB


def log_of(made: Sequence[Decision], row_of: Mapping[str, int]) -> DecisionLog:
    if isinstance(made, Decisions):
        return DecisionLog(made.rows, made.starts, made.taken[:, [TAKEN_CARD, TAKEN_COMPUTE, TAKEN_MEMORY]])
    rows = [NONE if one.node is None else row_of[one.node] for one in made]
    lines = [(card_index(share), share.compute_milli, share.memory_mib) for one in made for share in one.shares]
    starts = np.cumsum([0, *(len(one.shares) for one in made)])[:-1]
    return DecisionLog(np.array(rows, dtype=np.int64), starts, np.array(lines, dtype=np.int64).reshape(-1, 3))


def follow(cluster: EmptyCluster, made: DecisionLog, cpu: Ints, compiled: bool) -> tuple[Floats, Ints]:
    """Milli of fragments, and milli in use, after each decision. Changes `cluster` to the state after the last one."""
    after, used = np.empty(len(made.rows), dtype=np.int64), np.empty(len(made.rows), dtype=np.int64)
    (builder(True, True) if compiled else builder(False)).run(
        follow_entry,
        np.ascontiguousarray(made.rows),
        made.starts,
        np.ascontiguousarray(made.taken),
        cpu,
        *cluster,
        after,
        used,
    )
    total: Any = max(1, int(cluster.outlook[TOTAL]))
    return np.asarray(after / total, dtype=np.float64), used


def follow_entry(
    rows: Ints,
    starts: Ints,
    taken: Ints,
    cpu: Ints,
    kind: Ints,
    cards: Ints,
    memory: Ints,
    cpu_left: Ints,
    held: Ints,
    left: Ints,
    outlook: Ints,
    after: Ints,
    used: Ints,
) -> None:
    """Compute `after` and `used`.

    Fragments are in milli × the number of typical pods, so that they stay exact integers.
    """
    total, in_use = 0, 0
    for i in range(len(kind)):
        total += fragments(outlook, kind[i], cpu_left[i], left[i], cards[i])
        for d in range(cards[i]):
            in_use += WHOLE_CARD - left[i, d]
    for n in range(len(rows)):
        i = rows[n]
        if i != NONE:
            total -= fragments(outlook, kind[i], cpu_left[i], left[i], cards[i])
            cpu_left[i] -= cpu[n]
            end = starts[n + 1] if n + 1 < len(starts) else len(taken)
            for at in range(starts[n], end):
                d = taken[at, 0]
                held[i, d, 0] += taken[at, 1]
                held[i, d, 1] += taken[at, 2]
                in_use += left[i, d]
                left[i, d] = part_left(WHOLE_CARD, held[i, d, 0], memory[i], held[i, d, 1])
                in_use -= left[i, d]
            total += fragments(outlook, kind[i], cpu_left[i], left[i], cards[i])
        after[n], used[n] = total, in_use


def fragments(outlook: Ints, kind: int, cpu: int, left: Ints, cards: int) -> int:
    idle = 0
    for d in range(cards):
        idle += left[d]
    return int(idle * outlook[TOTAL] - usable(outlook, kind, cpu, left, cards))
