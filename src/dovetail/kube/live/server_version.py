"""The version of the API server."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dovetail.kube.api.client import Api, Json
from dovetail.kube.api.errors import ApiError, Forbidden, Unavailable
from dovetail.kube.api.retry import retrying


class _Version(msgspec.Struct, frozen=True):
    major: str = ""
    minor: str = ""


async def server_version(api: Api, tell: Callable[[ApiError], None]) -> tuple[int, int]:
    """The major and minor version. The server is asked several times; `tell` gets each error."""

    async def ask() -> Json:
        """A server that has just started forbids all requests until it knows its roles: try again."""
        try:
            return await api.get("/version")
        except Forbidden as error:
            raise Unavailable(error.message, code=error.code) from error

    found = version_in(await retrying(ask, tries=8, tell=tell))
    if found is None:
        raise ApiError("GET /version: the answer holds no version of Kubernetes; is this the address of an API server?")
    return found


def version_in(body: Json) -> tuple[int, int] | None:
    """The major and minor version in the answer to GET /version; None = it holds none."""
    try:
        said = msgspec.json.decode(body, type=_Version)
        return int(said.major), int(said.minor.rstrip("+"))
    except (msgspec.MsgspecError, ValueError):
        return None
