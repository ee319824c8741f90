"""Faults of HAMi's lock: a plugin that is gone, a holder that is gone, and nodes that change while binds wait."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from tests.live.chaos.faults_nodes import CORDON
from tests.live.chaos.machines import SIGNED, Machine
from tests.live.chaos.world import BLIND_SECONDS, RESERVED, World, put_back
from tools.controlplane.hami_plugin import LOCK
from tools.controlplane.objects import HANDSHAKE, REGISTER, gpu_limits, pod


def handshake_removed(w: World) -> None:
    """Nothing hands out cards under a lock any more: pods of the node may not wait for one to be let go."""
    one = w.machine("lock")
    share, names = gpu_limits(1, memory=1000, cores=5), [w.name("unlocked") + f"-{number}" for number in range(4)]
    with w.reserved(one.name) as only:
        w.create(pod(names[0], share, **only))  # not part of the load, which comes and goes by the dice
        w.pause(0.5, 1.0)
        w.note("Node", one.name, HANDSHAKE, None)
        for name in names[1:]:
            w.create(pod(name, share, **only))
        end = time.monotonic() + 2 * BLIND_SECONDS
        while time.monotonic() < end and not set(names) <= set(w.running()):
            w.pause(0.2, 0.3)
        if late := sorted(set(names) - set(w.running())):
            w.wrong.append(f"in vain: {', '.join(late)} wait for {one.name}, whose handshake is gone")
        for name in names:
            w.remove(name, now=True)
        w.note("Node", one.name, HANDSHAKE, SIGNED)
    w.pause(0.5, 1.5)


def _stamp(holder: str) -> str:
    return f"{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')},default,{holder}"


def lock_of_a_dead_pod(w: World) -> None:
    one = w.machine("lock")
    w.note("Node", one.name, LOCK, _stamp("gone"))
    w.fill(2, nodeSelector={"kubernetes.io/hostname": one.name})
    w.pause(0.5, 3.0)


@contextmanager
def _queue(w: World, one: Machine) -> Iterator[str]:
    """Pods whose binds wait for a lock that a pod of another scheduler holds."""
    holder, share = w.name("holder"), gpu_limits(1, memory=6000, cores=20)
    with w.reserved(one.name) as only:
        w.create(pod(holder, {"cpu": "1"}, scheduler="other"))
        w.note("Node", one.name, LOCK, _stamp(holder))
        for _ in range(4):
            w.create(pod(w.name("q"), share, labels={"load": "1"}, **only))
        w.pause(0.8, 1.5)
        yield holder
        w.remove(holder, now=True)


def changed_behind_a_lock(w: World) -> None:
    """What was fine when the bind was queued no longer is when the lock is free."""
    one, what = w.machine("lock"), w.dice.choice(("shrunk", "sick", "cordoned", "unschedulable", "tainted"))
    w.details.append(what)
    cards = one.register()
    for entry in cards:
        entry |= {"devmem": 1} if what == "shrunk" else {"health": False} if what == "sick" else {}
    taints = [RESERVED, {"key": "chaos", "value": "y", "effect": "NoSchedule"}] if what == "tainted" else [RESERVED]
    notes = {REGISTER: json.dumps(cards), CORDON: ",".join(one.uuids) if what == "cordoned" else None}
    spec = {"unschedulable": what == "unschedulable", "taints": taints}
    whole = {"metadata": {"annotations": {REGISTER: json.dumps(one.register()), CORDON: None}}}
    back = {**whole, "spec": {"unschedulable": False, "taints": [RESERVED]}}
    with _queue(w, one), put_back(w, one.name, {"metadata": {"annotations": notes}, "spec": spec}, back):
        w.pause(5.0, 6.0)  # longer than the witness's grace
        w.note("Node", one.name, LOCK, None)
        w.pause(1.0, 2.0)


def recreated_behind_a_lock(w: World) -> None:
    one = w.machine("lock")
    with _queue(w, one):
        before = len(w.kubelet.complaints)
        w.api.delete("Node", one.name)
        w.api.create(one.node())
        w.pause(1.0, 2.0)
        w.wrong += [f"lock: {what}" for what in w.kubelet.complaints[before:]]


LOCK_FAULTS = (handshake_removed, lock_of_a_dead_pod, changed_behind_a_lock, recreated_behind_a_lock)
