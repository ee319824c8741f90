"""HAMi's node lock, for nodes where HAMi's device plugin hands out the cards: one pod at a time, from Bind to Allocate.

The plugin finds the pending pod of its node by this annotation (HAMi: pkg/util/nodelock/nodelock.go, pkg/util/util.go).
HAMi fails a bind that finds the lock taken. Here, binds of a node queue up in memory, and a lock whose pod is gone is
taken over at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Conflict, Forbidden, NotFound
from dovetail.kube.api.retry import BACKOFF, REAL, Gate, World
from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.conversion.settled import has_hami_plugin
from dovetail.kube.live.deployed import remedy
from dovetail.kube.live.election import either, only_while
from dovetail.kube.live.times import to_second
from dovetail.kube.log import ERROR, WARNING, Log
from dovetail.kube.objects import core as objects
from dovetail.model.events import Bind
from dovetail.model.pod import Pod

LOCK = "hami.io/mutex.lock"
OLD = 300.0  # seconds after which HAMi itself takes over a lock, by default
TELL_AFTER = 3.0  # seconds for which a bind waits for a lock before its pod reports it
_NODE = msgspec.json.Decoder(objects.Node)


class LockForbidden(ApiError):
    """The node needs HAMi's lock, and we have no right to write it: no pod with cards can be bound there."""


