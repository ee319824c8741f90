"""A gang of half the cluster under steady small work: it starts in bounded time if places are kept for it."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.engine.scheduler import Rights
from dovetail.sim.timeline import LogEntry, replay
from dovetail.sim.trace import Job, Machine, Trace

MACHINES, GPUS = 8, 8
SHORTEST, LONGEST = 300.0, 900.0  # seconds that a small job runs, 600 on average
LOAD = 0.95
HOURS = 6
GANG_ARRIVES = 3600.0
KEPT_AFTER = 600.0  # keepPlacesAfterSeconds
LOOK = 10.0  # seconds; the next arrival or end after the wait is over


def small_jobs(chance: Random) -> list[Job]:
    """One GPU each, in a Poisson stream: 0.95 × 64 GPUs / 600 s = 0.101 jobs a second."""
    rate = LOAD * MACHINES * GPUS / ((SHORTEST + LONGEST) / 2)
    found: list[Job] = []
    at = 0.0
    while at < HOURS * 3600:
        at += chance.expovariate(rate)
        length = chance.uniform(SHORTEST, LONGEST)
        found.append(Job(f"small{len(found)}", 1000, 1024, 1, 1000, arrival=at, duration=length))
    return found


def waited(seed: int, rights: Rights) -> float | None:
    """Seconds from the gang's arrival to its start; None = it did not start while small jobs came."""
    gang = Job("gang", 8000, 8192, GPUS, 1000, arrival=GANG_ARRIVES, duration=600.0, pods=MACHINES // 2)
    jobs = sorted([*small_jobs(Random(seed)), gang], key=lambda job: job.arrival)
    machines = tuple(Machine(f"m{n}", 96_000, 524_288, GPUS, "A100", 81_920) for n in range(MACHINES))
    log: list[LogEntry] = []
    replay(Trace("steady", machines, tuple(jobs)), "binpack", mode="interpreted", log=log, rights=rights)
    starts = [entry.at for entry in log if entry.job == "gang" and entry.what == "start"]
    assert len(starts) == MACHINES // 2
    assert len(set(starts)) == 1  # whole
    return starts[0] - GANG_ARRIVES if starts[0] < HOURS * 3600 else None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_with_kept_places_it_starts_within_the_wait_and_the_longest_job(seed: int) -> None:
    """Its places empty when the jobs there end: at most 900 s after 600 s of waiting."""
    found = waited(seed, Rights(keep_after=KEPT_AFTER))
    print(f"seed {seed}: the gang of half the cluster started after {found:.0f} s")
    assert found is not None
    assert found <= KEPT_AFTER + LONGEST + LOOK


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_without_them_it_does_not_start_in_five_hours(seed: int) -> None:
    assert waited(seed, Rights()) is None
