"""The bare loop: posts Bindings with Dovetail's own client, with as many at once, and does nothing else.

Usage: `python -m bench.live_bare KUBECONFIG`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bench.live_cluster import NODES, PODS, listed
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.kubeconfig import from_files

AT_ONCE = 64  # the default of `dovetail scheduler --binds-at-once`


async def bind_all(kubeconfig: Path) -> None:
    async with Api(Credentials(from_files([kubeconfig])), connections=AT_ONCE) as api:
        pods = [each for each in await listed(api, PODS) if not each.spec.node_name]
        nodes = [each.metadata.name for each in await listed(api, NODES)]
        rest = iter(enumerate(pods))

        async def work() -> None:
            for n, pod in rest:
                node, meta = nodes[n % len(nodes)], pod.metadata
                text = f"GPU-{node}-0,NVIDIA,1024,10:;"
                notes = {
                    "hami.io/vgpu-node": node,
                    "hami.io/vgpu-time": "1700000000",
                    "hami.io/bind-phase": "success",
                    "hami.io/bind-time": "1700000000",
                    "hami.io/vgpu-devices-to-allocate": text,
                    "hami.io/vgpu-devices-allocated": text,
                }
                body = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {
                        "name": meta.name,
                        "namespace": "default",
                        "uid": meta.uid,
                        "resourceVersion": meta.resource_version,
                        "annotations": notes,
                        "labels": {"hami.io/vgpu-node": node},
                    },
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                }
                await api.post(f"{PODS}/{meta.name}/binding", body)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        await asyncio.Event().wait()  # until the process is stopped: its CPU time is read before that


if __name__ == "__main__":
    asyncio.run(bind_all(Path(sys.argv[1])))
