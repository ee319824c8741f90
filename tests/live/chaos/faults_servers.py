"""Faults of processes: the API server, its history, the scheduler, a second one beside it."""

from __future__ import annotations

import signal
import time

from tests.live.chaos.world import WHOLE, World
from tests.live.dovetail_process import ALONE, Dovetail
from tools.controlplane.objects import pod

SECOND = "dovetail-two"


def api_server_killed(w: World) -> None:
    w.excused = True
    w.plane.restart_api_server(grace=0)
    w.revive()
    w.fresh_node()


def api_server_away(w: World) -> None:
    """Longer than the scheduler may write without renewing its Lease, in some cases."""
    w.excused = True
    seconds = w.dice.uniform(1.0, 12.0)
    w.details.append(f"{seconds:.1f} s")
    w.plane.stop_api_server(grace=w.dice.choice((0.0, 10.0)))
    time.sleep(seconds)
    w.plane.start_api_server()
    w.revive()
    w.fresh_node()


def history_forgotten(w: World) -> None:
    w.excused = True
    w.plane.forget_history()
    w.revive()
    w.fresh_node()


def history_compacted(w: World) -> None:
    w.plane.compact()
    w.pause(0.2, 0.5)


def gang_across_a_restart(w: World) -> None:
    """The PodGroup is older than the API server, its members are younger: three of four are there, and may not go."""
    w.excused = True
    name = w.name("gang")
    w.pod_group(name, 4)
    w.gangs[f"default/{name}"] = 4
    with w.reserved(w.machine("hami").name) as only:
        w.plane.restart_api_server(grace=0)
        for _ in range(3):
            w.member(name, **only)
        w.revive()
        w.pause(2.0, 3.0)
        if bound := w.witness.bound_of_gang.get(f"default/{name}"):
            w.wrong.append(f"gang: {len(bound)} members of {name} were bound, 3 of 4 are there")
        w.disband(name)


def scheduler_killed(w: World) -> None:
    w.fill(6)
    time.sleep(w.dice.uniform(0.0, 0.3))
    w.dovetail.kill()
    w.pause(0.0, 1.0)
    w.dovetail.start()


def scheduler_stopped(w: World) -> None:
    w.fill(6)
    w.dovetail.stop()
    w.pause(0.0, 1.0)
    w.dovetail.start()


def scheduler_frozen(w: World) -> None:
    w.excused = True
    assert w.dovetail.process is not None
    w.fill(4)
    w.dovetail.process.signal(signal.SIGSTOP)
    try:
        w.pause(0.5, 7.0)
    finally:
        w.dovetail.process.signal(signal.SIGCONT)
    w.pause(0.2, 0.4)


def leader_killed(w: World) -> None:
    """A second replica takes over within its Lease, and gives way again."""
    second = Dovetail(w.plane, "--lease-seconds", "4", "--identity", "second", *ALONE)
    try:
        second.start(wait=False)
        w.pause(0.5, 2.0)
        w.fill(4)
        w.dovetail.kill()
        w.pause(0.5, 1.0)
        w.api.wait_until(second.is_ready, "the second replica takes over", 40)
        w.canaries()
    finally:
        second.stop()
        w.dovetail.start()


def two_schedulers(w: World) -> None:
    """Another Dovetail under another Lease and name, on the same nodes."""
    other = Dovetail(w.plane, "--lease-name", SECOND, "--scheduler-name", SECOND, "--identity", "other", *ALONE)
    names = [w.name("two") + f"-{number}" for number in range(8)]
    try:
        other.start(wait=False)
        w.pause(2.0, 3.0)
        for number, name in enumerate(names):
            w.create(pod(name, WHOLE, scheduler=("dovetail", SECOND)[number % 2]))
        w.pause(2.0, 3.0)
    finally:
        other.stop()
        for name in names:
            w.remove(name, now=True)


SERVER_FAULTS = (
    *(api_server_killed, api_server_away, history_forgotten, history_compacted, gang_across_a_restart),
    *(scheduler_killed, scheduler_stopped, scheduler_frozen, leader_killed, two_schedulers),
)
