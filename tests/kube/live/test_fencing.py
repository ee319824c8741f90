"""The stamp on a pod that waits: through its status, and by its condition where the annotations are full."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.kube.api.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from dovetail.kube.live.fencing import put_stamp
from tests.kube.live.stage import waiting
from tests.kube.manifests import Object

pytestmark = pytest.mark.asyncio
POD = "/api/v1/namespaces/ml/pods/a"
FULL = Invalid("metadata.annotations: Too long: may not be more than 262144 bytes", code=422)


class Server:
    """One pod. `refusals`: what the next patches are answered with; None = they are stored."""

    def __init__(self, *refusals: ApiError | None, **spec: str) -> None:
        self.pod: Object | None = waiting("a")
        self.pod["spec"] |= spec
        self.refusals = list(refusals)
        self.patches: list[tuple[str, Any, str]] = []

    async def get(self, path: str) -> bytes:
        assert path == POD
        if self.pod is None:
            raise NotFound("gone", code=404)
        return json.dumps(self.pod).encode()

    async def patch(self, path: str, body: Any, kind: str = "merge") -> bytes:
        self.patches.append((path, body, kind))
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        return await self.get(POD)


async def _stamp(server: Any, uid: str = "uid-a") -> Any:
    return await put_stamp(server, POD, uid, "3.me")


async def test_the_stamp_goes_through_the_status() -> None:
    server = Server()
    assert (await _stamp(server)).metadata.uid == "uid-a"
    body = {"metadata": {"uid": "uid-a", "annotations": {"dovetail.dev/epoch": "3.me"}}}
    assert server.patches == [(f"{POD}/status", body, "merge")]


@pytest.mark.parametrize("refusal", [FULL, Forbidden("a policy does not look through so many", code=403)])
async def test_a_pod_whose_annotations_are_full_is_fenced_by_its_condition(refusal: ApiError) -> None:
    server = Server(refusal)
    assert (await _stamp(server)).metadata.uid == "uid-a"
    path, body, kind = server.patches[-1]
    assert (path, kind, body["metadata"]["resourceVersion"]) == (f"{POD}/status", "strategic", "1")
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert "3.me" in condition["message"]  # each epoch changes the pod


async def test_a_pod_that_was_bound_meanwhile_gets_no_condition() -> None:
    server = Server(FULL, nodeName="n")
    assert (await _stamp(server)).spec.node_name == "n"
    assert len(server.patches) == 1


async def test_a_pod_that_changes_while_its_condition_is_written_is_looked_at_again() -> None:
    server = Server(FULL, Conflict("modified", code=409), FULL, None)
    assert await _stamp(server) is not None
    assert len(server.patches) == 4


async def test_a_right_that_is_missing_is_no_stamp() -> None:
    missing = Forbidden("may not patch pods/status", code=403)
    with pytest.raises(Forbidden):
        await _stamp(Server(missing, missing))


async def test_another_pod_of_the_name_is_none() -> None:
    immutable = Invalid("metadata.uid: field is immutable", code=422)
    server = Server(immutable)
    assert await _stamp(server, "uid-before") is None
    server.pod = None
    server.refusals = [Conflict("modified", code=409)]
    assert await _stamp(server) is None
