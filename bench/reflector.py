"""How fast a list and a watch are read, and how much memory they need. The API server is a process that only sends.

Usage: `python bench/reflector.py [--tls] [pods] [events]`. The last line of the output is JSON. Events are counted per
second of this process's CPU time, on one core.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import resource
import ssl
import sys
import time
from typing import Any

from dovetail.cli.output.logs import Logger
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.kubeconfig import Connection
from dovetail.kube.api.reflector import Batch, Reflector
from dovetail.kube.api.watch import Replaced
from dovetail.kube.objects import core as objects

PATH = "/api/v1/pods"


def container(name: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "16Gi"}
    return {
        "name": name,
        "image": "registry.example.com/team/app:1.2.3",
        "resources": {"limits": {"nvidia.com/gpu": "1", **amounts}, "requests": amounts},
        "env": [{"name": f"VARIABLE_{i}", "value": "some value of some length"} for i in range(14)],
        "volumeMounts": [{"name": "access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    }


def pod(i: int) -> bytes:
    """A pod of about 5.5 kB, the usual size with managed fields."""
    metadata = {
        "name": f"pod-{i}",
        "namespace": "ml",
        "uid": f"{i:032x}",
        "resourceVersion": str(1000 + i),
        "creationTimestamp": "2026-11-16T00:00:00Z",
        "labels": {f"label-{k}": "value" for k in range(6)},
        "annotations": {f"example.com/note-{k}": "v" * 60 for k in range(6)},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:part-{k}": {"f:x": {}} for k in range(70)}}],
    }
    spec = {"containers": [container("a"), container("b")], "nodeName": f"node-{i % 500}", "schedulerName": "dovetail"}
    return json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}).encode()


async def send(writer: asyncio.StreamWriter, pods: list[bytes], events: int) -> None:
    """Send one HTTP chunk per event, as the API server does."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunks = []
    for i in range(events):
        line = b'{"type":"MODIFIED","object":' + pods[i % len(pods)] + b"}\n"
        chunks.append(b"%x\r\n%b\r\n" % (len(line), line))
        if len(chunks) == 20:
            writer.writelines(chunks)
            chunks.clear()
            await writer.drain()
    writer.writelines(chunks)
    await asyncio.Event().wait()


def serve(count: int, events: int, tls: tuple[str, str] | None, port: Any) -> None:
    pods = [pod(i) for i in range(count)]
    whole = b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[' + b",".join(pods) + b"]}"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if b"watch=true" in head:
                await send(writer, pods, events)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(whole)
            )
            writer.write(whole)

    async def main() -> None:
        context = None
        if tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*tls)
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
        port.put((server.sockets[0].getsockname()[1], len(pods[0])))
        await asyncio.Event().wait()

    asyncio.run(main())


async def measure(url: str, events: int) -> dict[str, Any]:
    marks: list[tuple[float, float]] = []  # wall, CPU
    seen, batches, done = 0, 0, asyncio.Event()

    def deliver(batch: Batch[objects.Pod]) -> None:
        nonlocal seen, batches
        if isinstance(batch[0], Replaced):
            gc.freeze()
            marks.append((time.perf_counter(), time.process_time()))
            return
        seen, batches = seen + len(batch), batches + 1
        if seen >= events:
            marks.append((time.perf_counter(), time.process_time()))
            done.set()

    async with Api(Credentials(Connection(url, "bench", insecure=True))) as api:
        marks.append((time.perf_counter(), time.process_time()))
        task = asyncio.create_task(Reflector(api, PATH, objects.Pod, deliver, report=Logger()).run())
        await done.wait()
        task.cancel()
    (_, start), (listed_wall, listed), (end_wall, end) = marks
    return {
        "list_cpu_s": round(listed - start, 3),
        "events_per_cpu_s": round(events / (end - listed)),
        "events_per_s": round(events / (end_wall - listed_wall)),
        "events_a_batch": round(events / batches),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def certificate(folder: str) -> tuple[str, str]:
    import trustme

    made = trustme.CA().issue_cert("127.0.0.1")
    paths = f"{folder}/chain.pem", f"{folder}/key.pem"
    made.cert_chain_pems[0].write_to_path(paths[0])
    made.private_key_pem.write_to_path(paths[1])
    return paths


def main() -> None:
    import tempfile

    numbers = [int(each) for each in sys.argv[1:] if each.isdecimal()]
    count, events = (*numbers, *(10_000, 40_000)[len(numbers) :])
    spawn = multiprocessing.get_context("spawn")
    port = spawn.Queue()
    with tempfile.TemporaryDirectory() as folder:
        tls = certificate(folder) if "--tls" in sys.argv else None
        server = spawn.Process(target=serve, args=(count, events, tls, port), daemon=True)
        server.start()
        try:
            number, size = port.get()
            found = asyncio.run(measure(f"{'https' if tls else 'http'}://127.0.0.1:{number}", events))
        finally:
            server.kill()
    print(json.dumps({"pods": count, "bytes_a_pod": size, "events": events, "tls": bool(tls), **found}))


if __name__ == "__main__":
    main()
