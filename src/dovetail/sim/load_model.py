"""Simulated measurements, for policies that read signals: what the pods of a trace would load.

Traces say what jobs ask for, not what they use. The model is simple and the same for all policies:

* A card's pods use a part of the compute that they ask for, from 30 to 100 %; the part is drawn by the card's name.
  Memory is used from 80 to 100 %. The deviation over time is up to 30 % of the compute in use.
* A node's pods use 30 to 90 % of the CPU, and 60 to 100 % of the memory that they ask for, drawn by the node's name.
* Every pod moves 20 Mbit/s for each core of CPU that it asks for; nodes with cards have 25 Gbit/s, others 10 Gbit/s.
* Nodes are measured every 60 seconds; in inflation, which has no clock, after every 60 pods.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import SignalsMeasured
from dovetail.model.node import Node
from dovetail.model.signals import CardSignals, NodeSignals
from dovetail.policies.rows import CARD_MEMORY, COMPUTE, CPU_COLUMN, MEMORY_COLUMN, Ints
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES
from dovetail.sim.cast import KBIT_PER_CORE
from dovetail.sim.profiles import profile_of

MEASURE_EVERY = 60  # seconds, or pods
GPU_NODE_KBIT, CPU_NODE_KBIT = 25_000_000, 10_000_000


def reads_signals(policy: str) -> bool:
    """Whether the policy reads measured load."""
    profile = profile_of(policy)
    return NODE_POLICIES[profile.node].reads_signals or any(
        DEVICE_POLICIES[one].reads_signals for one in profile.device
    )


class LoadModel:
    """Measures the nodes of a simulated cluster. Without a policy that reads signals it does nothing."""

    def __init__(self, scheduler: Scheduler, policy: str) -> None:
        self._scheduler, self.active = scheduler, reads_signals(policy)
        self._seen: Ints | None = None  # what was in use at the last measurement, by row
        self.next_at = 0.0

    def measure(self, at: float) -> None:
        """Measure the nodes whose use changed; at most once in MEASURE_EVERY seconds."""
        if not self.active or at < self.next_at:
            return
        self.next_at = at + MEASURE_EVERY
        ledger = self._scheduler.ledger
        size = len(ledger.nodes)
        use = np.hstack([ledger.rows.sums[:size], ledger.rows.used[:size, : MEMORY_COLUMN + 1]])
        changed = range(size) if self._seen is None else np.flatnonzero((use != self._seen).any(axis=1)).tolist()
        self._seen = use
        for row in changed:
            node = ledger.nodes[row]
            self._scheduler.handle(SignalsMeasured(at, node.name, self._signals(node, row, at)))

    def _signals(self, node: Node, row: int, at: float) -> NodeSignals:
        rows = self._scheduler.ledger.rows
        cpu = _part(rows.used[row, CPU_COLUMN], rows.cap[row, CPU_COLUMN], _drawn(node.name, 300, 900))
        memory = _part(rows.used[row, MEMORY_COLUMN], rows.cap[row, MEMORY_COLUMN], _drawn(f"{node.name} m", 600, 1000))
        cards = tuple(
            CardSignals(device.uuid, *_card_loads(device.uuid, rows.held[row, n], rows.card[row, n]))
            for n, device in enumerate(node.devices)
        )
        return NodeSignals(
            at,
            cpu,
            cpu * _drawn(f"{node.name} d", 0, 300) // 1000,
            memory,
            memory * 50 // 1000,
            cards,
            cpu // 5,
            int(rows.used[row, CPU_COLUMN]) * KBIT_PER_CORE // 1000,
            GPU_NODE_KBIT if node.devices else CPU_NODE_KBIT,
        )


def _card_loads(uuid: str, held: Ints, card: Ints) -> tuple[int, int, int, int]:
    compute = _part(held[COMPUTE], card[COMPUTE], _drawn(uuid, 300, 1000))
    memory = _part(held[CARD_MEMORY], card[CARD_MEMORY], _drawn(f"{uuid} m", 800, 1000))
    return compute, memory, compute * _drawn(f"{uuid} d", 0, 300) // 1000, 0


def _part(used: int, of: int, factor: int) -> int:
    """Per mille in use, if pods use `factor` per mille of what they ask for."""
    return int(used) * factor // max(1, int(of))


def _drawn(name: str, low: int, high: int) -> int:
    """A whole number from low to high, the same for the same name."""
    return low + crc32(name.encode()) % (high - low + 1)
