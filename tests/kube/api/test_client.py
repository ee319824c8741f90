"""Requests: what goes over the wire, and which error an answer means."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dovetail.kube.api import errors
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api, Patch
from dovetail.kube.api.errors import ApiError, Forbidden, Gone, Permission, Unauthorized, Unavailable
from dovetail.kube.api.kubeconfig import Connection
from dovetail.kube.api.typed import TypedReader
from dovetail.kube.objects import core as objects
from tests.kube.api.stub import PODS, api_of, drops, failure, hangs, lists, pod, refuses, says, serving, streams

BINDING = "/api/v1/namespaces/ml/pods/web-0/binding"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, errors.Invalid),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.Invalid),
        (409, errors.Conflict),
        (410, errors.Gone),
        (415, errors.Invalid),
        (422, errors.Invalid),
        (429, errors.Throttled),
        (302, errors.Unavailable),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
        (504, errors.Unavailable),
    ],
)
async def test_each_refusal_is_an_error_of_its_own(code: int, kind: type[ApiError]) -> None:
    async with serving() as stub, api_of(stub) as api:
        stub.others = [refuses(code, "SomeReason", "because")]
        with pytest.raises(kind) as caught:
            await api.post(BINDING, {})
        assert type(caught.value) is kind
        assert (caught.value.code, caught.value.reason) == (code, "SomeReason")
        assert str(caught.value) == f"POST {BINDING}: {code} SomeReason: because"


async def test_a_missing_permission_is_named() -> None:
    said = (
        'pods "web-0" is forbidden: User "system:serviceaccount:dovetail:dovetail" cannot create resource '
        '"pods/binding" in API group "" in the namespace "ml"'
    )
    async with serving() as stub, api_of(stub) as api:
        stub.others = [refuses(403, "Forbidden", said)]
        with pytest.raises(Forbidden) as caught:
            await api.post(BINDING, {})
    user = "system:serviceaccount:dovetail:dovetail"
    assert caught.value.missing == Permission(user, "create", "pods/binding", "", "ml")
    assert 'lacks verb "create" on resource "pods/binding" in API group ""' in str(caught.value)
    assert 'a Role in namespace "ml"' in str(caught.value)


async def test_a_refusal_by_quota_is_no_missing_permission() -> None:
    async with serving() as stub, api_of(stub) as api:
        stub.others = [refuses(403, "Forbidden", 'pods "a" is forbidden: exceeded quota: gpus')]
        with pytest.raises(Forbidden) as caught:
            await api.post(PODS, {})
    assert caught.value.missing is None
    assert "exceeded quota: gpus" in str(caught.value)


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("7", None, 7.0),
        (None, 3, 3.0),
        (None, None, None),
        ("Fri, 31 Dec 1999 23:59:59 GMT", None, None),
        ("-1", None, None),
    ],
)
async def test_how_long_to_wait(header: str | None, details: int | None, seconds: float | None) -> None:
    status = failure(429, "TooManyRequests", "", **({"retryAfterSeconds": details} if details else {}))
    headers = {"Retry_After": header} if header else {}
    async with serving() as stub, api_of(stub) as api:
        stub.others = [says(status, 429, **headers)]
        with pytest.raises(errors.Throttled) as caught:
            await api.get("/version")
    assert caught.value.retry_after == seconds
    assert not caught.value.sent


async def test_a_proxys_html_is_quoted() -> None:
    async with serving() as stub, api_of(stub) as api:
        stub.others = [says("<h1>Bad Gateway</h1>", 502)]
        with pytest.raises(Unavailable, match="Bad Gateway"):
            await api.get("/version")


async def test_nobody_there() -> None:
    async with serving() as stub:
        url = stub.url
    async with Api(Credentials(Connection(url, "a test"))) as api:
        with pytest.raises(Unavailable, match="cannot connect") as caught:
            await api.post(BINDING, {})
    assert not caught.value.sent  # so a POST may be sent again


async def test_a_connection_that_breaks_may_have_done_its_work() -> None:
    async with serving() as stub, api_of(stub) as api:
        stub.others = [drops]
        with pytest.raises(Unavailable, match="the connection broke") as caught:
            await api.post(BINDING, {})
        assert caught.value.sent
        assert len(stub.seen) == 1  # not tried again behind the caller's back


async def test_an_answer_that_does_not_come() -> None:
    async with serving() as stub, Api(Credentials(Connection(stub.url, "a test")), timeout=0.05) as api:
        stub.others = [streams(hangs)]
        with pytest.raises(Unavailable):
            await api.get("/version")


async def test_bodies_are_json_and_patches_say_their_kind() -> None:
    kinds: dict[Patch, str] = {
        "merge": "application/merge-patch+json",
        "strategic": "application/strategic-merge-patch+json",
        "apply": "application/apply-patch+yaml",
        "json": "application/json-patch+json",
    }
    async with serving() as stub, api_of(stub) as api:
        for kind in kinds:
            await api.patch(PODS + "/a", {"x": 1}, kind, {"fieldManager": "dovetail"})
        assert [request.headers["Content-Type"] for request in stub.seen] == list(kinds.values())
        assert {request.query["fieldManager"] for request in stub.seen} == {"dovetail"}
        await api.post(PODS, objects.Toleration(key="a"))
        await api.put(PODS + "/a", b'{"raw": true}')
        await api.delete(PODS + "/a")
        assert [json.loads(body) if body else None for body in stub.bodies[4:]] == [
            {"key": "a"},
            {"raw": True},
            None,
        ]
        assert stub.seen[-1].headers["User-Agent"].startswith("dovetail/")


async def test_names_with_signs_go_over_the_wire_as_they_are() -> None:
    async with serving() as stub, api_of(stub) as api:
        await api.get("/apis/x/v1/things/a%2Fb", {"fieldSelector": "spec.nodeName=,status.phase!=Failed"})
        assert stub.seen[0].raw_path.startswith("/apis/x/v1/things/a%2Fb?")
        assert stub.seen[0].query["fieldSelector"] == "spec.nodeName=,status.phase!=Failed"


async def test_a_rotated_token_is_read_again_after_401(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    async with serving() as stub, api_of(stub, token_file=token) as api:
        await api.get("/version")
        token.write_text("new\n")
        stub.others = [refuses(401, "Unauthorized"), says({})]
        await api.get("/version")
        assert [request.headers["Authorization"] for request in stub.seen] == ["Bearer old", "Bearer old", "Bearer new"]


async def test_who_acts_as_somebody_else_says_so_in_every_request() -> None:
    headers = (("Impersonate-User", "jane"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))
    async with serving() as stub, api_of(stub, headers=headers) as api:
        await api.post(PODS, {})
        assert stub.seen[0].headers.getall("Impersonate-Group") == ["dev", "ops"]
        assert stub.seen[0].headers["Impersonate-User"] == "jane"


async def test_a_token_that_is_refused_twice_is_an_error(tmp_path: Path) -> None:
    async with serving() as stub, api_of(stub, token="secret") as api:
        stub.others = [refuses(401, "Unauthorized", "Unauthorized")]
        with pytest.raises(Unauthorized) as caught:
            await api.get("/version")
        assert len(stub.seen) == 2
        assert "secret" not in str(caught.value) + repr(api.credentials) + repr(api.credentials.connection)


async def test_pages_of_a_list() -> None:
    async with serving() as stub, api_of(stub) as api:
        stub.lists = [lists(pod("a"), version=5, rest="next"), lists(pod("b"), version=5)]
        pages = [page async for page in api.list_pages(PODS, TypedReader(objects.Pod), version="", limit=1)]
        assert [[item.metadata.name for item in page.items] for page in pages] == [["a"], ["b"]]
        assert [dict(query) for query in stub.asked(watch=False)] == [
            {"limit": "1"},
            {"limit": "1", "continue": "next"},
        ]


async def test_an_expired_page_is_the_callers_business() -> None:
    async with serving() as stub, api_of(stub) as api:
        stub.lists = [lists(pod("a"), rest="next"), refuses(410, "Expired")]
        with pytest.raises(Gone):
            assert [page async for page in api.list_pages(PODS, TypedReader(objects.Pod))]


async def test_an_answer_that_is_no_list() -> None:
    async with serving() as stub, api_of(stub) as api:
        stub.lists = [says("hello")]
        with pytest.raises(Unavailable, match="is no list"):
            assert [page async for page in api.list_pages(PODS, TypedReader(objects.Pod))]


async def test_requests_share_connections() -> None:
    async with serving() as stub, api_of(stub) as api:
        for _ in range(3):
            await api.get("/version")
        await asyncio.gather(*(api.get("/version") for _ in range(3)))
        assert len({id(request.transport) for request in stub.seen[:3]}) == 1


async def test_a_watch_ends_when_the_client_is_closed() -> None:
    async with serving() as stub, api_of(stub) as api, api.stream(PODS, {"watch": "true"}, quiet=60) as read:
        reading = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        await api.close()
        with pytest.raises(Unavailable, match="closed by ourselves"):
            await reading


async def test_through_a_proxy() -> None:
    """The stub is the proxy: what is asked of it names the server in full."""
    async with serving() as stub:
        connection = Connection("http://api.example.com", "a test", proxy=stub.url)
        async with Api(Credentials(connection)) as api:
            await api.get("/version")
        assert stub.seen[0].headers["Host"] == "api.example.com"
