"""Compares what happened with a hypothesis: pods elsewhere, waits, GPU-hours. Pure: events in, a report out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dovetail.model.calls import EngineSettings
from dovetail.whatif.hypothesis import (
    MAX_MOMENTS,
    Change,
    Happening,
    Hypothesis,
    MeasuredLedger,
    Moment,
    PodHistory,
    Reality,
    durations_of,
)

MAX_NAMED = 1_000  # pods that a report names


@dataclass(frozen=True, slots=True)
class WorldNumbers:
    """One side of the comparison."""

    placed: int
    never_placed: int
    stopped: int  # times that a pod was stopped for another one
    gpu_hours: float  # cards in use
    capacity_hours: float
    idle_while_wanted_hours: float
    whole_free: float  # GPUs, on average over time
    wait_mean: float  # seconds, of pods that ask for GPUs
    wait_median: float
    wait_p95: float


@dataclass(frozen=True, slots=True)
class PodInBoth:
    """A pod whose place or wait differs."""

    pod: str
    arrived: float
    real_node: str  # "" = it never got one
    other_node: str
    real_wait: float
    other_wait: float


@dataclass(frozen=True, slots=True)
class WorldsReport:
    begin: float
    end: float
    pods: int
    same_place: int  # the same node and the same GPUs
    other_gpus: int  # the same node, other GPUs
    elsewhere: int
    only_in_reality: int  # placed in reality, and waiting to the end in the hypothesis
    only_in_hypothesis: int
    earlier: int  # placed at least a second earlier in the hypothesis
    later: int
    reality: WorldNumbers
    hypothesis: WorldNumbers
    differing: tuple[PodInBoth, ...]  # at most MAX_NAMED, those with the largest difference in waiting first
    series: tuple[tuple[float, Moment, Moment], ...]  # time, reality, hypothesis


def compare_worlds(
    events: Callable[[], Iterable[Happening]], settings: EngineSettings, other: EngineSettings, change: Change
) -> WorldsReport | None:
    """The report, or None if nothing happened. `events` is called twice: durations must be known first."""
    reality = Reality(settings)
    for event in events():
        reality.take(event)
    if not reality.world.now:
        return None
    hypothesis = Hypothesis(other, durations_of(reality.world.lives), change)
    for event in events():
        hypothesis.take(event)
    hypothesis.end(reality.world.now)
    return report(reality.world, hypothesis.world)


def report(real: MeasuredLedger, other: MeasuredLedger) -> WorldsReport:
    end = real.now
    pairs = [(life, other.lives[uid]) for uid, life in real.lives.items() if uid in other.lives]
    both = [(one, two) for one, two in pairs if one.placed is not None and two.placed is not None]
    same_node = [(one, two) for one, two in both if one.node == two.node]
    same = [(one, two) for one, two in same_node if _cards(one) == _cards(two)]
    times = [two.wait(end) - one.wait(end) for one, two in pairs]
    differing = [_pod(one, two, end) for one, two in pairs if (one.node, _cards(one)) != (two.node, _cards(two))]
    differing.sort(key=lambda pod: (-abs(pod.real_wait - pod.other_wait), pod.arrived, pod.pod))
    return WorldsReport(
        begin=real.series[0][0] if real.series else end,
        end=end,
        pods=len(pairs),
        same_place=len(same),
        other_gpus=len(same_node) - len(same),
        elsewhere=len(both) - len(same_node),
        only_in_reality=sum(one.placed is not None and two.placed is None for one, two in pairs),
        only_in_hypothesis=sum(one.placed is None and two.placed is not None for one, two in pairs),
        earlier=sum(difference <= -1.0 for difference in times),
        later=sum(difference >= 1.0 for difference in times),
        reality=_numbers(real, end),
        hypothesis=_numbers(other, end),
        differing=tuple(differing[:MAX_NAMED]),
        series=tuple(_series(real, other)),
    )


def _cards(life: PodHistory) -> tuple[str, ...]:
    return tuple(sorted({share.uuid for share in life.shares}))


def _pod(one: PodHistory, two: PodHistory, end: float) -> PodInBoth:
    return PodInBoth(one.pod.key, one.arrived, one.node, two.node, one.wait(end), two.wait(end))


def _numbers(world: MeasuredLedger, end: float) -> WorldNumbers:
    sums, lives = world.sums, world.lives.values()
    waits = sorted(life.wait(end) for life in lives if life.gpus)
    placed = sum(life.placed is not None for life in lives)
    return WorldNumbers(
        placed=placed,
        never_placed=len(world.lives) - placed,
        stopped=sum(life.stops for life in lives),
        gpu_hours=sums.in_use / 3600,
        capacity_hours=sums.cards / 3600,
        idle_while_wanted_hours=sums.idle_while_wanted / 3600,
        whole_free=sums.whole_free / sums.seconds if sums.seconds else 0.0,
        wait_mean=sum(waits) / len(waits) if waits else 0.0,
        wait_median=waits[len(waits) // 2] if waits else 0.0,
        wait_p95=waits[min(len(waits) - 1, len(waits) * 95 // 100)] if waits else 0.0,
    )


def _series(real: MeasuredLedger, other: MeasuredLedger) -> Iterable[tuple[float, Moment, Moment]]:
    """Both series on the times of either, thinned out."""
    points = sorted([(at, 0, moment) for at, moment in real.series] + [(at, 1, moment) for at, moment in other.series])
    step = max(1, len(points) // MAX_MOMENTS)
    now: list[Moment | None] = [None, None]
    for number, (at, side, moment) in enumerate(points):
        now[side] = moment
        if now[0] is not None and now[1] is not None and (number % step == 0 or number == len(points) - 1):
            yield at, now[0], now[1]
