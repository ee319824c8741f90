"""A run in which everything happens: gangs, preemption, pods deleted while they wait, a node that goes, and faults."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.live.faults import Tenants, create_all, everybody_settled, mixed
from tests.live.gangs import COSCHEDULING, LABELS, make_pod_group, pod_group_kinds
from tests.live.preempting import RANKS, priority_class
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.plane import ControlPlane

SEED = 16


def eventful_run(plane: ControlPlane, api: Client, pods: int, kill_and_start: Callable[[], None]) -> None:
    """Needs running schedulers of the name dovetail, and a stand-in kubelet."""
    dice = random.Random(SEED)
    for name, value in RANKS.items():
        api.create(priority_class(name, value))
    create_all(api, (objects.node(f"n{number:02}", gpus=8) for number in range(max(12, pods // 20))))
    with pod_group_kinds(api, COSCHEDULING):
        with Tenants(api, SEED, pods // 2, seconds=pods / 40) as tenants:
            _gangs(api, "first")
            _until(api, tenants, pods // 4)
            kill_and_start()
            tenants.join()
        late = [item["metadata"]["name"] for item in create_all(api, _more(dice, "late", pods // 4))]
        plane.stop_api_server(grace=0)  # in the middle of it
        plane.start_api_server()
        api.delete("Node", "n03")
        create_all(api, _more(dice, "later", pods - pods // 2 - pods // 4))
        for name in late[::2]:
            api.delete("Pod", name)
        _crowd(api, dice)
        kill_and_start()
        _gangs(api, "second")
        everybody_settled(api, 240, sums=False)


def _more(dice: random.Random, name: str, count: int) -> list[Object]:
    return [mixed(dice, f"{name}-{number}") for number in range(count)]


def _until(api: Client, tenants: Tenants, made: int) -> None:
    api.wait_until(lambda: tenants.made >= made or not tenants.working(), f"{made} pods were made", 240)


def _gangs(api: Client, name: str) -> None:
    """One gang that fits, and one that waits for ever."""
    for size, what in ((4, "fits"), (200, "waits")):
        make_pod_group(api, COSCHEDULING, f"{name}-{what}", minMember=size)
        labels = {LABELS[COSCHEDULING]: f"{name}-{what}"}
        limits = objects.gpu_limits(1, cores=100)
        create_all(api, (objects.pod(f"{name}-{what}-{n}", limits, labels=labels) for n in range(4)))


def _crowd(api: Client, dice: random.Random) -> None:
    """More pods than there is room for; some wait and are deleted, then others take places by their priority."""
    whole = objects.gpu_limits(1, cores=100)
    low = [f"low-{number}" for number in range(120)]
    create_all(api, (objects.pod(name, whole, priorityClassName="low") for name in low))

    def some_wait() -> bool:
        waiting = [item for item in api.list("Pod") if not item["spec"].get("nodeName")]
        return any(item["metadata"]["name"].startswith("low-") for item in waiting)

    api.wait_until(some_wait, "pods of low priority wait", 120)
    waiting = [item["metadata"]["name"] for item in api.list("Pod") if not item["spec"].get("nodeName")]
    for name in dice.sample(sorted(name for name in waiting if name.startswith("low-")), 3):
        api.delete("Pod", name)
    create_all(api, (objects.pod(f"high-{number}", whole, priorityClassName="high") for number in range(6)))
