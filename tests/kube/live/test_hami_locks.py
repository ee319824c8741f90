"""HAMi's lock on a node: whose turn it is, and what happens when holder, node or lease go."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.errors import error_of
from dovetail.kube.api.retry import World
from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted
from dovetail.kube.conversion.settled import HANDSHAKE
from dovetail.kube.live.hami_lock import LOCK, HamiLocks, LockForbidden
from dovetail.kube.log import silent
from dovetail.kube.objects import core as objects
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

    def as_heard(self, handshake: str | None = "") -> Any:
        notes = {**({} if handshake is None else {HANDSHAKE: handshake}), **({LOCK: self.lock} if self.lock else {})}
        return Changed(msgspec.convert({"metadata": {"name": "n", "annotations": notes}}, objects.Node))


async def _at_once(seconds: float) -> None:
    await asyncio.sleep(0)


def _locks(node: Any, there: set[str], **more: Any) -> HamiLocks:
    locks = HamiLocks(
        node,
        exists=there.__contains__,
        clears=lambda key, _: key in there,
        now=lambda: 0.0,
        log=silent,
        world=World(sleep=_at_once),
        **more,
    )
    locks.hear([node.as_heard()])
    return locks


def _bind(name: str, namespace: str = "ml") -> Bind:
    return Bind(Pod(namespace, name, name), Decision(name, "n", (Share(0, "GPU-0", 1, 1),), Reason.OK, 0))


async def _a_while() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_many_binds_of_one_namespace_stand_before_anothers_by_one() -> None:
    """80 shares of a node wait for its lock, and then the pod of another namespace."""
    node, order = Node(), list[str]()
    binds = [*(_bind(f"p{n}") for n in range(80)), _bind("few", "other")]
    locks = _locks(node, {bind.pod.key for bind in binds})

    async def one(bind: Bind) -> None:
        assert await locks.take(bind)
        order.append(bind.pod.name)
        await locks.give_back(bind, bound=False)
        locks.hear([node.as_heard()])

    assert await locks.take(binds[0])
    others = [asyncio.create_task(one(bind)) for bind in binds[1:]]
    await _a_while()
    await locks.give_back(binds[0], bound=False)
    locks.hear([node.as_heard()])
    await asyncio.gather(*others)
    assert (len(order), order.index("few")) == (80, 1)


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
    assert not locks.holds(_bind("a"))
    writes = node.writes
    await locks.give_back(_bind("a"), bound=False)
    assert [await other for other in others] == [False, False]  # no node, no lock
    assert node.writes == writes  # there is nothing to unlock


async def test_a_node_that_is_re_created_while_binds_queue_is_locked_anew() -> None:
    """Nobody goes on without a lock where the new node wants one."""
    node, there = Node(), {"ml/a", "ml/b", "ml/c"}
    locks = _locks(node, there)
    assert await locks.take(_bind("a"))
    others = [asyncio.create_task(locks.take(_bind(name))) for name in ("b", "c")]
    await _a_while()
    node.lock = ""
    locks.hear([Deleted(Ref("", "n", ""), None), node.as_heard()])
    await locks.give_back(_bind("a"), bound=False)
    assert await others[0]
    assert node.lock.endswith(",ml,b")
    assert locks.holds(_bind("b"))
    await _a_while()
    assert not others[1].done()  # one at a time on the new one, too
    await locks.give_back(_bind("b"), bound=False)
    assert await others[1]
    assert not locks.holds(_bind("a"))  # it held the lock of the node before


async def test_a_bind_that_needed_no_lock_is_not_right_once_the_node_wants_one() -> None:
    node = Node()
    locks = _locks(node, set())
    locks.hear([Deleted(Ref("", "n", ""), None)])
    assert not await locks.take(_bind("a"))
    assert locks.holds(_bind("a"))
    locks.hear([node.as_heard()])
    assert not locks.holds(_bind("a"))


async def test_a_node_whose_plugin_leaves_wants_no_lock_any_more() -> None:
    node, there = Node(), {"ml/a", "ml/b"}
    locks = _locks(node, there)
    assert await locks.take(_bind("a"))
    await locks.give_back(_bind("a"), bound=True)  # the plugin will not clear it any more
    second = asyncio.create_task(locks.take(_bind("b")))
    await _a_while()
    assert not second.done()
    locks.hear([node.as_heard(handshake=None)])
    assert not await asyncio.wait_for(second, 20)
    assert locks.holds(_bind("b"))
    assert node.lock == ""  # and ours is not left behind


async def test_a_bind_that_waits_long_says_who_holds_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.kube.live.hami_lock.TELL_AFTER", 0.0)
    said: list[tuple[str, str]] = []
    node = Node("1970-01-01T00:00:00Z,ml,alive")
    locks = _locks(node, {"ml/alive"}, waits=lambda bind, text: said.append((bind.pod.name, text)))
    taking = asyncio.create_task(locks.take(_bind("a")))
    await _a_while()
    taking.cancel()
    text = "waits for HAMi's lock on node n, held by pod ml/alive since 1970-01-01T00:00:00Z."
    assert [(name, note.startswith(text)) for name, note in said] == [("a", True)]


async def test_no_lock_is_touched_while_the_lease_may_be_anothers() -> None:
    node = Node("1970-01-01T00:00:00Z,ml,dead")
    taking = asyncio.create_task(_locks(node, set(), may_write=lambda: False).take(_bind("a")))
    await _a_while()
    assert node.writes == 0
    taking.cancel()


@pytest.mark.parametrize(
    ("handshake", "locked"),
    [
        ("", True),
        ("Requesting_2026-01-01 00:00:00", True),
        ("anything", True),
        ("Deleted_2026-01-01", False),
        (None, False),
    ],
)
async def test_which_handshakes_want_the_lock(handshake: str | None, locked: bool) -> None:
    node = Node()
    locks = _locks(node, set())
    locks.hear([node.as_heard(handshake)])
    assert await locks.take(_bind("p")) is locked


async def test_a_lock_that_may_not_be_written_is_said_and_nothing_is_bound() -> None:
    """Each bind is refused with what is missing, and leaves the turn to the next."""
    text = 'nodes "n" is forbidden: User "d" cannot patch resource "nodes" in API group "" at the cluster scope'
    body = msgspec.json.encode({"message": text, "reason": "Forbidden", "code": 403})

    class Closed(Node):
        async def patch(self, path: str, body_: list[dict[str, str]], kind: str) -> bytes:
            self.writes += 1
            raise error_of(403, body, f"PATCH {path}")

    node = Closed()
    locks = _locks(node, {"ml/a", "ml/b"})
    for name in ("a", "b"):
        with pytest.raises(LockForbidden) as refused:
            await locks.take(_bind(name))
        assert "HAMi's device plugin on node n" in refused.value.message
        assert "kubectl apply -k deploy/optional/hami-lock" in refused.value.message
        assert 'lacks verb "patch" on resource "nodes"' in refused.value.message
        assert not locks.holds(_bind(name))
    assert node.writes == 2
