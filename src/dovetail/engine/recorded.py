"""A scheduler whose inputs are handed to a recorder, with what came of each; and its state as a value.

The recorder gets references to frozen values, so it may write them down later and in another thread. A run is repeated
by calling the same doors with the same values (whatif/rerun.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from dovetail.engine.claims import Rights
from dovetail.engine.facts import Facts
from dovetail.engine.kernel.state import RESERVED
from dovetail.engine.scheduler import Scheduler
from dovetail.model.calls import (
    AllRetried,
    Call,
    Checkpoint,
    EngineSettings,
    EngineState,
    Handled,
    JournalGap,
    OwnPlace,
    Promised,
    Rebuilt,
    Retried,
    SearchedAgain,
    Withdrawn,
)
from dovetail.model.events import Bind, Effect, Event, NodeGone, PodBound, Wait
from dovetail.model.node import Node
from dovetail.model.pod import Group, RunningPod
from dovetail.policies.orders import ORDERS
from dovetail.policies.yielding import YIELDING


class Keep(Protocol):
    """Called after each call, with the effects that it returned."""

    def __call__(self, call: Call, effects: Sequence[Effect]) -> None: ...


def rights_from(settings: EngineSettings) -> Rights:
    """The rights that the settings name. Raises ValueError for a name that does not exist."""
    if settings.order not in ORDERS:
        raise ValueError(f"order {settings.order!r}: there is {', '.join(ORDERS)}")
    if settings.yielding and settings.yielding not in YIELDING:
        raise ValueError(f"yielding {settings.yielding!r}: there is {', '.join(YIELDING)}")
    return Rights(
        queue=settings.queue,
        order=ORDERS[settings.order],
        yielding=YIELDING[settings.yielding] if settings.yielding else None,
        schedulers=None if settings.schedulers is None else frozenset(settings.schedulers),
        minimum_run=settings.minimum_run,
        keep_after=settings.keep_after,
    )


def settings_from(rights: Rights, **more: Any) -> EngineSettings:
    """The settings that name these rights."""
    return EngineSettings(
        queue=rights.queue,
        order=rights.order.name,
        yielding=rights.yielding.name if rights.yielding is not None else "",
        schedulers=None if rights.schedulers is None else tuple(sorted(rights.schedulers)),
        minimum_run=rights.minimum_run,
        keep_after=rights.keep_after,
        **more,
    )


class RecordedScheduler(Scheduler):
    def __init__(self, settings: EngineSettings, mode: str = "interpreted", cache: bool = False) -> None:
        resources = settings.device_resources
        super().__init__(settings.arguments, (), mode, resources, cache, rights_from(settings))
        self.settings = settings
        self.keep: Keep = _nothing
        self.facts: Facts | None = None  # set by `record`
        self._inside = False
        self.placer.queues.half_life = settings.half_life
        self.retries.deferred = self.claims.helpless.limited = settings.deferred

    def record(self, keep: Keep) -> None:
        """Hand all calls to `keep` from now on. Nothing has happened before."""
        self.keep, self.facts = keep, Facts()

    # ---- the doors for drivers ----------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Effect, ...]:
        if self._inside or self.facts is None:
            return super().handle(event)
        self.facts.note(event)
        with self._one_call(event.at):
            effects = super().handle(event)
        self.keep(Handled(event), effects)
        return effects

    def retry_some(self, at: float, pods: int) -> list[Effect]:
        with self._one_call(at):
            effects = super().retry_some(at, pods)
        self.keep(Retried(at, pods), effects)
        return effects

    def search_again(self, at: float) -> tuple[Effect, ...]:
        if not (self.claims.helpless.names or self.claims.helpless.has_postponed):
            return ()
        with self._one_call(at):
            effects = super().search_again(at)
        self.keep(SearchedAgain(at), effects)
        return effects

    def retry_all(self, at: float) -> tuple[Effect, ...]:
        if self._inside:
            return super().retry_all(at)
        with self._one_call(at):
            effects = super().retry_all(at)
        self.keep(AllRetried(at), effects)
        return effects

    def withdraw(self, group: Group) -> None:
        if group.name not in self.waiting and not any(self.waiting.name_of(pod.uid) for pod in group.pods):
            return
        with self._one_call(0.0):
            super().withdraw(group)
        self.keep(Withdrawn(group), ())

    def rebuild(self, nodes: Sequence[Node], running: Sequence[RunningPod], reserved: Sequence[RunningPod]) -> None:
        with self._one_call(0.0):
            super().rebuild(nodes, running, reserved)
        if self.facts is not None:
            self.facts.begin_again(0.0, tuple(nodes), tuple(running))
        self.keep(Rebuilt(tuple(nodes), tuple(running), tuple(reserved)), ())

    def would_place(self, at: float, group: Group) -> list[Effect]:
        """What would come of the group if it arrived now. Nothing changes, and no call is recorded."""
        with self._one_call(at), self.trial():
            group = self.members.current(group)
            decided = list(zip(group.pods, self.place((group,)), strict=True))
        return [Bind(pod, one) if one.placed else Wait(pod, one) for pod, one in decided]

    @contextmanager
    def _one_call(self, at: float) -> Iterator[None]:
        """The calls inside are the engine's own. After an exception the state is not what the calls would give."""
        self._inside = True
        try:
            yield
        except Exception as error:
            self.keep(JournalGap(at, f"the engine failed: {type(error).__name__}"), ())
            raise
        finally:
            self._inside = False

    # ---- the state as a value -----------------------------------------------------------------------------------

    def checkpoint(self, at: float) -> Checkpoint:
        """The state as facts. Afterwards this engine, too, has forgotten what facts do not tell (`_begin_again`)."""
        assert self.facts is not None, "checkpoint without record"
        ledger, claims = self.ledger, self.claims
        events, gone = self.facts.all(at, ledger)
        own = [uid for uid in ledger.pods if ledger.is_reserved(uid) or not self.facts.observed(uid)]
        state = EngineState(
            at=max(at, claims.service.now),
            held=tuple(
                OwnPlace(ledger.pods.pod(uid), ledger.node_of(uid), ledger.held_shares(uid), ledger.is_reserved(uid))
                for uid in own
            ),
            gone=tuple(gone),
            promised=tuple(Promised(one.pod, one.node, one.shares) for one in self.nominated.promised.values()),
            waiting=tuple(self.waiting),
            times=claims.times(),
            spared=claims.spared(),
            helpless=tuple(name for name in claims.helpless.names if name in self.waiting),
            expected=self.outlook.expected(),
            inexact=self.inexact,
        )
        self._begin_again(state)
        return Checkpoint(tuple(events), state)

    @property
    def inexact(self) -> str:
        """What facts would not tell of the state now; "" = nothing."""
        if self.claims.under_way:
            return f"{self.claims.under_way} was under way"
        if self.placer.queues.half_life and self.placer.queues.active:
            return "what queues have used in the past was not known"
        return "the time that jobs have had was not known" if self.claims.service.attends else ""

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take in the state. The engine must be empty."""
        with self._one_call(checkpoint.state.at):
            for event in checkpoint.facts:
                super().handle(event)
            self._take_in(checkpoint.state)
            self._begin_again(checkpoint.state)

    def _take_in(self, state: EngineState) -> None:
        at = state.at
        for one in state.held:
            self.ledger.book_observed(one.pod, one.node, one.shares, assumed=False, status=RESERVED)
            if one.pod.relations.claims and one.reserved:
                self.related.volumes.take(one.pod, one.node)
            if not one.reserved:
                super().handle(PodBound(at, one.pod.uid))
        for name in state.gone:
            super().handle(NodeGone(at, name))
        for promise in state.promised:
            self.nominated.promise(promise.pod, promise.node, promise.shares)
        if state.expected is not None:
            self.outlook.restore(state.expected)
        for group in state.waiting:
            self.wait(group)
        self.claims.restore(state.times, state.spared)

    def _begin_again(self, state: EngineState) -> None:
        """Forget which searches have failed and which retries are due: all waiting groups are tried again."""
        at = state.at
        if not self.claims.plain:
            self.note_time(at)
        self.news.take()
        self.wake.forget()
        self.claims.begin_again(state.helpless)
        self.retries.begin_again()
        if self.retries.deferred:
            self.offer(at, self.waiting.requests())


def _nothing(call: Call, effects: Sequence[Effect]) -> None:
    """Keep nothing."""
