"""Nodes, cards and pods that go, come back and change while pods are being placed."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from tests.live.dovetail_process import scheduling
from tests.live.faults import Witness, create_all, everybody_settled, mixed, more
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU, REGISTER, card, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

SEED = 11


def _register(api: Client, name: str, cards: list[Object]) -> None:
    api.patch("Node", name, {"metadata": {"annotations": {REGISTER: json.dumps(cards)}}})


def _allocatable(api: Client, name: str, gpus: int) -> None:
    said = {"status": {"capacity": {GPU: str(gpus)}, "allocatable": {GPU: str(gpus)}}}
    api.patch("Node", name, said, part="status")


class Accidents:
    """What happens to nodes."""

    def __init__(self, api: Client, dice: random.Random, names: list[str]) -> None:
        self._api, self._dice, self._names = api, dice, names
        self._cards: dict[str, list[Object]] = {
            name: [card(f"GPU-{name}-{index}", index) for index in range(4)] for name in names
        }
        self._absent: set[str] = set()

    def one(self) -> None:
        name = self._dice.choice(self._names)
        if name in self._absent:
            self._absent.discard(name)
            self._api.create(node(name, gpus=self._cards[name]))
            return
        what = self._dice.choice(("vanish", "reboot", "back", "sick", "well", "swap"))
        cards = self._cards[name]
        if what == "vanish":
            self._absent.add(name)
            self._api.delete("Node", name)
        elif what in ("reboot", "back"):
            _allocatable(self._api, name, 0 if what == "reboot" else 40)
        elif what in ("sick", "well"):
            for each in cards[: 4 if what == "well" else 2]:
                each["health"] = what == "well"
            _register(self._api, name, cards)
        else:  # a card is replaced
            old = cards[0]["id"]
            cards[0] = card(f"{old}+", 0)
            _register(self._api, name, cards)

    def over(self) -> None:
        for name in self._names:
            if name in self._absent:
                self._api.create(node(name, gpus=self._cards[name]))
            for each in self._cards[name]:
                each["health"] = True
            _register(self._api, name, self._cards[name])
            _allocatable(self._api, name, 40)


def test_nodes_and_cards_that_go_and_come_back(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    dice = random.Random(SEED)
    names = [f"n{number}" for number in range(8)]
    accidents = Accidents(api, dice, names)
    create_all(api, (node(name, gpus=[card(f"GPU-{name}-{i}", i) for i in range(4)]) for name in names))
    with scheduling(plane) as dovetail, Witness(api) as witness:
        for number in range(more(150, 2_000)):
            api.create(mixed(dice, f"p{number:04}"))
            if number % 3 == 0:
                accidents.one()
            if number % 4 == 3:
                api.delete("Pod", f"p{dice.randrange(number):04}")
        accidents.over()
        everybody_settled(api, sums=False)
        assert dovetail.process is not None
        assert dovetail.process.running(), dovetail.words()
    assert witness.wrong == []


def test_pods_deleted_while_they_are_bound_and_names_that_come_again(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    dice = random.Random(SEED)
    create_all(api, (node(f"n{number}", gpus=4) for number in range(4)))
    with scheduling(plane), Witness(api) as witness:
        for turn in range(more(8, 80)):
            create_all(api, (mixed(dice, f"web-{number}") for number in range(20)))
            time.sleep(dice.uniform(0.0, 0.4))
            now: dict[str, Any] = {"gracePeriodSeconds": 0} if turn % 2 else {}
            for number in range(20):
                api.delete("Pod", f"web-{number}", **now)
            api.wait_until(lambda: not api.list("Pod"), "they are gone")
        create_all(api, (mixed(dice, f"web-{number}") for number in range(20)))
        everybody_settled(api)
    assert witness.wrong == []


def test_pods_that_change_while_they_are_bound(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    """Every change makes the Binding that is on its way fail: the pod is placed again, and nothing is lost."""
    dice = random.Random(SEED)
    create_all(api, (node(f"n{number}", gpus=4) for number in range(6)))
    with scheduling(plane), Witness(api) as witness:
        for number in range(more(80, 1_000)):
            name = f"p{number:04}"
            api.create(mixed(dice, name))
            for turn in range(dice.randrange(4)):
                api.patch("Pod", name, {"metadata": {"labels": {"turn": str(turn)}}})
            if number > 20:
                api.delete("Pod", f"p{number - 20:04}")
        everybody_settled(api)
    assert witness.wrong == []


def test_terminating_pods_keep_their_cards_across_a_restart(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    create_all(api, [node("a", gpus=2)])
    kubelet.stop_delay = 3600.0
    with scheduling(plane) as dovetail, Witness(api) as witness:
        create_all(api, (pod(f"old-{number}", gpu_limits(1, memory=15360, cores=100)) for number in range(2)))
        everybody_settled(api)
        for number in range(2):
            api.delete("Pod", f"old-{number}", gracePeriodSeconds=3600)
        dovetail.kill()
        api.create(pod("new", gpu_limits(1, memory=15360, cores=100)))
        dovetail.start()
        everybody_settled(api)  # it says that it waits
        assert not api.get("Pod", "new")["spec"].get("nodeName")
        api.delete("Pod", "old-0", gracePeriodSeconds=0)
        api.wait_until(lambda: api.get("Pod", "new")["spec"].get("nodeName"), "it gets the card that became free")
        everybody_settled(api)
    assert witness.wrong == []
