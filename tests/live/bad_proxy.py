"""A bad road to the API server: a proxy on loopback that throttles, fails, delays, and loses answers by its dice."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType

import aiohttp
from aiohttp import web

from tools.controlplane.client import Access
from tools.controlplane.process import free_ports

MOST_BODY = 64 * 2**20
HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}


class BadProxy:
    """`with BadProxy(access, seed) as proxy: …`; `trouble` may be changed while it runs: kind -> chance."""

    def __init__(self, access: Access, seed: int, **trouble: float) -> None:
        self.trouble = trouble  # throttle, fail, lose (done, but nobody hears of it), drop, delay
        self.did: Counter[str] = Counter()
        self.port = free_ports(1)[0]
        self._access, self._dice = access, random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._up, self._down = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)

    def __enter__(self) -> BadProxy:
        self._thread.start()
        assert self._up.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join(30)
        self._loop.close()

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """The same user by this road."""
        document = json.loads(original.read_text(encoding="utf-8"))
        document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    async def _serve(self) -> None:
        trust = ssl.create_default_context(cafile=str(self._access.authority))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=MOST_BODY)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            self._up.set()
            await self._down.wait()
            await runner.cleanup()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:  # of connections that were cut
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0.3)  # TLS connections of the session say goodbye, or they are found unclosed

    def _draw(self) -> str:
        chance = self._dice.random()
        for kind, share in self.trouble.items():
            if chance < share:
                self.did[kind] += 1
                return kind
            chance -= share
        return ""

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        trouble = self._draw()
        if trouble == "throttle":
            return web.json_response(_status(429), status=429, headers={"Retry-After": "1"})
        if trouble == "fail":
            return web.json_response(_status(500), status=500)
        if trouble == "delay":
            await asyncio.sleep(self._dice.uniform(0.05, 1.0))
        if trouble == "drop":
            return self._cut(request)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in HOP}
        url = f"https://127.0.0.1:{self._access.port}{request.raw_path}"
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=await request.read() or None
            ) as answer:
                if trouble == "lose" and "watch=true" not in request.raw_path:
                    await answer.read()
                    return self._cut(request)
                return await self._hand_back(request, answer)
        except aiohttp.ClientError:
            return self._cut(request)

    async def _hand_back(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = {key: value for key, value in answer.headers.items() if key.lower() not in HOP}
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response

    def _cut(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)


def _status(code: int) -> dict[str, object]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "by the dice"}
