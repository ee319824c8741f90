"""Two schedulers and one Lease, and permissions that are missing."""

from __future__ import annotations

import random

import pytest

from tests.live.dovetail_process import Dovetail, scheduling
from tests.live.faults import Witness, create_all, everybody_settled, mixed
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane


def _writers(api: Client) -> set[str]:
    """Who says that they scheduled something."""
    events = api.ask("GET", "/apis/events.k8s.io/v1/events")["items"]
    return {event["reportingInstance"] for event in events if event["reason"] == "Scheduled"}


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
def test_the_second_takes_over(clean: bool, plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    dice = random.Random(3)
    create_all(api, (node(f"n{number}", gpus=8) for number in range(6)))
    terms = ("--lease-seconds", "4")
    with scheduling(plane, *terms, "--identity", "first") as first, Witness(api) as witness:
        second = Dovetail(plane, *terms, "--identity", "second")
        try:
            second.start(wait=False)
            create_all(api, (mixed(dice, f"a{number}") for number in range(40)))
            everybody_settled(api)
            api.wait_until(lambda: _writers(api), "events were sent")
            assert _writers(api) == {"first"}
            assert not second.is_ready()
            lease = api.get("Lease", "dovetail-scheduler", "kube-system")
            assert lease["spec"]["holderIdentity"] == "first"
            first.stop() if clean else first.kill()
            create_all(api, (mixed(dice, f"b{number}") for number in range(40)))
            api.wait_until(second.is_ready, "the second takes over")
            everybody_settled(api)
            lease = api.get("Lease", "dovetail-scheduler", "kube-system")
            assert lease["spec"]["holderIdentity"] == "second"
            stamped = [
                item for item in api.list("Pod") if "dovetail.dev/epoch" in item["metadata"].get("annotations", {})
            ]
            assert bool(stamped) is not clean  # after a goodbye nobody need be careful
        finally:
            second.stop()
    assert witness.wrong == []


def _without(api: Client, resource: str, verb: str) -> None:
    """As the shipped role, less one permission."""
    role: Object = api.get("ClusterRole", "dovetail-scheduler")
    for rule in role["rules"]:
        if resource in rule["resources"] and verb in rule["verbs"]:
            rest = {**rule, "resources": [one for one in rule["resources"] if one != resource]}
            less = {**rule, "resources": [resource], "verbs": [one for one in rule["verbs"] if one != verb]}
            role["rules"].remove(rule)
            role["rules"] += [one for one in (rest, less) if one["resources"] and one["verbs"]]
            break
    else:
        raise AssertionError(f"nobody may {verb} {resource}")
    api.ask("PUT", "/apis/rbac.authorization.k8s.io/v1/clusterroles/dovetail-scheduler", role)


@pytest.mark.parametrize(("resource", "verb"), [("pods/binding", "create"), ("pods/status", "patch"), ("pods", "list")])
def test_a_missing_permission_is_named_and_survived(
    resource: str, verb: str, plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    create_all(api, [node("a", gpus=1)])
    with scheduling(plane) as dovetail:
        dovetail.kill()
        role = api.get("ClusterRole", "dovetail-scheduler")
        _without(api, resource, verb)
        create_all(api, [pod("one", gpu_limits(1, memory=1000)), pod("big", gpu_limits(9, memory=1000))])
        dovetail.start(wait=False)
        api.wait_until(
            lambda: f'lacks verb "{verb}" on resource "{resource}"' in dovetail.words(), "the permission is named"
        )
        assert dovetail.process is not None
        assert dovetail.process.running(), dovetail.words()
        api.ask(
            "PUT",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/dovetail-scheduler",
            {**role, "metadata": {"name": "dovetail-scheduler"}},
        )
        everybody_settled(api)
        assert api.get("Pod", "one")["spec"]["nodeName"] == "a"
