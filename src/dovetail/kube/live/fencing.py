"""After a take-over: stamp our epoch on every pod that waits, so that a predecessor's Bindings fail on the version.

The answers show which pods were bound in the meantime: after this, nothing of the predecessor can become true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from dovetail.kube import objects
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from dovetail.kube.api.retry import BACKOFF, REAL, Gate, World
from dovetail.kube.live.mirror import EPOCH, Known

_POD = msgspec.json.Decoder(objects.Pod)
AT_ONCE = 32


async def stamp(
    api: Api, pods: Iterable[tuple[str, Known]], epoch: str, hear: Callable[[objects.Pod], None], world: World = REAL
) -> int:
    """`pods` are (uid, what is known) of those that wait. `hear` gets each pod as it is after the write. How many."""
    gate, stamped = Gate(AT_ONCE), 0

    async def one(uid: str, known: Known) -> None:
        nonlocal stamped
        namespace, _, name = known.key.partition("/")
        body = {"metadata": {"uid": uid, "annotations": {EPOCH: epoch}}}
        failures = 0
        while True:
            try:
                async with gate():
                    answer = await api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", body)
                hear(_POD.decode(answer))
                stamped += 1
                return
            except (NotFound, Conflict):  # gone, or another pod of that name: the watch will tell
                return
            except (Forbidden, Invalid):
                raise  # trying again would not help, and without the stamp nothing may be bound
            except ApiError as error:
                failures += 1
                await world.sleep(BACKOFF.wait(failures, world.chance(), error.retry_after))

    await asyncio.gather(*(one(uid, known) for uid, known in pods))
    return stamped
