"""After a take-over: write our epoch on every waiting pod, so that Bindings of the previous leader fail.

The write changes the pod's resourceVersion, which is a precondition of every Binding. The answers show which pods were
bound meanwhile. After this, no write of the previous leader can succeed. A newer epoch than ours on a pod may be from a
later leader.

The epoch is written through `pods/status`, so that the scheduler needs no right to change a pod's spec. The API server
keeps the spec and stores the annotations (podStatusStrategy, pkg/registry/core/pod/strategy.go).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from dovetail.kube.api.client import Api, Json
from dovetail.kube.api.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from dovetail.kube.api.retry import BACKOFF, REAL, Gate, World
from dovetail.kube.api.typed import UNREADABLE, TypedReader, Unreadable
from dovetail.kube.conversion.templates import EPOCH
from dovetail.kube.live.binding import pod_path
from dovetail.kube.live.election import only_while
from dovetail.kube.live.known import Known
from dovetail.kube.log import WARNING, Log
from dovetail.kube.objects import core as objects

_PODS = TypedReader(objects.Pod)
AT_ONCE = 32


class _StampedMeta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class _Stamped(msgspec.Struct, frozen=True):
    metadata: _StampedMeta = _StampedMeta()


_STAMPED = msgspec.json.Decoder(_Stamped)


class PodUnreadable(ApiError):
    """The server answered, but its description of the pod cannot be read."""


async def stamp(
    api: Api,
    pods: Iterable[tuple[str, Known]],
    epoch: str,
    hear: Callable[[objects.Pod], None],
    log: Log,
    may_write: Callable[[], bool],
    world: World = REAL,
) -> int:
    """Write the epoch on all waiting pods; returns how many.

    `pods` are (uid, what is known). `hear` gets each pod as it is after the write. No pod may be bound before each of
    them has the epoch or is gone, so writes are tried without end.
    """
    gate, stamped = Gate(AT_ONCE), 0

    async def one(uid: str, known: Known) -> None:
        nonlocal stamped
        namespace, _, name = known.key.partition("/")
        failures = 0
        while True:
            try:
                async with gate():
                    only_while(may_write)
                    source = await put_stamp(api, pod_path(namespace, name), uid, epoch)
                if source is not None:
                    hear(source)
                    stamped += 1
                return
            except ApiError as error:
                failures += 1
                if failures % 5 == 3:
                    text = f"{known.key} is not stamped, and nothing is bound until it is: {error.message}"
                    log(text, WARNING, pod=known.key, uid=known.pod.uid)
                await world.sleep(BACKOFF.wait(failures, world.chance(), error.retry_after))

    await asyncio.gather(*(one(uid, known) for uid, known in pods))
    return stamped


async def put_stamp(api: Api, path: str, uid: str, epoch: str) -> objects.Pod | None:
    """The pod with our epoch, or as it was bound meanwhile; None = there is no such pod any more.

    Servers retry a patch a few times when other writes interfere, and then answer 409. Another uid is 409 or 422.
    """
    body = {"metadata": {"uid": uid, "annotations": {EPOCH: epoch}}}
    while True:
        try:
            return read_pod(await api.patch(f"{path}/status", body))
        except NotFound:
            return None
        except (Conflict, Invalid, Forbidden) as error:
            found = await _pod_at(api, path)
            if found is None or found.metadata.uid != uid:
                return None
            if found.spec.node_name:
                return found
            if not isinstance(error, Conflict):
                with suppress(Conflict):
                    return await _stamp_condition(api, path, found, epoch)


async def _stamp_condition(api: Api, path: str, pod: objects.Pod, epoch: str) -> objects.Pod:
    """Change the pod's resourceVersion by its condition, where its annotations are full (256 KiB): that fences, too."""
    said = {"type": "PodScheduled", "status": "False", "reason": "SchedulerChanged", "message": f"epoch {epoch}"}
    meta = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return read_pod(
        await api.patch(f"{path}/status", {"metadata": meta, "status": {"conditions": [said]}}, "strategic")
    )


def read_pod(body: Json) -> objects.Pod:
    found = _PODS.object(body)
    if isinstance(found, Unreadable):
        raise PodUnreadable(f"the pod cannot be read: {found.message}")
    return found


def stamp_of(body: Json) -> str:
    """The epoch on a pod; "" where there is none, or nothing can be read."""
    try:
        return _STAMPED.decode(body).metadata.annotations.get(EPOCH, "")
    except UNREADABLE:
        return ""


def may_outrank(theirs: str, ours: str) -> bool:
    """Whether `theirs` may be the epoch of a later leader than `ours`.

    Epochs are `number.identity`; on pods, more may follow. An equal number of another identity exists where the Lease
    was deleted and counting began again.
    """
    is_ours = theirs == ours or theirs.startswith(f"{ours}.")
    return not is_ours and _number(theirs) >= max(0, _number(ours))


def _number(epoch: str) -> int:
    text = epoch.partition(".")[0]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else -1


async def _pod_at(api: Api, path: str) -> objects.Pod | None:
    try:
        return read_pod(await api.get(path))
    except NotFound:
        return None
