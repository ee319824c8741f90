"""An engine as values: the latest event about each object, and what the engine has made of its events.

Everything that a decision depends on is in one of the two. Caches are not: they follow from it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dovetail.model.decision import Decision, Share
from dovetail.model.device import Device
from dovetail.model.events import Event
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, Trust
from dovetail.model.signals import NodeSignals
from dovetail.model.volumes import ClaimRef, VolumeChoice

WHOLE_STATE = 1  # `EngineState.form` of a state that has everything


class OwnPlace(msgspec.Struct, frozen=True):
    """What a pod holds in the ledger."""

    pod: Pod
    node: str
    shares: tuple[Share, ...]
    reserved: bool  # False = bound
    assumed: bool = False  # the cards are a guess


class PodRecord(msgspec.Struct, frozen=True):
    """What the record of a pod says of its cards, if the pod has one, and how far it is trusted."""

    uid: str
    shares: tuple[Share, ...] | None
    trust: Trust


class Promised(msgspec.Struct, frozen=True):
    """A node that is kept for a waiting pod."""

    pod: Pod
    node: str
    shares: tuple[Share, ...] | None


class Expected(msgspec.Struct, frozen=True):
    """What joint policies have learned of the workload: pods that stand for their shape, with how often it came."""

    times: tuple[tuple[Pod, int], ...]
    basis: tuple[tuple[Pod, int], ...]
    until_next: int


class Measurement(msgspec.Struct, frozen=True):
    """A node's last measurement, and what its pods were expected to use at it and before: (at, amounts), by time."""

    node: str
    signals: NodeSignals
    expected: tuple[tuple[float, tuple[int, int, int]], ...]


class VolumePromise(NamedTuple):
    """A volume promised to a claim. Pods that share a claim make the same promise several times."""

    claim: ClaimRef
    node: str
    times: int = 1


class VolumePromises(msgspec.Struct, frozen=True):
    """What is kept for claims that are not bound yet."""

    chosen: tuple[tuple[str, tuple[VolumeChoice, ...]], ...] = ()  # pod's UID, what was promised to it
    given: tuple[tuple[str, VolumePromise], ...] = ()  # volume, the claim that gets it
    made: tuple[tuple[str, VolumePromise], ...] = ()  # claim, for which a volume is created


class StandingPlan(msgspec.Struct, frozen=True):
    """A preemption under way: the places of a group once these pods have ended."""

    group: str
    decisions: tuple[Decision, ...]
    victims: tuple[str, ...]  # UIDs


class ToldToStop(msgspec.Struct, frozen=True):
    """A pod that was told to stop and has not ended."""

    uid: str
    job: str
    may_stop: bool  # whether searches for pods to stop look at it


class JobTime(msgspec.Struct, frozen=True):
    """The GPU time of a job."""

    job: str
    service: float
    since: float
    gpus: float
    pods: int
    stops: int


class ServiceState(msgspec.Struct, frozen=True):
    """What orders by GPU time read."""

    jobs: tuple[JobTime, ...] = ()
    failed: tuple[tuple[str, float], ...] = ()  # waiting group, when it last found no place; the oldest first
    stopped: tuple[str, ...] = ()  # jobs that hold nothing because they were stopped, the oldest first


class PastUse(msgspec.Struct, frozen=True):
    """What queues have used in the past."""

    until: float | None = None  # the time up to which it is counted
    parts: tuple[tuple[str, str, float], ...] = ()  # queue, resource, part of the cluster


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine has made of its events, as far as the latest event about each object does not tell it."""

    at: float
    form: int = 0  # 0 = by an earlier version: of the fields below `inexact`, none was written
    held: tuple[OwnPlace, ...] = ()  # by pods that no event has shown on their node yet
    gone: tuple[str, ...] = ()  # written by earlier versions, instead of `lost`: gone nodes among those of the facts
    promised: tuple[Promised, ...] = ()
    waiting: tuple[Group, ...] = ()
    times: tuple[tuple[str, float, float], ...] = ()  # UID, when it was placed, when it started
    spared: tuple[tuple[str, float], ...] = ()  # UID of a pod whose eviction was refused, and until when
    helpless: tuple[str, ...] = ()  # waiting groups that no eviction would help
    expected: Expected | None = None
    inexact: str = ""  # what an earlier version could not tell; "" = nothing
    calls: int = 0  # since the checkpoint before, without those of trials
    clock: float = 0.0  # the sum of the times of these calls: a repetition with a wrong time is noticed
    rows: tuple[str, ...] = ()  # the nodes by row, with nodes that are gone and those that only pods name
    lost: tuple[Node, ...] = ()  # nodes that are gone, as they were: pods may still be there, or be seen there
    booked: tuple[OwnPlace, ...] = ()  # by pods that hold something else than their latest event says
    records: tuple[PodRecord, ...] = ()  # of pods in `held` and `booked`, and of those whose event says otherwise
    squeezed: tuple[str, ...] = ()  # nodes where guesses are made again when room appears
    early: tuple[str, ...] = ()  # nodes with records that were booked before the node was known
    ghosts: tuple[tuple[str, tuple[Device, ...]], ...] = ()  # node, cards that pods hold and the node does not have
    measured: tuple[Measurement, ...] = ()
    volumes: VolumePromises = VolumePromises()
    plans: tuple[StandingPlan, ...] = ()
    stopping: tuple[ToldToStop, ...] = ()
    kept_for: str = ""  # the group for which places are kept until pods have ended
    kept: tuple[str, ...] = ()  # UIDs of its pods that were promised a place
    service: ServiceState | None = None  # None = no policy reads it
    past_use: PastUse = PastUse()
    compiled: tuple[tuple[str, tuple[str, ...]], ...] = ()  # node and GPU policies whose kernel is compiled


class Checkpoint(msgspec.Struct, frozen=True):
    """An engine as values: an empty engine that takes them in decides as the one that they come from."""

    facts: tuple[Event, ...]  # the latest event about each object
    state: EngineState
