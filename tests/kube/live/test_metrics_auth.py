"""Who may read /metrics: the API server's reviews, kept for a while, and few of them for strangers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kube.api.errors import Forbidden
from dovetail.kube.live.metrics_auth import (
    ACCESS_REVIEWS,
    MAX_KEPT_ANSWERS,
    MAX_UNKNOWN_PER_SECOND,
    SECONDS_GRANTED,
    TOKEN_REVIEWS,
    Reviews,
)
from dovetail.kube.live.port import PortAnswer, PortRequest
from dovetail.kube.log import Field, Level

pytestmark = pytest.mark.asyncio


class Server:
    """Knows two tokens: `good` is Prometheus', `poor` is of a user without rights."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.now = 1000.0
        self.said: list[str] = []
        api: Any = self
        self.reviews = Reviews(api, self.log, now=lambda: self.now)

    def log(self, message: str, level: Level = Level.INFO, /, **fields: Field) -> None:
        self.said.append(message)

    async def post(self, path: str, body: Any) -> bytes:
        self.asked.append(path)
        if path == TOKEN_REVIEWS:
            token = body["spec"]["token"]
            user = {"username": f"user-{token}", "groups": ["system:authenticated"]}
            return msgspec.json.encode({"status": {"authenticated": token in ("good", "poor"), "user": user}})
        assert path == ACCESS_REVIEWS
        assert body["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        assert body["spec"]["groups"] == ["system:authenticated"]
        return msgspec.json.encode({"status": {"allowed": body["spec"]["user"] == "user-good"}})

    async def read(self, authorization: str) -> int:
        async def serve(asked: PortRequest) -> PortAnswer:
            return PortAnswer("numbers")

        return (await self.reviews.reviewed(serve)(PortRequest("/metrics", authorization))).status


@pytest.mark.parametrize(
    ("authorization", "status", "reviews"),
    [
        ("", 401, 0),
        ("Basic good", 401, 0),
        ("Bearer bad", 401, 1),
        ("Bearer poor", 403, 2),
        ("Bearer good", 200, 2),
        ("bearer  good ", 200, 2),
    ],
)
async def test_who_reads_is_asked_of_the_api_server(authorization: str, status: int, reviews: int) -> None:
    server = Server()
    assert await server.read(authorization) == status
    assert len(server.asked) == reviews
    assert await server.read(authorization) == status
    assert len(server.asked) == reviews  # kept


async def test_an_answer_is_asked_for_again_after_a_while() -> None:
    server = Server()
    await server.read("Bearer good")
    server.now += SECONDS_GRANTED + 1
    assert await server.read("Bearer good") == 200
    assert len(server.asked) == 4


async def test_made_up_tokens_keep_neither_the_api_server_busy_nor_prometheus_out() -> None:
    """1,000 of them in a second: 5 are asked about. What was granted is asked for again all the same."""
    server = Server()
    await server.read("Bearer good")
    server.now += SECONDS_GRANTED + 1
    server.asked.clear()
    statuses = [await server.read(f"Bearer made-up-{number}") for number in range(1_000)]
    assert statuses.count(401) == len(server.asked) == MAX_UNKNOWN_PER_SECOND
    assert statuses.count(503) == 1_000 - MAX_UNKNOWN_PER_SECOND
    assert await server.read("Bearer good") == 200


async def test_few_answers_are_kept_and_those_that_grant_longest() -> None:
    server = Server()
    await server.read("Bearer good")
    for number in range(3 * MAX_KEPT_ANSWERS):
        server.now += 0.1
        await server.read(f"Bearer made-up-{number}")
        assert len(server.reviews._kept) <= MAX_KEPT_ANSWERS
    server.asked.clear()
    assert await server.read("Bearer good") == 200
    assert server.asked == []


async def test_rights_that_are_missing_are_named_in_the_log() -> None:
    server = Server()

    async def forbidden(path: str, body: Any) -> bytes:
        raise Forbidden("may not create tokenreviews", code=403)

    server.post = forbidden  # type: ignore[method-assign]
    assert await server.read("Bearer good") == 503
    assert "deploy/optional/metrics-auth" in server.said[0]
