"""Binds a pod's volumes before the pod: writes the chosen volumes, then waits until they are bound.

This is kube-scheduler's BindPodVolumes (pkg/scheduler/framework/plugins/volumebinding). A free volume gets the claim's
reference, or the claim gets the node for which a volume is to be provisioned. The persistent volume controller and
provisioners do the rest. Nothing is undone after a failure: the pod's next attempt sees what was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from dovetail.kube.api.client import Json, Patch
from dovetail.kube.api.errors import ApiError, Conflict, NotFound
from dovetail.kube.api.retry import REAL, World, retrying
from dovetail.kube.conversion.volumes import BOUND_BY_CONTROLLER, SELECTED_NODE
from dovetail.kube.objects.volumes import PersistentVolume, PersistentVolumeClaim
from dovetail.model.volumes import Claim, Volume, VolumeChoice

TIMEOUT = 600.0  # seconds; kube-scheduler's bindTimeoutSeconds
WRITE_CHECK_PAUSE = 0.1  # seconds between two checks whether we may write


class Writer(Protocol):
    """The calls of the API server that are needed here."""

    async def get(self, path: str) -> Json: ...

    async def patch(self, path: str, body: object, kind: Patch = "merge") -> Json: ...


class HeldBack:
    """A writer that waits while another scheduler may hold the lease: writing later loses nothing."""

    def __init__(self, api: Writer, may_write: Callable[[], bool], world: World = REAL) -> None:
        self.get = api.get
        self._patch, self._may_write, self._world = api.patch, may_write, world

    async def patch(self, path: str, body: object, kind: Patch = "merge") -> Json:
        while not self._may_write():
            await self._world.sleep(WRITE_CHECK_PAUSE)
        return await self._patch(path, body, kind)


class Truth(Protocol):
    """The cluster as last reported."""

    def claim(self, key: str) -> Claim | None: ...

    def volume(self, name: str) -> Volume | None: ...

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """The node's labels; None = there is no such node."""

    def has_pod(self, uid: str) -> bool: ...

    async def changed(self) -> None:
        """Wait for the next change of any of these."""


class Why(StrEnum):
    """Why a pod's volumes could not be bound."""

    CHANGED = "changed"  # another client changed the volume or the claim after it was chosen
    TAKEN = "taken"  # the volume belongs to another claim
    RESET = "reset"  # the controller took the volume from the claim
    NOT_MADE = "not made"  # the provisioner removed the node from the claim: it could not provision a volume there
    ELSEWHERE = "elsewhere"  # the volume cannot be used on the node
    GONE = "gone"  # the claim, the volume, the node or the pod does not exist any more
    TIMEOUT = "timeout"
    API = "api"  # the API server refused, or does not answer


@dataclass(frozen=True, slots=True)
class NotBound:
    """Why the volumes are not bound. The pod must be placed again, with the facts known then."""

    why: Why
    message: str


@dataclass(frozen=True, slots=True)
class Task:
    """A pod that is being bound to a node, and what its claims need there."""

    pod_uid: str
    node: str
    choices: tuple[VolumeChoice, ...]


async def bind_volumes(task: Task, api: Writer, truth: Truth, timeout: float = TIMEOUT) -> NotBound | None:
    """Bind the volumes; None once every claim is bound, so that the pod may be bound."""
    written: dict[VolumeChoice, int] = {}  # the resourceVersion that our write produced
    for choice in sorted(task.choices, key=lambda choice: choice.volume == ""):  # volumes first, as kube-scheduler
        try:
            answer = await (_give(choice, api, truth) if choice.volume else _order(choice, api, truth))
        except NotFound as error:
            return NotBound(Why.GONE, str(error))
        except ApiError as error:
            return NotBound(Why.API, str(error))
        if isinstance(answer, NotBound):
            return answer
        written[choice] = answer
    try:
        async with asyncio.timeout(timeout):
            while True:
                state = _state(task, written, truth)
                if state is None or isinstance(state, NotBound):
                    return state
                await truth.changed()
    except TimeoutError:
        return NotBound(Why.TIMEOUT, f"not bound within {timeout:.0f} s: {_open(task.choices, truth)}")


# ---- writing ----------------------------------------------------------------------------------------------------


