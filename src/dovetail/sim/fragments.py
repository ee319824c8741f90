"""GPU that is idle and yet of no use to typical pods, after each decision: read off the log of a replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.build import builder
from dovetail.engine.decisions import Decisions
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.state import NONE, TAKEN_CARD, Floats
from dovetail.policies.cards import WHOLE
from dovetail.policies.outlook import TOTAL, usable
from dovetail.policies.rows import CPU, KIND, Ints


class Cluster(NamedTuple):
    """The nodes before the first decision, by the engine's rows."""

    kind: Ints  # [node]: of its GPUs
    cards: Ints  # [node]
    cpu: Ints  # [node]: milli left
    left: Ints  # [node, card]: milli left
    outlook: Ints  # typical pods, as policies/outlook.py lays them out


def empty_cluster(scheduler: Scheduler) -> Cluster:
    """Also where no policy needed to know typical pods: the measure does."""
    scheduler.outlook.prepare()
    size, rows = len(scheduler.ledger.nodes), scheduler.ledger.rows
    cards = rows.fact[:size, 0].copy()
    left = np.where(np.arange(rows.left.shape[1]) < cards[:, None], WHOLE, 0)
    return Cluster(rows.card[:size, 0, KIND].copy(), cards, rows.cap[:size, CPU].copy(), left, rows.outlook.copy())


def follow(cluster: Cluster, made: Decisions, cpu: Ints, milli: Ints, compiled: bool) -> Floats:
    """Milli of fragments in the cluster after each decision; `cluster` is brought up to where they lead."""
    after = np.empty(len(made), dtype=np.int64)
    run = builder(True, True).specialise(follow_entry, {}) if compiled else follow_entry
    run(
        np.ascontiguousarray(made.rows),
        made.starts,
        np.ascontiguousarray(made.taken[:, TAKEN_CARD]),
        cpu,
        milli,
        *cluster,
        after,
    )
    total: Any = max(1, int(cluster.outlook[TOTAL]))
    return np.asarray(after / total, dtype=np.float64)


def follow_entry(
    rows: Ints,
    starts: Ints,
    card: Ints,
    cpu: Ints,
    milli: Ints,
    kind: Ints,
    cards: Ints,
    cpu_left: Ints,
    left: Ints,
    outlook: Ints,
    after: Ints,
) -> None:
    """In milli times the number of typical pods, which keeps it exact."""
    total = 0
    for i in range(len(kind)):
        total += fragments(outlook, kind[i], cpu_left[i], left[i], cards[i])
    for n in range(len(rows)):
        i = rows[n]
        if i != NONE:
            total -= fragments(outlook, kind[i], cpu_left[i], left[i], cards[i])
            cpu_left[i] -= cpu[n]
            end = starts[n + 1] if n + 1 < len(starts) else len(card)
            for at in range(starts[n], end):
                left[i, card[at]] -= milli[n]
            total += fragments(outlook, kind[i], cpu_left[i], left[i], cards[i])
        after[n] = total


def fragments(outlook: Ints, kind: int, cpu: int, left: Ints, cards: int) -> int:
    idle = 0
    for d in range(cards):
        idle += left[d]
    return int(idle * outlook[TOTAL] - usable(outlook, kind, cpu, left, cards))
