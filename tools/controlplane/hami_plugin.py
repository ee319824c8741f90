"""The visible half of HAMi's NVIDIA device plugin: the annotations of the pod and the lock of the node.

It allocates for the pod that the node's lock names, and removes the lock. It is stricter than the real plugin, which
would take the wrong pod silently: a missing lock, or the lock of another pod, is a complaint.
"""

from __future__ import annotations

from tools.controlplane.client import MERGE, Object, path_of
from tools.controlplane.follow import Hub
from tools.controlplane.objects import HANDSHAKE

LOCK = "hami.io/mutex.lock"  # on the node: time,namespace,pod
PHASE = "hami.io/bind-phase"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"


def serves(node: Object, pod: Object) -> bool:
    """True if HAMi's plugin runs on the node and the pod asks it for devices."""
    return HANDSHAKE in _notes(node) and "," in _notes(pod).get(TO_ALLOCATE, "")


async def allocate(hub: Hub, pod: Object) -> str | None:
    """Mark the pod and unlock the node. Returns what is wrong, or None."""
    meta, name = pod["metadata"], pod["spec"]["nodeName"]
    status, node = await hub.ask("GET", path_of("Node", name))
    if status != 200:
        return f"node {name} cannot be read: {status}"
    lock = _notes(node).get(LOCK)
    owner = f",{meta['namespace']},{meta['name']}"
    complaint = None
    if lock is None:
        complaint = f"no {LOCK} on node {name} while {meta['name']} is allocated"
    elif not lock.endswith(owner):
        complaint = f"{LOCK} of node {name} is {lock} while {meta['name']} is allocated"
    elif _notes(pod).get(PHASE) != "allocating":
        complaint = f"{PHASE} of {meta['name']} is {_notes(pod).get(PHASE)}, not allocating"
    await _mark(hub, pod, complaint)
    if lock is not None and lock.endswith(owner):
        await _unlock(hub, node)
    return complaint


async def _mark(hub: Hub, pod: Object, complaint: str | None) -> None:
    notes = {PHASE: "failed"}
    if complaint is None:  # a container's devices are erased once it has them; the separators stay
        notes = {PHASE: "success", TO_ALLOCATE: ";" * _notes(pod)[TO_ALLOCATE].count(";")}
    meta = pod["metadata"]
    await hub.ask("PATCH", path_of("Pod", meta["name"], meta["namespace"]), {"metadata": {"annotations": notes}}, MERGE)


async def _unlock(hub: Hub, node: Object) -> None:
    """Remove only the lock that was read: with the node's resourceVersion, and again after a conflict."""
    name, lock = node["metadata"]["name"], _notes(node)[LOCK]
    while _notes(node).get(LOCK) == lock:
        meta = {"annotations": {LOCK: None}, "resourceVersion": node["metadata"]["resourceVersion"]}
        status, _ = await hub.ask("PATCH", path_of("Node", name), {"metadata": meta}, MERGE)
        if status != 409:
            return
        status, node = await hub.ask("GET", path_of("Node", name))
        if status != 200:
            return


def _notes(item: Object) -> dict[str, str]:
    notes: dict[str, str] = item["metadata"].get("annotations") or {}
    return notes
