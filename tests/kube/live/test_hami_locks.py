"""HAMi's lock on a node: whose turn it is, and what happens when holder, node or lease go."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kube import objects
from dovetail.kube.api.retry import World
from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted
from dovetail.kube.live.hami_lock import HANDSHAKE, LOCK, HamiLocks
from dovetail.model.decision import Decision, Share
from dovetail.model.events import Bind
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason

pytestmark = pytest.mark.asyncio


class Node:
    """The API server's part: a node with a lock on it, or none."""

    def __init__(self, lock: str = "") -> None:
        self.lock, self.writes = lock, 0

    async def patch(self, path: str, body: list[dict[str, str]], kind: str) -> bytes:
        self.writes += 1
        self.lock = body[-1].get("value", "")
        return b"{}"

    def as_heard(self) -> Any:
        notes = {HANDSHAKE: "", **({LOCK: self.lock} if self.lock else {})}
        return Changed(msgspec.convert({"metadata": {"name": "n", "annotations": notes}}, objects.Node))


async def _at_once(seconds: float) -> None:
    await asyncio.sleep(0)


def _locks(node: Any, there: set[str], **more: Any) -> HamiLocks:
    locks = HamiLocks(
        node,
        exists=there.__contains__,
        clears=lambda key, _: key in there,
        now=lambda: 0.0,
        log=lambda _: None,
        world=World(sleep=_at_once),
        **more,
    )
    locks.hear([node.as_heard()])
    return locks


def _bind(name: str) -> Bind:
    return Bind(Pod("ml", name, name), Decision(name, "n", (Share(0, "GPU-0", 1, 1),), Reason.OK, 0))


async def _a_while() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_at_a_time_until_the_plugin_lets_go() -> None:
    node, there = Node(), {"ml/a", "ml/b"}
    locks = _locks(node, there)
    assert await locks.take(_bind("a"))
    second = asyncio.create_task(locks.take(_bind("b")))
    await locks.give_back(_bind("a"), bound=True)
    await _a_while()
    assert not second.done()
    node.lock = ""
    locks.hear([node.as_heard()])  # the plugin has handed the cards over
    assert await second
    assert node.lock.endswith(",ml,b")


async def test_a_lock_of_somebody_who_is_gone_is_taken_over() -> None:
    node = Node("1970-01-01T00:00:00Z,ml,dead")
    assert await _locks(node, set()).take(_bind("a"))
    assert node.lock.endswith(",ml,a")


async def test_a_lock_of_somebody_who_is_there_is_waited_for() -> None:
    node = Node("1970-01-01T00:00:00Z,ml,alive")
    taking = asyncio.create_task(_locks(node, {"ml/alive"}).take(_bind("a")))
    await _a_while()
    assert not taking.done()
    assert node.writes == 0
    taking.cancel()


async def test_whoever_waits_for_a_node_that_goes_waits_no_longer() -> None:
    node, there = Node(), {"ml/a", "ml/b", "ml/c"}
    locks = _locks(node, there)
    assert await locks.take(_bind("a"))
    others = [asyncio.create_task(locks.take(_bind(name))) for name in ("b", "c")]
    await _a_while()
    locks.hear([Deleted(Ref("", "n", ""), None)])
    await locks.give_back(_bind("a"), bound=False)
    assert await others[0]
    await locks.give_back(_bind("b"), bound=False)
    assert await others[1]


async def test_no_lock_is_touched_while_the_lease_may_be_anothers() -> None:
    node = Node("1970-01-01T00:00:00Z,ml,dead")
    taking = asyncio.create_task(_locks(node, set(), may_write=lambda: False).take(_bind("a")))
    await _a_while()
    assert node.writes == 0
    taking.cancel()
