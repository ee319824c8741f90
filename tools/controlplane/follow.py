"""List and watch, and write, for the stand-in kubelet (asyncio). It survives restarts of the API server."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

import aiohttp

from tools.controlplane.client import STRATEGIC, Access, Object, path_of

RETRY_SECONDS = 0.2
WATCH_SECONDS = 300
GOODBYE_SECONDS = 0.1  # TLS connections that were closed while in use take a moment to go away
LINE_BYTES = 16 << 20  # an event is one line, and a pod may be large


class Hub:
    """Reads and writes that survive restarts of the API server."""

    def __init__(self, access: Access) -> None:
        trust = ssl.create_default_context(cafile=str(access.authority))
        self._root = f"https://127.0.0.1:{access.port}"
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {access.token}"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=64),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SECONDS + 30),
            read_bufsize=LINE_BYTES,
        )

    async def __aenter__(self) -> Hub:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await asyncio.sleep(GOODBYE_SECONDS)

    async def ask(self, verb: str, path: str, body: Any = None, content: str = STRATEGIC) -> tuple[int, Any]:
        """Send the request until the response is neither 429 nor 5xx."""
        data = json.dumps(body) if body is not None else None
        headers = {"Content-Type": content} if body is not None else {}
        while True:
            try:
                async with self._session.request(verb, self._root + path, data=data, headers=headers) as response:
                    if response.status != 429 and response.status < 500:
                        return response.status, await response.json(content_type=None)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                pass
            await asyncio.sleep(RETRY_SECONDS)

    async def follow(
        self, kind: str, selector: str, replace: Callable[[list[Object]], None], change: Callable[[str, Object], None]
    ) -> None:
        """Call `replace(all)` after each list and `change(type, object)` for each event. Never returns."""
        path = path_of(kind, namespace=None)
        while True:
            status, said = await self.ask("GET", f"{path}?fieldSelector={selector}")
            if status != 200:
                raise RuntimeError(f"LIST {kind}: {status} {said}")
            replace(said["items"])
            await self._watch(f"{path}?fieldSelector={selector}", said["metadata"]["resourceVersion"], change)

    async def _watch(self, path: str, version: str, change: Callable[[str, Object], None]) -> None:
        """Watch, and continue where the stream broke. Returns when a new list is needed."""
        while True:
            query = f"&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
            try:
                async with self._session.get(self._root + path + query) as response:
                    if response.status == 410:
                        return
                    async for event in _events(response):
                        if event["type"] == "ERROR":
                            return
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            change(event["type"], event["object"])
            except (aiohttp.ClientError, TimeoutError, ValueError):
                await asyncio.sleep(RETRY_SECONDS)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Object]:
    """One event per line.

    Leaving the loop early aborts the connection: a clean close would wait for the rest of the stream.
    """
    if response.status != 200:
        raise aiohttp.ClientPayloadError(f"status {response.status}")
    try:
        async for line in response.content:
            yield json.loads(line)
    finally:
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()