@dataclass(slots=True)
class _Gate:
    """The queue for the lock of a node with HAMi's plugin."""

    turn: Gate = field(default_factory=lambda: Gate(most=1))  # one pod at a time, round-robin over namespaces
    lock: str = ""  # the annotation as last reported
    gone: bool = False  # the node is gone
    closed: bool = False  # the node is gone or needs no lock any more: do not wait here
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class HamiLocks:
    """The locks of all nodes.

    By default (`auto`) a node needs the lock if it carries a handshake annotation; `always` and `never` override this.
    """

    def __init__(
        self,
        api: Api,
        *,
        exists: Callable[[str], bool],  # whether an unfinished pod of this namespace/name exists
        clears: Callable[[str, str], bool],  # whether that pod may be on this node, or get there without us
        now: Callable[[], float],
        log: Log,
        may_write: Callable[[], bool] = lambda: True,  # whether we are certain to be the leader at this moment
        # Called for a bind that waits long, with what it waits for.
        waits: Callable[[Bind, str], None] = lambda bind, text: None,
        setting: str = "auto",
        old: float = OLD,
        world: World = REAL,
    ) -> None:
        self._api, self._exists, self._clears, self._now, self._log = api, exists, clears, now, log
        self._may_write, self._waits, self._setting, self._world = may_write, waits, setting, world
        self._old = old
        self._gates: dict[str, _Gate] = {}
        self._held: dict[str, _Gate] = {}  # pod uid -> the gate that the pod has entered

    def hear(self, batch: Iterable[Event[objects.Node]]) -> None:
        for event in batch:
            if isinstance(event, Deleted):
                self._node_gone(event.ref.name)
            if isinstance(event, Replaced):
                there = {source.metadata.name for source in event.items} | {each.ref.name for each in event.unreadable}
                for name in [name for name in self._gates if name not in there]:
                    self._node_gone(name)
            for source in event.items if isinstance(event, Replaced) else []:
                self._heard(source)
            if isinstance(event, Changed):
                self._heard(event.object)

    def _heard(self, source: objects.Node) -> None:
        """As `_hear`; a node that cannot be read does not affect other nodes."""
        try:
            self._hear(source)
        except Exception as error:
            name = source.metadata.name
            self._log(f"lock of node {name}: {type(error).__name__}: {error}", ERROR, node=name)

    def _node_gone(self, name: str) -> None:
        self._close(name, gone=True)

    def _close(self, name: str, gone: bool) -> None:
        """Close the node's gate. Binds that wait there check whether the node needs a lock at all."""
        gate = self._gates.pop(name, None)
        if gate is not None:
            gate.closed, gate.gone = True, gone
            gate.changed.set()

    def _hear(self, source: objects.Node) -> None:
        meta = source.metadata
        wanted = self._setting == "always" or (self._setting == "auto" and has_hami_plugin(meta.annotations))
        if not wanted:  # HAMi's plugin has left the node: a lock would never be cleared
            self._close(meta.name, gone=False)
            return
        gate = self._gates.setdefault(meta.name, _Gate())
        lock = meta.annotations.get(LOCK, "")
        if lock != gate.lock:
            gate.lock = lock
            gate.changed.set()

    async def take(self, bind: Bind) -> bool:
        """Wait until the lock is ours. False: the node needs no lock at the time of the answer."""
        node = str(bind.decision.node)
        if not bind.decision.shares or node not in self._gates:  # the usual case, without a timer
            return False
        patience = asyncio.get_running_loop().call_later(TELL_AFTER, self._tell, bind)
        try:
            while (gate := self._gates.get(node)) is not None:  # a node that is re-created has another gate
                if await self._enter(gate, node, bind.pod):
                    self._held[bind.pod.uid] = gate
                    return True
            return False
        finally:
            patience.cancel()

    async def _enter(self, gate: _Gate, node: str, pod: Pod) -> bool:
        """Wait for the pod's turn and the lock. False: the gate was closed meanwhile."""
        await gate.turn.enter(pod.namespace)
        locked = False
        try:
            locked = await self._lock(gate, node, pod)
        finally:
            if not locked:
                gate.turn.leave()
        return locked

    def holds(self, bind: Bind) -> bool:
        """Whether the result of `take` still holds: the lock is held, or the node needs none."""
        wanted = self._gates.get(str(bind.decision.node)) if bind.decision.shares else None
        return self._held.get(bind.pod.uid) is wanted

    def _tell(self, bind: Bind) -> None:
        node = str(bind.decision.node)
        gate = self._gates.get(node)
        if gate is None:
            return
        at, _, holder = gate.lock.partition(",")
        said = f"held by pod {holder.replace(',', '/', 1)} since {at}" if holder else "for which other pods wait, too"
        self._waits(bind, f"waits for HAMi's lock on node {node}, {said}. HAMi's device plugin clears it.")

    async def give_back(self, bind: Bind, bound: bool) -> None:
        """End the pod's turn.

        After a bind, the plugin clears the lock and the next pod waits for that; else we clear it.
        """
        node = str(bind.decision.node)
        gate = self._held.pop(bind.pod.uid, None)
        if gate is None:
            return
        if not bound:
            try:
                if not gate.gone:
                    await self._unlock(gate, node, bind.pod)
            finally:
                gate.turn.leave()
            return
        waiter = asyncio.create_task(self._until_free(gate, node, bind.pod))
        waiter.add_done_callback(lambda _: gate.turn.leave())

    async def _lock(self, gate: _Gate, node: str, pod: Pod) -> bool:
        """Write the lock. False: the gate was closed meanwhile. LockForbidden: the bind is tried again later."""
        failures = 0
        while not gate.closed:
            if gate.lock and not _is(gate.lock, pod) and not self._is_dead(gate.lock, node):
                gate.changed.clear()
                await either(gate.changed, 5.0)
                continue
            try:
                text = f"{to_second(self._now())},{pod.namespace},{pod.name}"
                await self._write(gate, node, gate.lock, text)
                return True
            except Conflict:
                with suppress(ApiError):
                    await self._look(gate, node)
            except NotFound:  # the watch will report this, and close the gate
                gate.changed.clear()
                await either(gate.changed, 1.0)
            except Forbidden as error:
                raise LockForbidden(_forbidden(node, error), code=error.code) from error
            except ApiError as error:
                failures += 1
                self._log(f"lock of node {node}: {error.message}", WARNING, node=node)
                await self._world.sleep(BACKOFF.wait(failures, self._world.chance(), error.retry_after))
        return False

    async def _until_free(self, gate: _Gate, node: str, pod: Pod) -> None:
        """Wait until the plugin clears the lock, which it does when the cards are handed over."""
        since = self._world.now()
        while _is(gate.lock, pod) and not gate.closed and self._exists(pod.key):
            if self._world.now() - since > self._old:
                since_when = f"for {self._old:.0f} s; the lock is freed"
                text = f"node {node}: HAMi's plugin has not taken over {pod.key} {since_when}"
                self._log(text, WARNING, pod=pod.key, uid=pod.uid, node=node)
                break
            gate.changed.clear()
            await either(gate.changed, 2.0)
        if _is(gate.lock, pod) and not gate.gone:
            await self._unlock(gate, node, pod)

    async def _unlock(self, gate: _Gate, node: str, pod: Pod) -> None:
        try:
            if _is(gate.lock, pod):
                await self._write(gate, node, gate.lock, None)
        except ApiError as error:
            self._log(f"lock of node {node}: {error.message}", WARNING, node=node)

    async def _write(self, gate: _Gate, node: str, old: str, new: str | None) -> None:
        """Replace the lock if it is still `old`. The patch itself tests this, so that heartbeats cause no conflict."""
        path = "/metadata/annotations/" + LOCK.replace("/", "~1")
        body: list[dict[str, str]] = [{"op": "test", "path": path, "value": old}] if old else []
        if new is None:
            body.append({"op": "remove", "path": path})
        else:
            body.append({"op": "replace" if old else "add", "path": path, "value": new})
        only_while(self._may_write)  # the lock of a new leader must not be taken from it
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
        """Whether the lock will not be cleared: its pod is gone or elsewhere, or it is older than HAMi's own limit."""
        at, _, holder = lock.partition(",")
        try:
            age = self._now() - datetime.fromisoformat(at).timestamp()
        except ValueError:
            return True
        namespace, _, name = holder.partition(",")
        return age > self._old or (bool(name) and not self._clears(f"{namespace}/{name}", node))


def _is(lock: str, pod: Pod) -> bool:
    return lock.endswith(f",{pod.namespace},{pod.name}")


def _forbidden(node: str, error: Forbidden) -> str:
    """What right is missing, for the pod's condition: short, since conditions are cut."""
    fix = f": {remedy('hami-lock')}" if error.missing is not None else ""
    return f"HAMi's device plugin on node {node} needs its lock, which may not be written{fix}. {error.message}"
