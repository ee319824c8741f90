"""Binds of which not known yet whether they came true: no failure of whatever kind gives their cards away."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.api.errors import Conflict, Forbidden
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.binder import Binder, Fate, Outcome
from dovetail.kube.live.reader import PodReader
from dovetail.model.decision import Decision, Share
from dovetail.model.events import Bind
from dovetail.model.reason import Reason
from dovetail.model.volumes import VolumeChoice
from tests.kube.live.stage import read, waiting
from tests.kube.live.test_binder_faults import LOST, NODE, WORLD, Server
from tests.kube.logged import Logged

pytestmark = pytest.mark.asyncio
POD = PodReader({"dovetail": Settings()}).pod(read(waiting("a"))).pod
BIND = Bind(POD, Decision(POD.uid, "n", (Share(0, "GPU-0", 1024, 1000),), Reason.OK, 0))


async def nothing(_: object) -> str:
    return ""


def binder_of(api: Any, outcomes: list[Outcome], **more: Any) -> Binder:
    given: dict[str, Any] = {
        "nodes": {"n": NODE},
        "version_of": lambda bind: "1",
        "objection": lambda bind, waited: "",
        "settled": nothing,
        "volumes": nothing,
        "report": outcomes.append,
        "now": lambda: 0.0,
        "epoch": "3.me",
        "world": WORLD,
    }
    return Binder(api, Settings().vendors, **{**given, **more})


async def bind(api: Any, **more: Any) -> Outcome:
    outcomes: list[Outcome] = []
    binder = binder_of(api, outcomes, **more)
    binder.submit(BIND)
    await binder.drain(10)
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize("steps", [(LOST, RuntimeError("a bug")), (RuntimeError("a bug"),)])
async def test_whatever_happens_while_a_write_may_come_true_is_no_refusal(steps: tuple[Exception, ...]) -> None:
    server = Server(*steps)
    assert (await bind(server)).fate is Fate.BOUND
    assert server.sent == ["POST"] * (len(steps) + 1)


async def test_a_failure_of_our_own_after_a_lost_answer_gives_nothing_up_before_the_pod_is_stamped() -> None:
    versions = iter(["1"])
    outcome = await bind(server := Server(LOST), version_of=lambda bind: next(versions))
    assert outcome.fate is Fate.CHANGED
    assert server.sent == ["POST", "GET", "PATCH"]


class Garbled(Server):
    """Its next answers cannot be read."""

    def __init__(self, count: int, *steps: Exception | None) -> None:
        super().__init__(*steps)
        self.count = count

    async def get(self, path: str) -> bytes:
        self.count -= 1
        return b'{"metadata": 1}' if self.count >= 0 else await super().get(path)


async def test_an_answer_that_cannot_be_read_is_asked_for_again_while_a_write_may_come_true() -> None:
    server, said = Garbled(4, LOST, Forbidden("no", code=403)), Logged()
    assert (await bind(server, log=said)).fate is Fate.CHANGED
    assert server.count == -1
    assert len(said) == 1
    assert "not known yet whether it is bound" in said[0]


async def test_an_answer_that_cannot_be_read_is_a_refusal_where_nothing_can_come_true() -> None:
    assert (await bind(Garbled(9, Conflict("modified", code=409)))).fate is Fate.REFUSED


async def test_a_pod_with_nulls_is_read_as_the_watch_reads_it() -> None:
    server = Server(Conflict("modified", code=409))
    assert server.pod is not None
    server.pod["metadata"]["annotations"] = None
    assert (await bind(server)).fate is Fate.CHANGED


async def test_a_lock_that_cannot_be_given_back_changes_nothing_about_the_bind() -> None:
    class Stuck:
        async def take(self, bind: Bind) -> bool:
            return True

        def holds(self, bind: Bind) -> bool:
            return True

        async def give_back(self, bind: Bind, bound: bool) -> None:
            raise RuntimeError("a bug")

    assert (await bind(Server(), turn=Stuck())).fate is Fate.BOUND


async def test_no_stamp_is_written_while_the_lease_may_be_anothers() -> None:
    answers = [True, True, False, False, True]
    server = Server(LOST, Forbidden("no", code=403))
    assert (await bind(server, may_write=lambda: answers.pop(0))).fate is Fate.CHANGED
    assert server.sent == ["POST", "POST", "GET", "GET", "GET", "PATCH"]


@pytest.mark.parametrize(("still", "sent"), [(True, ["POST", "PATCH"]), (False, ["POST"])])
async def test_the_label_of_old_servers_is_left_out_once_the_lease_may_be_anothers(
    still: bool, sent: list[str]
) -> None:
    answers, server = [True, still], Server()
    assert (await bind(server, may_write=lambda: answers.pop(0), server=(1, 34))).fate is Fate.BOUND
    assert server.sent == sent


async def test_binds_that_wait_for_a_volume_or_a_lock_are_not_being_written() -> None:
    seen: list[int] = []

    class Asked:
        async def take(self, bind: Bind) -> bool:
            seen.append(binder.writing)
            return False

        async def give_back(self, bind: Bind, bound: bool) -> None: ...

    async def volumes(bind: Bind) -> str:
        seen.append(binder.writing)
        return ""

    async def settled(uid: str) -> None:
        seen.append(binder.writing)

    binder = binder_of(Server(), [], settled=settled, volumes=volumes, turn=Asked())
    binder.submit(Bind(POD, BIND.decision, (VolumeChoice("ml/c", "uid-c", "n"),)))
    await binder.drain(10)
    assert seen == [0, 0, 1]
    assert binder.writing == 0
