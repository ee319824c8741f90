"""What users rely on, live: names and profiles, priorities, gates, reasons, quotas, neighbours."""

from __future__ import annotations

from pathlib import Path

from tests.live.assigned import pieces
from tests.live.dovetail_process import scheduling
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane

WHOLE = objects.gpu_limits(1)  # a card for itself


def node_of(api: Client, name: str) -> str:
    return str(api.get("Pod", name)["spec"].get("nodeName", ""))


def placed(api: Client, *names: str) -> list[str]:
    def all_placed() -> list[str]:
        nodes = [node_of(api, name) for name in names]
        return nodes if all(nodes) else []

    return api.wait_until(all_placed, f"{', '.join(names)} have nodes", 30)


def reason(api: Client, name: str) -> Object:
    """The condition that says why the pod waits."""

    def said() -> Object | None:
        found = objects.condition(api.get("Pod", name), "PodScheduled")
        return found if found is not None and found["status"] == "False" else None

    return api.wait_until(said, f"{name} says why it waits", 30)


def test_each_scheduler_name_has_its_profile(plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: dovetail.dev/v1\nkind: Config\nschedulers:\n"
        "  dovetail: {nodePolicy: binpack}\n  hami-scheduler: {nodePolicy: spread}\n"
    )
    for name in ("a", "b"):
        api.create(objects.node(name, gpus=4))
    with scheduling(plane, "--config", str(config)):
        for n in range(2):
            api.create(objects.pod(f"packed-{n}", WHOLE))
        assert len(set(placed(api, "packed-0", "packed-1"))) == 1
        for n in range(2):
            api.create(objects.pod(f"even-{n}", WHOLE, scheduler="hami-scheduler"))
        nodes = placed(api, "even-0", "even-1")
        (full,) = {node_of(api, "packed-0")}
        assert full not in nodes  # spread: the other node has 0, then 1 of 4 cards in use against 2
        api.create(objects.pod("theirs", WHOLE, scheduler="somebody-else"))
        api.create(objects.pod("last", WHOLE))
        placed(api, "last")
        assert node_of(api, "theirs") == ""


def test_room_goes_to_the_highest_priority_then_to_the_oldest(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    for name, value in (("low", 10), ("high", 1000)):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        api.create({**kind, "value": value})
    api.create(objects.node("a", gpus=1))
    with scheduling(plane, "--no-preemption"):
        api.create(objects.pod("holds", WHOLE))
        placed(api, "holds")
        for name, priority in (("early-low", "low"), ("late-low", "low"), ("high", "high")):
            api.create(objects.pod(name, WHOLE, priorityClassName=priority))
            assert reason(api, name)["reason"] == "Unschedulable"
        for gone, came in (("holds", "high"), ("high", "early-low"), ("early-low", "late-low")):
            api.delete("Pod", gone)
            placed(api, came)


def test_a_gate_holds_a_pod_and_its_end_places_it(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("a", gpus=1))
    with scheduling(plane):
        api.create(objects.pod("gated", WHOLE, schedulingGates=[{"name": "example.com/wait"}]))
        api.create(objects.pod("free", {"cpu": "1"}))
        placed(api, "free")
        assert node_of(api, "gated") == ""
        assert reason(api, "gated")["reason"] == "SchedulingGated"  # the API server's own word
        api.patch("Pod", "gated", {"spec": {"schedulingGates": None}})
        placed(api, "gated")


def test_why_a_pod_waits_is_said_once_and_by_type(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("a", gpus=1, taints=[{"key": "x", "effect": "NoSchedule"}]))
    api.create(objects.node("b", gpus=1))
    with scheduling(plane):
        api.create(objects.pod("large", objects.gpu_limits(1, memory=99_999)))
        said = reason(api, "large")
        assert said["reason"] == "Unschedulable"
        short = "GPU memory short by 84,639 MiB on 1 node"  # 99,999 − 15,360
        assert said["message"] == f"0/2 nodes are available: {short}; taint x:NoSchedule not tolerated on 1 node."
        claims = [{"name": "gpu", "resourceClaimName": "mine"}]
        if plane.version >= (1, 34):  # before, resource claims were not served and the field was dropped
            api.create(objects.pod("claims", {"cpu": "1"}, resourceClaims=claims))
            assert reason(api, "claims")["reason"] == "ResourceClaimsNotSupported"
            assert node_of(api, "claims") == ""

        def told() -> list[Object]:
            return [event for event in api.list("Event") if event["reason"] == "FailedScheduling"]

        waiting = [pod["metadata"]["name"] for pod in api.list("Pod")]
        about = api.wait_until(lambda: told() if len(told()) >= len(waiting) else [], "events say so, too", 30)
        names = sorted(event["involvedObject"]["name"] for event in about)
        assert names == sorted(waiting)  # each once


def test_hamis_quota_on_gpu_memory_holds_and_lets_go(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    api.create(objects.node("a", gpus=2))
    hard = {"limits.nvidia.com/gpumem": "10000"}
    meta = {"name": "gpu", "namespace": "default"}
    api.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    with scheduling(plane):
        api.create(objects.pod("first", objects.gpu_limits(1, memory=6000)))
        placed(api, "first")
        api.create(objects.pod("second", objects.gpu_limits(1, memory=6000)))
        assert reason(api, "second")["reason"] == "QuotaExceeded"  # no node would help
        api.delete("Pod", "first")
        placed(api, "second")


def test_neighbours_that_keep_apart_wait_for_a_node_of_their_own(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    for name in ("a", "b"):
        api.create(objects.node(name, gpus=4))
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    with scheduling(plane):
        for n in range(3):
            api.create(objects.pod(f"web-{n}", objects.gpu_limits(1, 1000), labels={"app": "web"}, affinity=apart))
        assert set(placed(api, "web-0", "web-1")) == {"a", "b"}
        assert "pod anti-affinity" in reason(api, "web-2")["message"]
        api.delete("Pod", "web-0")
        placed(api, "web-2")


def test_a_pod_placed_says_which_cards_in_an_event(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("a", gpus=1))
    with scheduling(plane):
        api.create(objects.pod("p", objects.gpu_limits(1, memory=4096, cores=30)))
        placed(api, "p")
        (piece,) = pieces(api.get("Pod", "p"))
        assert (piece.card, piece.memory, piece.cores) == ("GPU-a-0", 4096, 30)

        def told() -> list[tuple[str, str]]:
            events = [event for event in api.list("Event") if event["reason"] == "Scheduled"]
            return [(event["reportingComponent"], event["message"]) for event in events]

        said = "Successfully assigned default/p to a: GPU-a-0 (4096 MiB, 30 %)"
        assert api.wait_until(told, "an event says so", 30) == [("dovetail", said)]
