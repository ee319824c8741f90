"""What is true already: pods that hold a node, whoever placed them. They are booked whether they fit or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.engine.quota import unlimited
from dovetail.engine.state import NONE
from dovetail.model.decision import Share
from dovetail.model.node import Enforcer
from dovetail.model.pod import Pod, Profile, RunningPod
from dovetail.policies.rows import ASK_COMPUTE, ASK_CONTAINER

if TYPE_CHECKING:
    from dovetail.engine.scheduler import Scheduler

FIRST_FIT = Profile("first-fit", ("first-fit",))


def observe(scheduler: Scheduler, running: RunningPod) -> list[str]:
    """Book the pod; returns what people should know about it."""
    ledger, pod = scheduler.ledger, running.pod
    ledger.release(pod.uid)  # our own reservation, or an older view of the same pod
    if running.shares is not None or not pod.wants_devices:
        unknown = ledger.book_observed(pod, running.node, running.shares or (), assumed=False)
        return [
            f"holds {uuid}, which node {running.node} does not register; the card is quarantined" for uuid in unknown
        ]
    shares, fit = assume(scheduler, pod, running.node)
    ledger.book_observed(pod, running.node, shares, assumed=True)
    row = ledger.row_of[running.node]
    if not shares:
        return [f"asks for GPUs, but node {running.node} has none that could be charged"]
    if ledger.nodes[row].enforcer is Enforcer.STOCK and fit:
        return []  # kubelet picks the card there: nobody is expected to write it down
    how = "the first cards that fit" if fit else "the first cards, although they do not fit"
    return [f"has no record of its cards on node {running.node}; charged to {how} (assumed)"]


def assume(scheduler: Scheduler, pod: Pod, node: str) -> tuple[tuple[Share, ...], bool]:
    """The first cards that could be the pod's, and whether they fit."""
    ledger = scheduler.ledger
    row = ledger.row_of.get(node)
    if row is None:
        return (), False
    asks = sum(ask.count for container in pod.containers for ask in container.asks)
    shape = scheduler.intern.shape(pod, NONE)
    ledger.make_room(0, asks)
    state, kernel = ledger.state(), scheduler.lens(FIRST_FIT)
    picked = kernel.choose_all(
        state.rows, state.wants, row, shape, kernel.style, unlimited(scheduler.intern.vendors), 0, state.scratch
    )
    if picked < 0:
        return _first_cards(scheduler, pod, row), False
    devices = ledger.devices(row)
    lines = state.scratch.picked[:picked].tolist()
    return tuple(
        Share(int(state.wants.ask[a, ASK_CONTAINER]), devices[d].uuid, memory, int(state.wants.ask[a, ASK_COMPUTE]))
        for a, d, memory in lines
    ), True


def _first_cards(scheduler: Scheduler, pod: Pod, row: int) -> tuple[Share, ...]:
    """Nothing fits, yet the pod runs: its cards are somebody's, so the first ones are charged."""
    shares = []
    for n, container in enumerate(pod.containers):
        for ask in container.asks:
            mine = [d for d in scheduler.ledger.devices(row) if d.vendor == ask.vendor and not d.quarantined]
            for device in sorted(mine, key=lambda d: d.index)[: ask.count]:
                percent = ask.memory_percent
                memory = ask.memory_mib if percent is None else device.memory_mib * percent // 100
                shares.append(Share(n, device.uuid, memory, ask.compute_milli))
    return tuple(shares)