async def _give(choice: VolumeChoice, api: Writer, truth: Truth) -> int | NotBound:
    """Write the claim's reference into the volume."""
    known = truth.volume(choice.volume)
    if known is not None and _is_ours(known.claim_ref, choice):
        return 0
    namespace, _, name = choice.claim.partition("/")
    reference = {"namespace": namespace, "name": name, "uid": choice.claim_uid}
    notes = {} if choice.prebound else {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
    body = {
        "metadata": {"resourceVersion": choice.version, **notes},
        "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference}},
    }
    path = f"/api/v1/persistentvolumes/{choice.volume}"
    try:
        return _version(_VOLUME.decode(await retrying(lambda: api.patch(path, body))).metadata.resource_version)
    except Conflict as error:
        now = _VOLUME.decode(await retrying(lambda: api.get(path)))
        # Another pod with this claim wrote it, or we did and the answer was lost.
        if _is_ours(now.spec.claim_ref, choice):
            return _version(now.metadata.resource_version)
        return NotBound(Why.CHANGED if now.spec.claim_ref is None else Why.TAKEN, str(error))


async def _order(choice: VolumeChoice, api: Writer, truth: Truth) -> int | NotBound:
    """Write the node into the claim for which its volume is to be provisioned."""
    known = truth.claim(choice.claim)
    if known is not None and known.uid == choice.claim_uid and known.selected_node == choice.node:
        return 0
    namespace, _, name = choice.claim.partition("/")
    body = {
        "metadata": {
            "resourceVersion": choice.version,
            "uid": choice.claim_uid,
            "annotations": {SELECTED_NODE: choice.node},
        }
    }
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
    try:
        return _version(_CLAIM.decode(await retrying(lambda: api.patch(path, body))).metadata.resource_version)
    except Conflict as error:
        now = _CLAIM.decode(await retrying(lambda: api.get(path))).metadata
        if now.uid == choice.claim_uid and now.annotations.get(SELECTED_NODE) == choice.node:
            return _version(now.resource_version)
        return NotBound(Why.CHANGED, str(error))


# ---- waiting ----------------------------------------------------------------------------------------------------


class NotBoundYet:
    """Not bound yet."""


_YET = NotBoundYet()


def _state(task: Task, written: Mapping[VolumeChoice, int], truth: Truth) -> NotBound | NotBoundYet | None:
    """The state of the claims, as kube-scheduler's checkBindings; None = all are bound."""
    labels = truth.node_labels(task.node)
    if labels is None:
        return NotBound(Why.GONE, f"node {task.node} is gone")
    if not truth.has_pod(task.pod_uid):
        return NotBound(Why.GONE, "the pod is gone")
    waiting: NotBoundYet | None = None
    for choice in task.choices:
        check = _given if choice.volume else _made
        state = check(choice, written[choice], labels, truth)
        if isinstance(state, NotBound):
            return state
        waiting = waiting or state
    return waiting


def _given(
    choice: VolumeChoice, written: int, labels: Mapping[str, str], truth: Truth
) -> NotBound | NotBoundYet | None:
    volume, claim = truth.volume(choice.volume), truth.claim(choice.claim)
    if volume is None:
        return NotBound(Why.GONE, f"volume {choice.volume} is gone")
    if claim is None or claim.uid != choice.claim_uid:
        return NotBound(Why.GONE, f"claim {choice.claim} is gone")
    if _version(volume.version) < written:
        return _YET
    if not volume.usable_on(labels):
        return NotBound(Why.ELSEWHERE, f"volume {volume.name} cannot be used on node {choice.node}")
    if volume.claim_ref is None or not volume.claim_ref.uid:
        return NotBound(Why.RESET, f"volume {volume.name} was taken away from claim {choice.claim}")
    if not _is_ours(volume.claim_ref, choice):
        return NotBound(Why.TAKEN, f"volume {volume.name} belongs to claim {volume.claim_ref.key}")
    return None if claim.bound else _YET


def _made(choice: VolumeChoice, written: int, labels: Mapping[str, str], truth: Truth) -> NotBound | NotBoundYet | None:
    claim = truth.claim(choice.claim)
    if claim is None or claim.uid != choice.claim_uid:
        return NotBound(Why.GONE, f"claim {choice.claim} is gone")
    if _version(claim.version) < written:
        return _YET
    if claim.selected_node != choice.node:
        return NotBound(Why.NOT_MADE, f"no volume could be made for claim {choice.claim} on node {choice.node}")
    volume = truth.volume(claim.volume) if claim.volume else None
    if volume is not None and not volume.usable_on(labels):
        return NotBound(Why.ELSEWHERE, f"volume {volume.name} cannot be used on node {choice.node}")
    return None if claim.bound and volume is not None else _YET


def _open(choices: Iterable[VolumeChoice], truth: Truth) -> str:
    missing = (one.claim for one in choices if (claim := truth.claim(one.claim)) is None or not claim.bound)
    return f"claims {', '.join(missing)}"


class _Reference(Protocol):
    @property
    def uid(self) -> str: ...


def _is_ours(reference: _Reference | None, choice: VolumeChoice) -> bool:
    return reference is not None and reference.uid == choice.claim_uid


def _version(text: str) -> int:
    """The resourceVersion as a number: it grows with each write (by contract since Kubernetes 1.35)."""
    return int(text) if text.isdecimal() else 0


_VOLUME = msgspec.json.Decoder(PersistentVolume)
_CLAIM = msgspec.json.Decoder(PersistentVolumeClaim)
