"""kill -9 of the scheduler at random moments, and a scheduler that is frozen while another one takes over."""

from __future__ import annotations

import random
import signal
import time

from tests.live.dovetail_process import Dovetail, scheduling
from tests.live.faults import Tenants, Witness, create_all, everybody_settled, more
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import node
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Process

SEED = 20261116


def _ends(process: Process) -> None:
    """Killed with SIGABRT, Python says where it was."""
    try:
        Client.wait_until(lambda: not process.running(), "the frozen one notices and ends", 30)
    except TimeoutError as error:
        process.signal(signal.SIGABRT)
        process.stop()
        raise AssertionError(f"{error}: {process.last_words(60)}") from None


def test_killed_again_and_again_while_a_thousand_pods_come_and_go(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    kills, pods, dice = more(30, 120), more(1_000, 5_000), random.Random(SEED)
    create_all(api, (node(f"n{number:02}", gpus=8) for number in range(40)))
    killed, tenants = 0, Tenants(api, SEED, pods, seconds=kills * 3.0)
    with scheduling(plane, interpreted=False) as dovetail, Witness(api) as witness, tenants:
        while killed < kills or (tenants.working() and tenants.made < pods / 2):  # up to the middle of it, at least
            time.sleep(dice.uniform(0.0, dice.choice((0.2, 1.2))))  # most is under way just after it has started
            dovetail.kill()
            dovetail.start(wait=dice.random() < 0.7)  # else it is killed while it starts
            killed += 1
        tenants.join()
        everybody_settled(api)
    assert witness.wrong == []
    assert len(witness.bound) > pods / 2
    print(f"{killed} kills, {tenants.made} pods, {tenants.left} left, {len(witness.bound)} bound")


def test_one_that_was_frozen_while_another_took_over_writes_nothing_more(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    rounds, dice = more(4, 30), random.Random(SEED)
    create_all(api, (node(f"n{number:02}", gpus=8) for number in range(10)))
    tenants = Tenants(api, SEED, rounds * 80, seconds=rounds * 10.0)
    terms = ("--lease-seconds", "3")
    with scheduling(plane, *terms, "--identity", "a", interpreted=False) as one, Witness(api) as witness, tenants:
        other = Dovetail(plane, *terms, "--identity", "b", interpreted=False)
        try:
            other.start(wait=False)
            leader, standby = one, other
            for _ in range(rounds):
                time.sleep(dice.uniform(0.5, 2.0))
                assert leader.process is not None
                frozen = leader.process
                frozen.signal(signal.SIGSTOP)
                api.wait_until(standby.is_ready, "the other one takes over", 60)
                time.sleep(dice.uniform(0.0, 0.5))
                frozen.signal(signal.SIGCONT)
                _ends(frozen)
                leader.process = None
                leader.start(wait=False)
                leader, standby = standby, leader
            tenants.join()
            everybody_settled(api)
        finally:
            other.stop()
    assert witness.wrong == []
