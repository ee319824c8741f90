"""The API server goes away, forgets, throttles and loses answers: pods wait longer, and nothing else happens."""

from __future__ import annotations

import random
import time

from tests.live.bad_proxy import BadProxy
from tests.live.dovetail_process import scheduling
from tests.live.faults import Tenants, Witness, create_all, everybody_settled, kept_alive, mixed, more
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import node
from tools.controlplane.plane import ControlPlane

SEED = 7


def test_an_api_server_that_is_away_for_twenty_seconds(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    dice = random.Random(SEED)
    create_all(api, (node(f"n{number}", gpus=8) for number in range(10)))
    with scheduling(plane) as dovetail, kept_alive(dovetail), Witness(api) as witness:
        create_all(api, (mixed(dice, f"before-{number}") for number in range(100)))
        plane.stop_api_server(grace=0)  # in the middle of it
        time.sleep(20)
        plane.start_api_server()
        create_all(api, (mixed(dice, f"after-{number}") for number in range(40)))
        everybody_settled(api)
    assert witness.wrong == []


def test_history_that_is_lost_again_and_again(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    dice = random.Random(SEED)
    create_all(api, (node(f"n{number}", gpus=8) for number in range(10)))
    with scheduling(plane) as dovetail, kept_alive(dovetail), Witness(api) as witness:
        for turn in range(more(3, 20)):
            made = create_all(api, (mixed(dice, f"p{turn}-{number}") for number in range(50)))
            plane.forget_history()
            for one in made[::2]:  # while nobody watches
                api.delete("Pod", one["metadata"]["name"])
        everybody_settled(api)
    assert witness.wrong == []


def test_throttling_failures_and_lost_answers(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    pods = more(300, 3_000)
    create_all(api, (node(f"n{number:02}", gpus=8) for number in range(20)))
    trouble = {"throttle": 0.06, "fail": 0.04, "lose": 0.08, "drop": 0.03, "delay": 0.08}
    with BadProxy(api.access, SEED, **trouble) as proxy:
        road = proxy.kubeconfig(plane.kubeconfig("dovetail"), plane.path / "bad-road.kubeconfig")
        with scheduling(plane, "--kubeconfig", str(road)) as dovetail, kept_alive(dovetail), Witness(api) as witness:
            with Tenants(api, SEED, pods, seconds=pods / 20) as tenants:
                tenants.join()
            everybody_settled(api, 180)
            proxy.trouble = {}
            everybody_settled(api)
    assert witness.wrong == []
    assert all(proxy.did[kind] for kind in trouble), proxy.did
