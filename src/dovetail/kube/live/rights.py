"""The rights that the live scheduler gives its engine: who may be stopped for whom."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dovetail.engine.scheduler import DEFAULT_RIGHTS, Rights, Scheduler
from dovetail.kube.conversion.settings import Settings
from dovetail.model.events import QueueChanged
from dovetail.policies.yielding import YIELD_BY_PRIORITY


@dataclass(frozen=True, slots=True)
class PreemptionOptions:
    """Settings of the configuration file."""

    enabled: bool = True
    other_schedulers: bool = False  # also pods that other schedulers placed
    minimum_run_seconds: float = 0.0  # a pod that started later is not stopped
    keep_places_after_seconds: float | None = None  # for the first group of the queue; None = never


PREEMPTION = PreemptionOptions()


def add_queues(scheduler: Scheduler, settings: Settings, now: float) -> None:
    """Tell the scheduler the queues of the configuration. Those of objects come with the watches."""
    scheduler.placer.queues.half_life = settings.queue_half_life
    for queue in settings.queues:
        scheduler.handle(QueueChanged(now, queue.name, queue))


def live_rights(options: PreemptionOptions, schedulers: Collection[str]) -> Rights:
    """The rights by the configuration. `schedulers`: names of the schedulers whose pods we place."""
    if not options.enabled:
        return DEFAULT_RIGHTS
    return Rights(
        yielding=YIELD_BY_PRIORITY,
        schedulers=None if options.other_schedulers else frozenset(schedulers),
        minimum_run=options.minimum_run_seconds,
        keep_after=options.keep_places_after_seconds,
    )
