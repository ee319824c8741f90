"""What a driver asks of a scheduler, as values: every input of the engine, in order, so that a run can be re-executed.

`Handled` is by far the most frequent one. The others are the engine's remaining doors for drivers. Outcomes are the
effects without the pods: two runs agree if their outcomes are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from dovetail.model.checkpoint import Checkpoint
from dovetail.model.decision import Share
from dovetail.model.events import Bind, Effect, Event, Evict, Move, Resize, Wait, Warn
from dovetail.model.node import Node
from dovetail.model.pod import Group, Profile, RunningPod
from dovetail.model.volumes import VolumeChoice


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the engine. Policies are named, so that another version can be asked with the same ones."""

    arguments: Mapping[str, Mapping[str, Any]] = {}  # policy name -> its arguments
    device_resources: tuple[str, ...] = ()
    queue: str = "backfill"  # the discipline
    order: str = "priority"
    yielding: str = ""  # "" = no running pod is stopped for another one
    schedulers: tuple[str, ...] | None = None  # only their pods are stopped; None = all
    minimum_run: float = 0.0
    keep_after: float | None = None
    half_life: float = 0.0  # seconds, of what queues have used
    deferred: bool = False  # waiting pods are tried again in portions, as the live scheduler does


class Handled(msgspec.Struct, frozen=True):
    """`Scheduler.handle`."""

    event: Event


class Retried(msgspec.Struct, frozen=True):
    """`Scheduler.retry_some`."""

    at: float
    pods: int


class SearchedAgain(msgspec.Struct, frozen=True):
    """`Scheduler.search_again`."""

    at: float


class AllRetried(msgspec.Struct, frozen=True):
    """`Scheduler.retry_all`."""

    at: float


class Compiled(msgspec.Struct, frozen=True):
    """`Scheduler.use_compiled`: the profile's kernel is compiled from now on, so more requests are checked at once."""

    profile: Profile


class Withdrawn(msgspec.Struct, frozen=True):
    """`Scheduler.withdraw`."""

    group: Group


class Offered(msgspec.Struct, frozen=True):
    """`RecordedScheduler.would_place`: a group was tried, and the trial was undone. Another scheduler places it."""

    at: float
    group: Group


class Rebuilt(msgspec.Struct, frozen=True):
    """`Scheduler.rebuild`, after an audit found the ledger wrong."""

    nodes: tuple[Node, ...]
    running: tuple[RunningPod, ...]
    reserved: tuple[RunningPod, ...]


class JournalGap(msgspec.Struct, frozen=True):
    """Inputs are missing here, or the engine failed: nothing is compared until the next checkpoint."""

    at: float
    reason: str
    lost: int = 0  # entries that were not written


Call = (
    Handled | Retried | SearchedAgain | AllRetried | Compiled | Withdrawn | Offered | Rebuilt | JournalGap | Checkpoint
)


class PlacedPod(NamedTuple):
    """Of `Bind`."""

    uid: str
    node: str
    shares: tuple[Share, ...]
    volumes: tuple[VolumeChoice, ...] = ()


class KeptWaiting(NamedTuple):
    """Of `Wait`."""

    uid: str
    reason: int
    nominated: str = ""


class Said(NamedTuple):
    """Of `Warn`."""

    subject: str
    message: str


class Stopped(NamedTuple):
    """Of `Evict`."""

    uid: str
    node: str
    by: str
    breaks_budget: bool = False


class Shifted(NamedTuple):
    """Of `Move`."""

    uid: str
    node: str
    shares: tuple[Share, ...]


class Resized(NamedTuple):
    """Of `Resize`."""

    group: str
    pods: int


Outcome = PlacedPod | KeptWaiting | Said | Stopped | Shifted | Resized


def outcome_of(effect: Effect) -> Outcome:
    """The effect without its pods and texts that follow from them."""
    match effect:
        case Bind(pod, decision, volumes):
            return PlacedPod(pod.uid, str(decision.node), tuple(decision.shares), tuple(volumes))
        case Wait(pod, decision, nominated):
            return KeptWaiting(pod.uid, int(decision.reason), nominated)
        case Warn(subject, message):
            return Said(subject, message)
        case Evict():
            return Stopped(effect.pod.uid, effect.node, effect.by, effect.breaks_budget)
        case Move(pod, decision):
            return Shifted(pod.uid, str(decision.node), tuple(decision.shares))
        case Resize(group, pods):
            return Resized(group, pods)
