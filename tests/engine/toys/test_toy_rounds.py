"""A toy round allocator: jobs take turns. A value that is given to the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.events import Bind, Evict, GroupArrived, NodeChanged, PodBound, PodsGone, RoundBegins
from dovetail.model.pod import Group
from dovetail.policies.rounds import Round, Standing
from tests.builders import ask, node, pod


def least_served(jobs: Sequence[Standing], gpus: float) -> list[str]:
    chosen = []
    for standing in sorted(jobs, key=lambda one: (one.facts.service, one.facts.arrival, one.job)):
        if standing.asks <= gpus:
            gpus -= standing.asks
            chosen.append(standing.job)
    return chosen


def test_three_jobs_take_turns_on_two_gpus() -> None:
    scheduler = Scheduler(rights=Rights(rounds=Round("turns", "Least GPU time first.", least_served)))
    scheduler.handle(NodeChanged(0.0, node("n", gpus=2)))
    jobs = {}
    for n, name in enumerate("abc"):
        one = pod(name, ask(1, cores=100), created=float(n))
        jobs[one.uid] = Group(one.key, (one,))

    def perform(event: RoundBegins | GroupArrived | PodsGone) -> None:
        """Pods that are told to stop end at once, and come back: as in the simulator."""
        effects = scheduler.handle(event)
        stopped = tuple(effect.pod.uid for effect in effects if isinstance(effect, Evict))
        for effect in effects:
            if isinstance(effect, Bind):
                scheduler.handle(PodBound(event.at, effect.pod.uid))
        if stopped:
            perform(PodsGone(event.at, stopped))
            for uid in stopped:
                perform(GroupArrived(event.at, jobs[uid]))

    def running() -> str:
        return "".join(sorted(uid.removeprefix("uid-") for uid in scheduler.ledger.pods))

    for group in jobs.values():
        perform(GroupArrived(0.0, group))
    seen = []
    for n in range(6):
        perform(RoundBegins(10.0 * n))
        seen.append(running())
    assert seen == ["ab", "ac", "bc", "ab", "ac", "bc"]  # GPU-seconds 0/0/0, 10/10/0, 20/10/10, 20/20/20, 30/30/20, …
    assert [scheduler.claims.service.of(group).service for group in jobs.values()] == [40.0, 30.0, 30.0]  # until 50 s
