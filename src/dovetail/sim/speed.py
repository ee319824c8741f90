"""Speed models: how fast a job works, given its place and its neighbours. Only the simulator uses them.

A speed is work per second. Work is counted in seconds at speed 1, which is how a trace gives a job's duration. A model
is a row of SPEED_MODELS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dovetail.model.decision import Decision, Share
from dovetail.model.units import WHOLE_CARD
from dovetail.sim.trace import Job, TraceError


class PlacedJob(NamedTuple):
    """A running job, and where its pods are."""

    job: Job
    places: Sequence[Decision]


class Speed(Protocol):
    """A pure function: the same arguments give the same speed."""

    def __call__(self, job: Job, places: Sequence[Decision], neighbours: Sequence[PlacedJob]) -> float:
        """Work per second, 0 or more.

        `places` has one decision for each pod that runs now. `neighbours` are the other jobs that hold a part of one of
        the job's cards now, each once.
        """
        ...


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """A row of the table. If `reads_neighbours` is false, neighbours are not looked up and () is passed."""

    name: str
    sentence: str  # for users
    speed: Speed
    reads_neighbours: bool = False


def part_that_runs(job: Job, places: Sequence[Decision]) -> float:
    """The fraction of the job's pods that run: 1.0 unless the job was resized."""
    return len(places) / job.pods


def _same_everywhere(job: Job, places: Sequence[Decision], neighbours: Sequence[PlacedJob]) -> float:
    return part_that_runs(job, places)


def _by_sharing(job: Job, places: Sequence[Decision], neighbours: Sequence[PlacedJob]) -> float:
    """A pod that claims compute of a card has it; pods without a claim divide the rest of the card evenly.

    This is AntMan's division (Xiao et al., OSDI 2020): a job with a guarantee runs as if it were alone, and an
    opportunistic job uses the spare cycles. If claims exceed a card, each is served in proportion. The pods of a job
    work in step, so its slowest card sets its speed.
    """
    everyone = [*places, *(decision for neighbour in neighbours for decision in neighbour.places)]
    claimed: Counter[str] = Counter()  # card -> milli
    without_claim: Counter[str] = Counter()  # card -> pods
    for decision in everyone:
        for share in decision.shares:
            claimed[share.uuid] += share.compute_milli
            without_claim[share.uuid] += not share.compute_milli

    def served(share: Share) -> float:
        if share.compute_milli:
            return min(1.0, WHOLE_CARD / claimed[share.uuid])
        return max(0, WHOLE_CARD - claimed[share.uuid]) / WHOLE_CARD / without_claim[share.uuid]

    slowest = min((served(share) for decision in places for share in decision.shares), default=1.0)
    return slowest * part_that_runs(job, places)


NO_MODEL = SpeedModel("none", "a job is as fast everywhere and beside every job", _same_everywhere)
SHARING = SpeedModel(
    "sharing",
    "pods without a claim on compute divide what the others on their card leave",
    _by_sharing,
    reads_neighbours=True,
)
SPEED_MODELS = {model.name: model for model in (NO_MODEL, SHARING)}


def speed_model(name: str) -> SpeedModel:
    if name not in SPEED_MODELS:
        raise TraceError(f"speed model {name!r}: there is {' and '.join(SPEED_MODELS)}")
    return SPEED_MODELS[name]
