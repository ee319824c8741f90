"""Pods with GPUs that went past the webhook are found, and reported once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kube.admission.unrouted import unrouted
from dovetail.kube.api.watch import Changed
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.live.unrouted_pods import MOST_UNROUTED_LINES, UnroutedPods
from dovetail.kube.objects import core as objects
from tests.kube.logged import Logged


def pod(limits: dict[str, Any], number: int = 0, scheduler: str = "default-scheduler", **meta: Any) -> objects.Pod:
    body = {
        "metadata": {"name": f"p-{number}", "namespace": "team", "uid": f"u-{number}", **meta},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    return msgspec.convert(body, objects.Pod)


@pytest.mark.parametrize(
    ("source", "namespace", "names", "found"),
    [
        (pod({"nvidia.com/gpu": 1}), {}, {"dovetail"}, True),
        (pod({"nvidia.com/gpumem": 1}), {}, {"dovetail"}, True),
        (pod({"cpu": 1}), {}, {"dovetail"}, False),
        (pod({"aliyun.com/gpu-mem": 1}), {}, {"dovetail"}, False),  # gpushare has a scheduler of its own
        (pod({"nvidia.com/gpu": 1}, scheduler="dovetail"), {}, {"dovetail"}, False),
        (pod({"nvidia.com/gpu": 1}, scheduler="volcano"), {}, {"dovetail"}, False),
        (pod({"nvidia.com/gpu": 1}), {}, {"dovetail", "default-scheduler"}, False),  # Dovetail is the default
        (pod({"nvidia.com/gpu": 1}, labels={"hami.io/webhook": "ignore"}), {}, {"dovetail"}, False),
        (pod({"nvidia.com/gpu": 1}), {"hami.io/webhook": "ignore"}, {"dovetail"}, False),
    ],
)
def test_which_pods_went_past(source: objects.Pod, namespace: dict[str, str], names: set[str], found: bool) -> None:
    assert bool(unrouted(source, namespace, DEFAULT_VENDORS, names)) is found


def test_they_are_counted_and_the_first_are_named() -> None:
    log = Logged()
    pods = UnroutedPods(DEFAULT_VENDORS, {"dovetail"}, lambda name: {}, log)
    for _ in range(2):
        pods.hear([Changed(pod({"nvidia.com/gpu": 1}, number)) for number in range(50)])
    assert (len(pods), len(log)) == (50, MOST_UNROUTED_LINES)
    assert log[0].startswith(
        "team/p-0 asks for cards of NVIDIA and names default-scheduler: the webhook did not see it"
    )
    pods.hear([Changed(pod({"nvidia.com/gpu": 1}, number, scheduler="dovetail")) for number in range(50)])
    assert len(pods) == 0


def test_they_are_counted_by_whether_they_have_a_node() -> None:
    pods = UnroutedPods(DEFAULT_VENDORS, {"dovetail"}, lambda name: {}, Logged())
    assert pods.by_state == {("waiting",): 0, ("bound",): 0}
    pods.hear([Changed(pod({"nvidia.com/gpu": 1}, number)) for number in range(3)])
    assert pods.by_state == {("waiting",): 3, ("bound",): 0}
    body = msgspec.to_builtins(pod({"nvidia.com/gpu": 1}, 1))
    body["spec"]["nodeName"] = "n"
    pods.hear([Changed(msgspec.convert(body, objects.Pod))])
    assert pods.by_state == {("waiting",): 2, ("bound",): 1}


def test_pods_of_a_namespace_that_is_ignored_now_are_not_counted_any_more() -> None:
    labels: dict[str, str] = {}
    pods = UnroutedPods(DEFAULT_VENDORS, {"dovetail"}, lambda name: labels, Logged())
    pods.hear([Changed(pod({"nvidia.com/gpu": 1}))])
    pods.namespaces_changed()
    assert len(pods) == 1
    labels["hami.io/webhook"] = "ignore"
    pods.namespaces_changed()
    assert len(pods) == 0
