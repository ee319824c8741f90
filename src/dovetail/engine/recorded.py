"""A scheduler whose inputs are handed to a recorder, with what came of each; and its state as a value.

The recorder gets references to frozen values, so it may write them down later and in another thread. A run is repeated
by calling the same doors with the same values (whatif/rerun.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from dovetail.engine.checkpoints import begin_again, checkpoint_of, take_in
from dovetail.engine.claims import Rights
from dovetail.engine.facts import Facts
from dovetail.engine.scheduler import Scheduler
from dovetail.model.calls import (
    AllRetried,
    Call,
    Compiled,
    EngineSettings,
    Handled,
    JournalGap,
    Rebuilt,
    Retried,
    SearchedAgain,
    Withdrawn,
)
from dovetail.model.checkpoint import Checkpoint
from dovetail.model.events import Bind, Effect, Event, Wait
from dovetail.model.node import Node
from dovetail.model.pod import Group, Profile, RunningPod
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
        self._calls, self._clock = 0, 0.0  # since the last checkpoint: the number of calls, and the sum of their times
        self.wake.long = set()
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
        self._note(Handled(event), effects, event.at)
        return effects

    def retry_some(self, at: float, pods: int) -> list[Effect]:
        with self._one_call(at):
            effects = super().retry_some(at, pods)
        self._note(Retried(at, pods), effects, at)
        return effects

    def search_again(self, at: float) -> tuple[Effect, ...]:
        if not (self.claims.helpless.names or self.claims.helpless.has_postponed):
            return ()
        with self._one_call(at):
            effects = super().search_again(at)
        self._note(SearchedAgain(at), effects, at)
        return effects

    def retry_all(self, at: float) -> tuple[Effect, ...]:
        if self._inside:
            return super().retry_all(at)
        with self._one_call(at):
            effects = super().retry_all(at)
        self._note(AllRetried(at), effects, at)
        return effects

    def withdraw(self, group: Group) -> None:
        if group.name not in self.waiting and not any(self.waiting.name_of(pod.uid) for pod in group.pods):
            return
        with self._one_call(0.0):
            super().withdraw(group)
        self._note(Withdrawn(group), ())

    def rebuild(self, nodes: Sequence[Node], running: Sequence[RunningPod], reserved: Sequence[RunningPod]) -> None:
        with self._one_call(0.0):
            super().rebuild(nodes, running, reserved)
        if self.facts is not None:
            self.facts.begin_again(0.0, tuple(nodes), tuple(running))
        self._note(Rebuilt(tuple(nodes), tuple(running), tuple(reserved)), ())

    def use_compiled(self, profile: Profile) -> None:
        """See Placer.use_compiled. A repetition may go on interpreted: it notes only how long its lists are."""
        super().use_compiled(profile)
        self.note_compiled(profile)

    def note_compiled(self, profile: Profile) -> None:
        """Make long lists of waiting requests with these policies (engine/wake.py)."""
        assert self.wake.long is not None
        if (profile.node, profile.device) not in self.wake.long:
            self.wake.long.add((profile.node, profile.device))
            self._note(Compiled(profile), ())

    def would_place(self, at: float, group: Group) -> list[Effect]:
        """What would come of the group if it arrived now. Nothing changes, and no call is recorded."""
        with self._one_call(at), self.trial():
            group = self.members.current(group)
            decided = list(zip(group.pods, self.place((group,)), strict=True))
        return [Bind(pod, one) if one.placed else Wait(pod, one) for pod, one in decided]

    def _note(self, call: Call, effects: Sequence[Effect], at: float = 0.0) -> None:
        self._calls += 1
        self._clock += at
        self.keep(call, effects)

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
        """The state as facts. Afterwards this engine, too, has forgotten what facts do not tell (`begin_again`)."""
        assert self.facts is not None, "checkpoint without record"
        at = max(at, self.claims.service.now)
        begin_again(self, at)
        facts, state = checkpoint_of(self, self.facts, at)
        state = msgspec.structs.replace(state, calls=self._calls, clock=self._clock)
        self._calls, self._clock = 0, 0.0
        self._offer_all(at)
        return Checkpoint(facts, state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take in the state. The engine must be empty."""
        at = checkpoint.state.at
        with self._one_call(at):
            take_in(self, checkpoint)
            begin_again(self, at)
            self._offer_all(at)

    def _offer_all(self, at: float) -> None:
        """Try all waiting groups again: which retries were due is forgotten."""
        if self.retries.deferred:
            self.offer(at, self.waiting.requests())


def _nothing(call: Call, effects: Sequence[Effect]) -> None:
    """Keep nothing."""
