"""An API server that crashes and comes back with its history intact: nothing may be listed as it was in the past."""

from __future__ import annotations

import time

from tests.live.dovetail_process import scheduling
from tests.live.faults import Witness, create_all, everybody_settled
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

LONGEST_BLIND = 50.0  # seconds; a second or two is usual. Listing the past lasted until etcd was compacted: 633 s
LEASE = ("--lease-seconds", "120")  # the same process has to live through it
WHOLE = gpu_limits(1, memory=15360, cores=100)


def _bound(api: Client) -> set[str]:
    return {item["metadata"]["name"] for item in api.list("Pod") if item["spec"].get("nodeName")}


def test_a_crashed_api_server_leaves_no_blind_period(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    create_all(api, [node("a", gpus=8)])
    with scheduling(plane, *LEASE) as dovetail:
        process = dovetail.process
        api.create(pod("before", gpu_limits(1, memory=1000)))
        api.wait_until(lambda: _bound(api) == {"before"}, "the first is bound")
        for number in range(5):  # versions that the pods' watch has not seen: the new server cannot go on from before
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"restart-{number}"}})
        plane.restart_api_server(grace=0)
        back = time.monotonic()
        api.create(pod("after", gpu_limits(1, memory=1000)))
        api.wait_until(lambda: _bound(api) == {"before", "after"}, "the scheduler sees the next pod", LONGEST_BLIND)
        assert time.monotonic() - back < LONGEST_BLIND
        api.wait_until(dovetail.is_ready, "all watches are back", LONGEST_BLIND)
        assert dovetail.process is process
        words = dovetail.words().splitlines()
        broken = [line for line in words if "/api/v1/pods at " in line]
        assert len(broken) == 1, broken  # said once
        api.wait_until(lambda: "/api/v1/pods: watching again, after" in dovetail.words(), "its end is said")


def test_crashes_between_binds_and_departures_give_nothing_twice(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    create_all(api, (node(f"n{number}", gpus=4) for number in range(4)))
    with scheduling(plane, *LEASE), Witness(api) as witness:
        for turn in range(3):
            create_all(api, (pod(f"t{turn}-{number}", WHOLE) for number in range(14)))
            plane.restart_api_server(grace=0)
            for item in api.list("Pod")[::2]:
                api.delete("Pod", item["metadata"]["name"])
        everybody_settled(api)
    assert witness.wrong == []


def test_readyz_names_what_is_not_current(plane: ControlPlane, api: Client) -> None:
    with scheduling(plane, *LEASE) as dovetail:
        assert dovetail.metric('dovetail_watch_age_seconds{resource="/api/v1/nodes"}') < 120
        plane.stop_api_server(grace=0)
        api.wait_until(lambda: dovetail.get("/readyz")[0] == 503, "the views are stale", 200)
        text = dovetail.get("/readyz")[1]
        assert "/api/v1/pods: no current view for " in text
        assert "cannot connect" in text
        assert "podgroups" not in text  # not served: nothing is missed
        assert dovetail.metric('dovetail_watch_failures_total{resource="/api/v1/nodes"}') > 1
        plane.start_api_server()
        api.wait_until(dovetail.is_ready, "the views are current again", 10 * LONGEST_BLIND)
