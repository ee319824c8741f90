"""Counts over all known pods, in short portions: other tasks of the scheduler run in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from dovetail.kube.live.known import Known, Stand
from dovetail.model.reason import POD_LEVEL_REASONS, name

PORTION_OF_PODS = 2_000  # counted in one go: about a millisecond
GATED = "SchedulingGated"
QUEUED = "Queued"  # no condition is written yet
OTHER_REASON = "Other"  # written by another client
SHOWN_REASONS = frozenset(
    (
        *(
            "Unschedulable",
            GATED,
            "BackedOff",
            "PoliciesNotCompiled",
            "VolumesNotBound",
            "BindingRefused",
            "NodeLocked",
        ),
        *map(name, POD_LEVEL_REASONS),
    )
)
STARTING, TERMINATING = ("starting",), ("terminating",)


@dataclass(slots=True)
class PodNumbers:
    waiting: Counter[tuple[str, ...]] = field(default_factory=Counter)  # by the condition's reason
    oldest: float = 0.0  # creation of the oldest waiting pod, seconds since the epoch; 0 = none waits
    idle_pods: Counter[tuple[str, ...]] = field(default_factory=lambda: Counter({STARTING: 0, TERMINATING: 0}))
    idle_gpus: Counter[tuple[str, ...]] = field(default_factory=lambda: Counter({STARTING: 0, TERMINATING: 0}))
    gangs: set[str] = field(default_factory=set)  # with members that wait
    unverified: int = 0  # pods whose record fails its check

    def count(self, known: Known, placed: Collection[str]) -> None:
        """Count one pod. `placed`: uids of pods that have been given a node and are being bound."""
        if known.stand is Stand.WAITS:
            if known.pod.uid not in placed:
                self._count_waiting(known)
        elif known.held is not None:
            self.unverified += known.unverified
            if known.pod.wants_devices and (known.ends or not known.runs):
                state = TERMINATING if known.ends else STARTING
                self.idle_pods[state] += 1
                self.idle_gpus[state] += _gpus(known)

    def _count_waiting(self, known: Known) -> None:
        reason = known.condition[0] or QUEUED
        self.waiting[(reason if reason in SHOWN_REASONS or reason == QUEUED else OTHER_REASON,)] += 1
        created = known.pod.created
        if known.pod.group:
            self.gangs.add(known.pod.group)
        if reason != GATED and created and (not self.oldest or created < self.oldest):
            self.oldest = created


async def count_pods(pods: Collection[Known], placed: Collection[str]) -> PodNumbers:
    """The counts. Pods that come or go meanwhile may be counted or not."""
    census, everyone = PodNumbers(), list(pods)
    for start in range(0, len(everyone), PORTION_OF_PODS):
        for known in everyone[start : start + PORTION_OF_PODS]:
            census.count(known, placed)
        await asyncio.sleep(0)
    return census


def _gpus(known: Known) -> int:
    """The GPUs that the pod holds; those that it asks for, where they are not recorded."""
    running = known.running
    if running is not None and running.shares is not None:
        return len({share.uuid for share in running.shares})
    return sum(ask.count for container in known.pod.containers for ask in container.asks)
