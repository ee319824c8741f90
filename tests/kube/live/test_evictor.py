"""Evictions: what is sent, what a refusal means, and when nothing is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.errors import Conflict, NotFound, Throttled, Unavailable, error_of
from dovetail.kube.api.retry import World
from dovetail.kube.live.evictor import MOST_FAILURES, Evictor
from dovetail.model.events import Evict
from dovetail.model.pod import Pod

pytestmark = pytest.mark.asyncio
HIGH = Pod("ml", "high", "uid-high", priority=10, scheduler="dovetail")


class Server:
    """Answers with what is queued, then with success; remembers what came."""

    def __init__(self, *answers: Exception) -> None:
        self.answers, self.sent = list(answers), list[tuple[str, str, Any]]()

    def _answer(self, verb: str, path: str, body: Any) -> bytes:
        self.sent.append((verb, path.removeprefix("/api/v1/namespaces/ml/pods/"), body))
        if verb != "PATCH" and self.answers:
            raise self.answers.pop(0)
        return b"{}"

    async def post(self, path: str, body: Any) -> bytes:
        return self._answer("POST", path, body)

    async def delete(self, path: str, body: Any) -> bytes:
        return self._answer("DELETE", path, body)

    async def patch(self, path: str, body: Any, kind: str) -> bytes:
        return self._answer("PATCH", path, body)


class Play:
    """One eviction of pod `low`, for pod `high`."""

    def __init__(self, server: Server, breaks: bool = False) -> None:
        self.server, self.running, self.is_wanted, self.leads = server, True, True, True
        self.there, self.surplus = True, 0
        self.evicted: list[str] = []
        self.refused: list[str] = []
        self.effect = Evict(Pod("ml", "low", "uid-low"), "n", "ml/high", "why", HIGH, breaks)
        api: Any = server
        self.evictor = Evictor(
            api,
            runs=lambda uid: self.running,
            exists=lambda uid: self.there,
            wanted=lambda effect: self.is_wanted,
            nominated=self._nominated,
            evicted=lambda effect: self.evicted.append(effect.pod.name),
            refused=lambda effect, why: self.refused.append(why),
            may_write=lambda: self.leads,
            now=lambda: 1000.0,
            is_broken=lambda gang, stopped: len(stopped) > self.surplus,
            world=World(sleep=self._sleep),
        )

    async def _nominated(self, effect: Evict) -> None:
        self.server.sent.append(("NOMINATED", "", None))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def run(self) -> list[str]:
        self.evictor.submit([self.effect])
        await asyncio.wait_for(asyncio.gather(*self.evictor.under_way), 10)
        return [verb for verb, _, _ in self.server.sent]


def by_budget() -> Throttled:
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2"}
    status = {"message": "Cannot evict pod", "reason": "TooManyRequests", "details": {"causes": [cause]}}
    error = error_of(429, msgspec.json.encode(status), "POST x")
    assert isinstance(error, Throttled)
    return error


async def test_the_nomination_comes_first_then_the_eviction_then_the_condition() -> None:
    play = Play(Server())
    assert await play.run() == ["NOMINATED", "POST", "PATCH"]
    _, (_, path, body), (_, status, patch) = play.server.sent
    assert path == "low/eviction"
    assert (body["kind"], body["metadata"]["name"]) == ("Eviction", "low")
    assert body["deleteOptions"] == {"preconditions": {"uid": "uid-low"}}
    assert status == "low/status"
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "PreemptionByScheduler")
    assert condition["message"] == "dovetail: preempting to accommodate a higher priority pod ml/high"
    assert (play.evicted, play.refused) == (["low"], [])


async def test_a_budget_is_broken_by_a_deletion_of_exactly_that_pod() -> None:
    play = Play(Server(), breaks=True)
    assert await play.run() == ["NOMINATED", "PATCH", "DELETE"]
    assert play.server.sent[-1][2]["preconditions"] == {"uid": "uid-low"}


async def test_a_budget_refuses_and_the_gate_stays_as_wide() -> None:
    play = Play(Server(by_budget()))
    await play.run()
    assert len(play.refused) == 1
    assert play.evicted == []
    assert play.evictor.gate.throttled == 0


async def test_a_busy_server_is_asked_again() -> None:
    play = Play(Server(Throttled("busy", code=429), Unavailable("away")))
    assert await play.run() == ["NOMINATED", "POST", "POST", "POST", "PATCH"]
    assert play.refused == []


async def test_a_server_that_goes_on_failing_is_given_up() -> None:
    """A pod with two budgets gets 500 each time: the Eviction API does not support it."""
    play = Play(Server(*(Unavailable("more than one PodDisruptionBudget", code=500) for _ in range(99))))
    assert (await play.run()).count("POST") == MOST_FAILURES
    assert play.refused == ["more than one PodDisruptionBudget"]


async def test_a_pod_that_is_gone_is_neither_evicted_nor_refused() -> None:
    play = Play(Server(NotFound("gone", code=404)))
    await play.run()
    assert (play.evicted, play.refused) == ([], [])


async def test_another_pod_of_the_name_is_left_alone() -> None:
    play = Play(Server(Conflict("uid", code=409)))

    def gone(uid: str) -> bool:
        return not play.server.sent[1:]  # the watch reports it after the first answer

    play.evictor._runs = gone
    assert (await play.run()).count("POST") == 1
    assert (play.evicted, play.refused) == ([], [])


async def test_nothing_is_sent_for_a_pod_that_is_ending_or_not_needed_any_more() -> None:
    ending, unneeded = Play(Server()), Play(Server())
    ending.running = unneeded.is_wanted = False
    assert await ending.run() == ["NOMINATED"]
    assert ending.refused == []
    assert await unneeded.run() == ["NOMINATED"]
    assert unneeded.refused == ["its place is no longer needed"]


async def test_without_the_lease_nothing_is_sent() -> None:
    play = Play(Server())
    play.leads = False
    play.evictor.submit([play.effect])
    await asyncio.sleep(0.05)
    assert [verb for verb, _, _ in play.server.sent] == ["NOMINATED"]
    for task in list(play.evictor.under_way):
        task.cancel()
    await asyncio.gather(*play.evictor.under_way, return_exceptions=True)


async def test_a_pod_that_has_ended_at_once_gets_no_condition() -> None:
    play = Play(Server())
    play.there = False
    assert await play.run() == ["NOMINATED", "POST"]
    assert play.evicted == ["low"]


@pytest.mark.parametrize(("surplus", "stopped"), [(0, 3), (1, 1), (2, 1)])
async def test_the_rest_of_a_gang_is_stopped_only_if_it_has_lost_members_that_it_needs(
    surplus: int, stopped: int
) -> None:
    """The preemptor is gone after the first eviction."""
    play = Play(Server())
    play.surplus = surplus
    members = [Evict(Pod("ml", name, f"uid-{name}", group="g"), "n", "ml/high", "why", HIGH) for name in "abc"]
    note = play.evictor._evicted

    def evicted(effect: Evict) -> None:
        note(effect)
        play.is_wanted = False

    play.evictor._evicted = evicted
    play.evictor.submit(members)
    await asyncio.wait_for(asyncio.gather(*play.evictor.under_way), 10)
    assert len(play.evicted) == stopped
    assert len(play.refused) == 3 - stopped
