"""A scheduler's state as a value, and back: everything on which a decision may depend.

What follows from it (counts, scores, lists of requests) is counted again on both sides (`begin_again`), so that it
cannot depend on what was long ago. Every new field of the engine that decisions read must be told here, or be counted
again there; tests/kube/test_journal_reruns.py compares the two engines.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.engine.facts import Facts
from dovetail.engine.kernel.state import ALLOCATED, RESERVED
from dovetail.engine.ledger.signals import Measured
from dovetail.engine.scheduler import Scheduler
from dovetail.model.checkpoint import (
    WHOLE_STATE,
    Checkpoint,
    EngineState,
    Measurement,
    OwnPlace,
    PodRecord,
    Promised,
)
from dovetail.model.events import Event, NodeGone, PodBound, PodObserved, SignalsMeasured
from dovetail.model.node import Enforcer
from dovetail.model.pod import RunningPod, Trust


def begin_again(scheduler: Scheduler, at: float) -> None:
    """Forget failed searches and half-done retries, and count again what follows from the rest."""
    ledger = scheduler.ledger
    if not scheduler.claims.plain:
        scheduler.note_time(at)
    scheduler.news.take()
    scheduler.wake.forget()
    scheduler.claims.begin_again([name for name in scheduler.claims.helpless.names if name in scheduler.waiting])
    scheduler.retries.begin_again()
    for name in scheduler.ledger.places.ghosts:
        ledger.rewrite(ledger.row_of[name])
    scheduler.placer.queues.begin_again()
    for group in sorted(scheduler.waiting, key=scheduler.waiting.order_of):
        scheduler.wait(group)  # its line may be another one now


def checkpoint_of(scheduler: Scheduler, facts: Facts, at: float) -> tuple[tuple[Event, ...], EngineState]:
    """The fields of a Checkpoint, after `begin_again`."""
    ledger, observed = scheduler.ledger, scheduler.observed
    own = [uid for uid in ledger.pods if facts.observed(uid) is None]
    records = {record.uid: record for record in observed.records()}
    booked = [
        uid
        for uid in ledger.pods
        if (seen := facts.observed(uid)) is not None and not _is_as_seen(scheduler, seen, records.get(uid))
    ]
    told = {*facts.pods()} - {*booked}
    squeezed, early = ([ledger.nodes[row].name for row in rows] for rows in observed.rows())
    state = EngineState(
        at=at,
        form=WHOLE_STATE,
        held=tuple(_place(scheduler, uid) for uid in own),
        promised=tuple(Promised(one.pod, one.node, one.shares) for one in scheduler.nominated.promised.values()),
        waiting=tuple(scheduler.waiting),
        expected=scheduler.outlook.expected(),
        rows=tuple(node.name for node in ledger.nodes),
        lost=tuple(node for row, node in enumerate(ledger.nodes) if not ledger.is_active(row)),
        booked=tuple(_place(scheduler, uid) for uid in booked),
        records=tuple(record for uid, record in records.items() if uid not in told),
        squeezed=tuple(squeezed),
        early=tuple(early),
        ghosts=tuple(ledger.places.ghosts.items()),
        measured=tuple(_measurements(scheduler)),
        volumes=scheduler.related.volumes.state(),
        past_use=scheduler.placer.queues.past_use(),
        compiled=tuple(sorted(scheduler.wake.long or ())),
        **scheduler.claims.state(),
    )
    return tuple(facts.all(at, ledger)), state


def _is_as_seen(scheduler: Scheduler, seen: RunningPod, record: PodRecord | None) -> bool:
    """Whether an engine that is told only this event holds the same for the pod."""
    ledger, uid = scheduler.ledger, seen.pod.uid
    held = ledger.pods[uid]
    node = ledger.nodes[ledger.row_holding(uid)]
    same = (held.pod, node.name, ledger.shares(held.slot)) == (seen.pod, seen.node, seen.shares or ())
    if held.assumed or ledger.is_reserved(uid) or not same:
        return False
    if not seen.pod.wants_devices:
        return record is None
    sure = seen.trust is Trust.FULL and seen.shares is not None and node.enforcer is not Enforcer.STOCK
    return sure and record == PodRecord(uid, seen.shares, Trust.FULL)


def _place(scheduler: Scheduler, uid: str) -> OwnPlace:
    ledger, held = scheduler.ledger, scheduler.ledger.pods[uid]
    return OwnPlace(held.pod, ledger.node_of(uid), ledger.shares(held.slot), ledger.is_reserved(uid), held.assumed)


def _measurements(scheduler: Scheduler) -> Iterator[Measurement]:
    nodes = scheduler.ledger.nodes
    for row, known in scheduler.ledger.places.signals.all():
        yield Measurement(nodes[row].name, known.signals, known.expected)


def take_in(scheduler: Scheduler, checkpoint: Checkpoint) -> None:
    """Bring an empty scheduler into this state, up to `begin_again`."""
    state, ledger = checkpoint.state, scheduler.ledger
    whole, booked = state.form == WHOLE_STATE, {one.pod.uid for one in state.booked}
    ledger.lay_out(state.rows)
    for node in state.lost:
        ledger.close_node(node)
    for event in checkpoint.facts:
        if isinstance(event, PodObserved) and event.running.pod.uid in booked:
            continue
        if not (whole and isinstance(event, SignalsMeasured)):
            scheduler.handle(event)
    for one in (*state.held, *state.booked):
        status = RESERVED if one.reserved else ALLOCATED
        ledger.book_observed(one.pod, one.node, one.shares, one.assumed, status)
    for name in state.gone:
        scheduler.handle(NodeGone(state.at, name))
    if not whole:
        for one in state.held:
            if not one.reserved:
                scheduler.handle(PodBound(state.at, one.pod.uid))
    else:
        _take_in_rows(scheduler, state)
        scheduler.wake.long = {*state.compiled}
        scheduler.related.volumes.restore(state.volumes)
        scheduler.placer.queues.restore(state.past_use)
    for promise in state.promised:
        scheduler.nominated.promise(promise.pod, promise.node, promise.shares)
    if state.expected is not None:
        scheduler.outlook.restore(state.expected)
    scheduler.claims.restore(state)
    scheduler.note_time(state.at)
    for group in state.waiting:
        scheduler.wait(group)


def _take_in_rows(scheduler: Scheduler, state: EngineState) -> None:
    """What is kept of single nodes: guesses, cards that they do not register, measured load."""
    ledger, row_of = scheduler.ledger, scheduler.ledger.row_of
    squeezed, early = ([row_of[name] for name in names] for names in (state.squeezed, state.early))
    scheduler.observed.restore(state.records, squeezed, early)
    for name, devices in state.ghosts:
        ledger.places.know_ghosts(row_of[name], devices)
        ledger.rewrite(row_of[name])
    for one in state.measured:
        row = row_of[one.node]
        ledger.places.signals.restore(row, Measured(one.signals, one.expected), ledger.places.columns(row))
