"""After a take-over: stamp our epoch on every pod that waits, so that a predecessor's Bindings fail on the version.

The answers show which pods were bound in the meantime: after this, nothing of the predecessor can become true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from dovetail.kube import objects
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Conflict, NotFound
from dovetail.kube.api.retry import BACKOFF, REAL, Gate, World
from dovetail.kube.api.typed import ref_of
from dovetail.kube.live.binding import pod_path
from dovetail.kube.live.mirror import Known
from dovetail.kube.live.reader import EPOCH

_POD = msgspec.json.Decoder(objects.Pod)
AT_ONCE = 32


async def stamp(
    api: Api,
    pods: Iterable[tuple[str, Known]],
    epoch: str,
    hear: Callable[[objects.Pod], None],
    log: Callable[[str], None],
    world: World = REAL,
) -> int:
    """`pods` are (uid, what is known) of those that wait. `hear` gets each pod as it is after the write. How many.

    Nothing may be bound before each of them is stamped or gone, so that it is tried for ever.
    """
    gate, stamped = Gate(AT_ONCE), 0

    async def one(uid: str, known: Known) -> None:
        nonlocal stamped
        namespace, _, name = known.key.partition("/")
        failures = 0
        while True:
            try:
                async with gate():
                    source = await put_stamp(api, pod_path(namespace, name), uid, epoch)
                if source is not None:
                    hear(source)
                    stamped += 1
                return
            except ApiError as error:
                failures += 1
                if failures % 5 == 3:
                    log(f"{known.key} is not stamped, and nothing is bound until it is: {error.message}")
                await world.sleep(BACKOFF.wait(failures, world.chance(), error.retry_after))

    await asyncio.gather(*(one(uid, known) for uid, known in pods))
    return stamped


async def put_stamp(api: Api, path: str, uid: str, epoch: str) -> objects.Pod | None:
    """The pod as it is with the stamp; None = there is no such pod any more.

    Servers try a patch again when somebody else was faster, a few times, and then say 409: also what they say of
    another uid.
    """
    body = {"metadata": {"uid": uid, "annotations": {EPOCH: epoch}}}
    while True:
        try:
            return _POD.decode(await api.patch(path, body))
        except NotFound:
            return None
        except Conflict:
            if await _uid_at(api, path) != uid:
                return None


async def _uid_at(api: Api, path: str) -> str:
    try:
        return ref_of(await api.get(path)).uid
    except NotFound:
        return ""
