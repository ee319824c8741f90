"""HAMi's node lock, where HAMi's device plugin hands out the cards: one pod at a time on a node, from Bind to Allocate.

The plugin finds "the pending pod" by this annotation (hami.md §5, §10). HAMi fails a bind that meets a taken lock; here
binds of a node queue up in memory, and a lock whose holder is gone is taken over at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from dovetail.kube import objects
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Conflict, NotFound
from dovetail.kube.api.retry import BACKOFF, REAL, World
from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.live.election import either, only_while
from dovetail.kube.live.times import to_second
from dovetail.model.events import Bind
from dovetail.model.pod import Pod

LOCK, HANDSHAKE = "hami.io/mutex.lock", "hami.io/node-handshake"
OLD = 300.0  # seconds after which HAMi itself takes a lock over
_NODE = msgspec.json.Decoder(objects.Node)


@dataclass(slots=True)
class _Gate:
    """A node with HAMi's plugin."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    lock: str = ""  # the annotation as last heard
    gone: bool = False  # the node is
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class HamiLocks:
    """Nodes whose plugin wants the lock are those that carry a handshake, unless told otherwise (`always`, `never`)."""

    def __init__(
        self,
        api: Api,
        *,
        exists: Callable[[str], bool],  # whether a pod of this namespace/name is there and not finished
        clears: Callable[[str, str], bool],  # whether it may be on this node, or get there without us
        now: Callable[[], float],
        log: Callable[[str], None],
        may_write: Callable[[], bool] = lambda: True,  # whether we are surely the scheduler at this moment
        setting: str = "auto",
        world: World = REAL,
    ) -> None:
        self._api, self._exists, self._clears, self._now, self._log = api, exists, clears, now, log
        self._may_write, self._setting, self._world = may_write, setting, world
        self._gates: dict[str, _Gate] = {}
        self._held: dict[str, _Gate] = {}  # pod uid -> whose turn it has

    def hear(self, batch: Iterable[Event[objects.Node]]) -> None:
        for event in batch:
            if isinstance(event, Deleted):
                self._node_gone(event.ref.name)
            if isinstance(event, Replaced):
                there = {source.metadata.name for source in event.items} | {each.ref.name for each in event.unreadable}
                for name in [name for name in self._gates if name not in there]:
                    self._node_gone(name)
            for source in event.items if isinstance(event, Replaced) else []:
                self._hear(source)
            if isinstance(event, Changed):
                self._hear(event.object)

    def _node_gone(self, name: str) -> None:
        """Those who wait for its lock need not any more."""
        gate = self._gates.pop(name, None)
        if gate is not None:
            gate.gone = True
            gate.changed.set()

    def _hear(self, source: objects.Node) -> None:
        meta = source.metadata
        wanted = self._setting == "always" or (self._setting == "auto" and HANDSHAKE in meta.annotations)
        gate = self._gates.get(meta.name)
        if gate is None:
            if not wanted:
                return
            gate = self._gates[meta.name] = _Gate()
        lock = meta.annotations.get(LOCK, "")
        if lock != gate.lock:
            gate.lock = lock
            gate.changed.set()

    async def take(self, bind: Bind) -> bool:
        """Returns when the node is ours. False: the node needs no lock."""
        gate = self._gates.get(str(bind.decision.node))
        if gate is None or not bind.decision.shares:
            return False
        await gate.turn.acquire()
        try:
            await self._lock(gate, str(bind.decision.node), bind.pod)
        except BaseException:
            gate.turn.release()
            raise
        self._held[bind.pod.uid] = gate
        return True

    async def give_back(self, bind: Bind, bound: bool) -> None:
        """After a bind the plugin clears the lock; the node's next pod waits until then. Without one, we do."""
        node = str(bind.decision.node)
        gate = self._held.pop(bind.pod.uid, None)
        if gate is None:
            return
        if not bound:
            try:
                await self._unlock(gate, node, bind.pod)
            finally:
                gate.turn.release()
            return
        waiter = asyncio.create_task(self._until_free(gate, node, bind.pod))
        waiter.add_done_callback(lambda _: gate.turn.release())

    async def _lock(self, gate: _Gate, node: str, pod: Pod) -> None:
        failures = 0
        while not gate.gone:  # if it is, there is nothing to lock and nowhere to go: the binder will see
            if gate.lock and not _is(gate.lock, pod) and not self._is_dead(gate.lock, node):
                gate.changed.clear()
                await either(gate.changed, 5.0)
                continue
            try:
                text = f"{to_second(self._now())},{pod.namespace},{pod.name}"
                await self._write(gate, node, gate.lock, text)
                return
            except Conflict:
                with suppress(ApiError):
                    await self._look(gate, node)
            except NotFound:
                return
            except ApiError as error:
                failures += 1
                self._log(f"lock of node {node}: {error.message}")
                await self._world.sleep(BACKOFF.wait(failures, self._world.chance(), error.retry_after))

    async def _until_free(self, gate: _Gate, node: str, pod: Pod) -> None:
        """The plugin clears the lock when the cards are handed over."""
        since = self._world.now()
        while _is(gate.lock, pod) and not gate.gone and self._exists(pod.key):
            if self._world.now() - since > OLD:
                self._log(f"node {node}: HAMi's plugin has not taken over {pod.key} for {OLD:.0f} s; the lock is freed")
                break
            gate.changed.clear()
            await either(gate.changed, 2.0)
        if _is(gate.lock, pod):
            await self._unlock(gate, node, pod)

    async def _unlock(self, gate: _Gate, node: str, pod: Pod) -> None:
        try:
            if _is(gate.lock, pod):
                await self._write(gate, node, gate.lock, None)
        except ApiError as error:
            self._log(f"lock of node {node}: {error.message}")

    async def _write(self, gate: _Gate, node: str, old: str, new: str | None) -> None:
        """Only where the lock is what we think it is: a test in the patch itself, so that heartbeats do not matter."""
        path = "/metadata/annotations/" + LOCK.replace("/", "~1")
        body: list[dict[str, str]] = [{"op": "test", "path": path, "value": old}] if old else []
        if new is None:
            body.append({"op": "remove", "path": path})
        else:
            body.append({"op": "replace" if old else "add", "path": path, "value": new})
        only_while(self._may_write)  # the lock of whoever took over must not be taken from it
        try:
            await self._api.patch(f"/api/v1/nodes/{node}", body, "json")
        except ApiError as error:
            if error.code == 422:  # the test failed
                raise Conflict(error.message, code=409) from error
            raise
        gate.lock = new or ""
        gate.changed.set()

    async def _look(self, gate: _Gate, node: str) -> None:
        source = _NODE.decode(await self._api.get(f"/api/v1/nodes/{node}"))
        gate.lock = source.metadata.annotations.get(LOCK, "")

    def _is_dead(self, lock: str, node: str) -> bool:
        """Nobody will clear it: its pod is gone or elsewhere, or it is older than HAMi waits itself."""
        at, _, holder = lock.partition(",")
        try:
            age = self._now() - datetime.fromisoformat(at).timestamp()
        except ValueError:
            return True
        namespace, _, name = holder.partition(",")
        return age > OLD or (bool(name) and not self._clears(f"{namespace}/{name}", node))


def _is(lock: str, pod: Pod) -> bool:
    return lock.endswith(f",{pod.namespace},{pod.name}")
