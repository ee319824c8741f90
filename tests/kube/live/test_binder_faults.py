"""Binds whose answers are lost, whose node changes, whose lease ends: what is sent, and what is said of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.errors import Conflict, Forbidden, NotFound, Unavailable
from dovetail.kube.api.retry import World
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.templates import EPOCH
from dovetail.kube.live.binder import Binder, Claimed, Fate, Outcome
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.tell import ScheduledCondition, Teller
from dovetail.kube.log import silent
from dovetail.kube.objects import core as objects
from dovetail.model.decision import Decision, Share
from dovetail.model.device import Device
from dovetail.model.events import Bind
from dovetail.model.node import Node
from dovetail.model.reason import Reason
from tests.kube.live.stage import read, waiting

pytestmark = pytest.mark.asyncio
NODE = Node("n", {}, (Device("GPU-0", 0, "NVIDIA", "T4", 1024),))
LOST = Unavailable("the connection broke")


class Server:
    """One pod; each POST does what the next step says."""

    def __init__(self, *steps: Exception | None) -> None:
        self.pod: dict[str, Any] | None = waiting("a")
        self.steps = list(steps)
        self.sent: list[str] = []
        self.annotations: dict[str, str] = {}  # of the last POST
        self.bound_by_lost = False  # a POST that nobody heard of came true all the same

    async def post(self, path: str, body: Any) -> bytes:
        self.sent.append("POST")
        self.annotations = body["metadata"]["annotations"]
        step = self.steps.pop(0) if self.steps else None
        if step is not None:
            if step is LOST and self.bound_by_lost:
                self._bind(body)
            raise step
        assert self.pod is not None
        if body["metadata"]["resourceVersion"] != self.pod["metadata"]["resourceVersion"]:
            raise Conflict("modified", code=409)
        self._bind(body)
        return b"{}"

    def _bind(self, body: Any) -> None:
        assert self.pod is not None
        self.pod["spec"]["nodeName"] = body["target"]["name"]
        self.pod["metadata"]["resourceVersion"] = "2"

    async def get(self, path: str) -> bytes:
        self.sent.append("GET")
        if self.pod is None:
            raise NotFound("gone", code=404)
        return json.dumps(self.pod).encode()

    async def patch(self, path: str, body: Any, kind: str = "merge") -> bytes:
        self.sent.append("PATCH")
        assert self.pod is not None
        self.pod["metadata"].setdefault("annotations", {}).update(body["metadata"].get("annotations", {}))
        self.pod["metadata"]["resourceVersion"] = "7"
        return json.dumps(self.pod).encode()


async def _at_once(seconds: float) -> None:
    await asyncio.sleep(0)


WORLD = World(sleep=_at_once, chance=lambda: 0.0)


async def _bind(
    server: Any,
    may_write: Callable[[], bool] = lambda: True,
    claimed: Claimed = tuple,
    objection: Callable[[Bind, bool], str] = lambda bind, waited: "",
) -> Outcome:
    pod = PodReader({"dovetail": Settings()}).pod(read(waiting("a"))).pod
    outcomes: list[Outcome] = []

    async def nothing(_: object) -> str:
        return ""

    binder = Binder(
        server,
        Settings().vendors,
        nodes={"n": NODE},
        version_of=lambda bind: "1",
        objection=objection,
        settled=nothing,  # type: ignore[arg-type]
        volumes=nothing,
        report=outcomes.append,
        now=lambda: 0.0,
        epoch="3.me",
        may_write=may_write,
        world=WORLD,
    )
    decision = Decision(pod.uid, "n", (Share(0, "GPU-0", 1024, 1000),), Reason.OK, 0)
    binder.submit(Bind(pod, decision), claimed)
    await binder.drain(10)
    (outcome,) = outcomes
    return outcome


async def test_a_lost_answer_is_sent_again() -> None:
    server = Server(LOST, None)
    assert (await _bind(server)).fate is Fate.BOUND
    assert server.sent == ["POST", "POST"]


async def test_what_the_pod_claims_at_the_time_of_the_write_is_blanked() -> None:
    server, claims = Server(LOST, None), iter(((), ("hami.io/amd-devices-allocated",)))
    await _bind(server, claimed=lambda: next(claims))
    assert server.annotations["hami.io/amd-devices-allocated"] == ""
    assert server.annotations["hami.io/vgpu-devices-allocated"] == "GPU-0,NVIDIA,1024,100:;"


async def test_a_lost_answer_of_a_write_that_came_true() -> None:
    server = Server(LOST)
    server.bound_by_lost = True
    outcome = await _bind(server)
    assert outcome.fate is Fate.CHANGED
    assert outcome.pod is not None
    assert outcome.pod.spec.node_name == "n"
    assert outcome.came_true
    assert server.sent == ["POST", "POST", "GET"]


async def test_a_refusal_after_a_lost_answer_gives_nothing_up_before_the_pod_is_stamped() -> None:
    """The first write may still come true, and must not when its cards are another's."""
    server = Server(LOST, Forbidden("no", code=403))
    outcome = await _bind(server)
    assert outcome.fate is Fate.CHANGED
    assert server.sent == ["POST", "POST", "GET", "PATCH"]
    assert outcome.pod is not None
    assert outcome.pod.metadata.annotations[EPOCH].startswith("3.me.")
    assert outcome.pod.metadata.resource_version == "7"


