"""kube-scheduler and the extender are killed and frozen while pods are placed: no card is given twice, all pods run."""

from __future__ import annotations

import random
import time
from typing import Any

from tests.live.assigned import faults, holding, pieces
from tests.live.dovetail_process import AUDITED, wrong_ledger
from tests.live.extending import NAME, ExtenderProcess, extending, kube_scheduler_config
from tests.live.faults import Witness, create_all
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import HANDSHAKE, gpu_limits
from tools.controlplane.plane import ControlPlane

SEED = 20261118
A100, T4 = "NVIDIA A100-SXM4-80GB", "NVIDIA Tesla T4"
# Reported by HAMi's device plugin: the node needs HAMi's lock, which the plugin clears.
PLUGIN = {HANDSHAKE: "Reported_2026.11.18 10:00:00"}


def _nodes(api: Client, count: int, locked: bool) -> None:
    """Nodes of four cards; every second one of a kind that is larger and, if `locked`, has HAMi's plugin."""
    for n in range(count):
        name, model, memory = f"n{n:02}", A100 if n % 2 else T4, 81_920 if n % 2 else 15_360
        notes = PLUGIN if locked and n % 2 else {}
        api.create(objects.node(name, objects.cards(name, 4, memory, model), annotations=notes))


def _pod(dice: random.Random, name: str) -> Object:
    """A fraction, a whole card, two containers with a card each, a card of a kind, or no card."""
    kind = dice.choice(("fraction", "fraction", "whole", "two", "typed", "none"))
    if kind == "none":
        return objects.pod(name, {"cpu": "100m"}, NAME)
    if kind == "whole":
        return objects.pod(name, gpu_limits(1, cores=100), NAME)
    notes = {"nvidia.com/use-gputype": "A100"} if kind == "typed" else None
    made = objects.pod(name, gpu_limits(1, memory=dice.randrange(1000, 6000), cores=20), NAME, annotations=notes)
    if kind == "two":
        first: Object = made["spec"]["containers"][0]
        made["spec"]["containers"].append({**first, "name": "second"})
    return made


def _all_placed(api: Client, pods: list[Object], seconds: float = 180.0) -> list[Object]:
    names = {pod["metadata"]["name"] for pod in pods}

    def placed() -> list[Object]:
        held = [pod for pod in holding(api) if pod["metadata"]["name"] in names]
        return held if len(held) == len(names) else []

    return api.wait_until(placed, f"{len(names)} pods are placed", seconds)


def _wrong_annotations(pods: list[Object]) -> list[str]:
    """Pods whose record is not what they ask for: a card per container, of the memory and of the kind."""
    wrong = []
    for pod in pods:
        asks = [one["resources"]["limits"] for one in pod["spec"]["containers"]]
        asks = [limits for limits in asks if objects.GPU in limits]
        given = pieces(pod)
        memory = [int(limits.get(objects.GPU_MEMORY, 0)) for limits in asks]
        if len(given) != len(asks) or any(m and piece.memory != m for m, piece in zip(memory, given, strict=True)):
            wrong.append(f"{pod['metadata']['name']} asks for {asks} and has {given}")
        typed = (pod["metadata"].get("annotations") or {}).get("nvidia.com/use-gputype")
        if typed and int(pod["spec"]["nodeName"][1:]) % 2 == 0:
            wrong.append(f"{pod['metadata']['name']} wants an A100 and is on {pod['spec']['nodeName']}")
    return wrong


def _play(plane: ControlPlane, api: Client, pods: list[Object], breaking: Any, **asks: Any) -> ExtenderProcess:
    with extending(plane, *AUDITED, "--node-lock-retry-timeout", "3s", asks={"seconds": 5, **asks}) as extender:
        with Witness(api) as witness:
            create_all(api, pods)
            breaking(extender)
            placed = _all_placed(api, pods)
        assert witness.wrong == [], extender.words()[-5000:]
        assert faults(api) == []
        assert _wrong_annotations(placed) == []
        assert wrong_ledger(extender.words()) == []
    return extender


def test_a_hundred_mixed_pods(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    dice, kubelet.hami = random.Random(SEED), True
    _nodes(api, 20, locked=True)
    pods = [_pod(dice, f"p{n:03}") for n in range(100)]
    _play(plane, api, pods, lambda extender: None, seconds=30)
    assert kubelet.complaints == []


def test_kube_scheduler_and_extender_are_killed_and_frozen(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    dice = random.Random(SEED + 1)
    _nodes(api, 20, locked=False)
    pods = [_pod(dice, f"p{n:03}") for n in range(100)]

    def breaking(extender: ExtenderProcess) -> None:
        for _ in range(2):
            time.sleep(dice.uniform(0.2, 0.8))
            extender.kill()
            extender.start(wait=False)
            time.sleep(dice.uniform(0.2, 0.8))
            plane.stop_component("kube-scheduler", grace=0)
            plane.start_scheduler(kube_scheduler_config(extender.url, 5))
        create_all(api, (late := [_pod(dice, f"late{n:02}") for n in range(20)]))
        pods.extend(late)
        time.sleep(0.3)
        extender.freeze()
        time.sleep(7.0)  # longer than the httpTimeout of 5 s, shorter than the ten in which a leader may write
        extender.go_on()

    _play(plane, api, pods, breaking)