async def test_a_refusal_that_is_sure_needs_no_stamp() -> None:
    server = Server(Forbidden("no", code=403))
    assert (await _bind(server)).fate is Fate.REFUSED
    assert server.sent == ["POST"]


async def test_nothing_is_bound_that_would_not_be_placed_so_any_more() -> None:
    server = Server()
    outcome = await _bind(server, objection=lambda bind, waited: "node n is gone")
    assert (outcome.fate, outcome.message) == (Fate.OUTDATED, "node n is gone")
    assert server.sent == []


async def test_every_try_is_held_against_the_present_and_a_write_that_may_come_true_is_stamped_first() -> None:
    server, asked = Server(LOST), []

    def objection(bind: Bind, waited: bool) -> str:
        asked.append(waited)
        return "node n: node is cordoned" if waited else ""

    assert (await _bind(server, objection=objection)).fate is Fate.CHANGED
    assert asked == [False, True]
    assert server.sent == ["POST", "GET", "PATCH"]


async def test_nothing_is_sent_while_the_lease_may_be_anothers() -> None:
    server, answers = Server(), [False, False, True]
    assert (await _bind(server, may_write=lambda: answers.pop(0))).fate is Fate.BOUND
    assert server.sent == ["POST"]
    assert answers == []


async def test_no_condition_follows_once_a_pod_is_about_to_be_bound() -> None:
    """Else it would make the Binding fail, or say of a pod that is bound that it is not."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    said: list[str] = []

    class Slow:
        async def patch(self, path: str, body: Any, kind: str) -> bytes:
            said.append(body["status"]["conditions"][0]["message"])
            begun.set()
            await go_on.wait()
            raise Unavailable("no answer")

    pod = PodReader({"dovetail": Settings()}).pod(read(waiting("a"))).pod
    slow: Any = Slow()
    teller = Teller(
        slow,
        "me",
        written=lambda *_: None,
        may_write=lambda: True,
        busy=lambda: False,
        now=lambda: 0.0,
        log=silent,
        world=WORLD,
    )
    running = asyncio.create_task(teller.run())
    teller.waits(pod, ScheduledCondition("Unschedulable", "first"))
    await begun.wait()
    teller.waits(pod, ScheduledCondition("Unschedulable", "second"))
    for _ in range(20):
        await asyncio.sleep(0)
    settling = asyncio.create_task(teller.settled(pod.uid))
    await asyncio.sleep(0)
    go_on.set()
    await settling
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    assert said == ["first"]


async def test_pods_are_read_as_before_with_a_stamp() -> None:
    """It asks for nothing: pods of one template share its parts, stamped or not."""
    reader = PodReader({"dovetail": Settings()})
    stamped = waiting("a")
    stamped["metadata"]["annotations"] = {EPOCH: "3.me"}
    first, second = reader.pod(read(waiting("a"))).pod, reader.pod(read(stamped)).pod
    assert first == second
    assert first.containers is second.containers
    assert msgspec.structs.asdict(read(stamped).metadata)["annotations"] == {EPOCH: "3.me"}
    assert isinstance(read(stamped), objects.Pod)
