"""A namespace that is being deleted, on the real API server, which refuses Bindings and Events there."""

from __future__ import annotations

from tests.live.dovetail_process import scheduling
from tests.live.test_scheduling import placed
from tools.controlplane import objects
from tools.controlplane.client import Client, Object
from tools.controlplane.plane import ControlPlane


def events(api: Client) -> list[str]:
    return [f"{event['reason']} {event['regarding']['name']}" for event in _events(api)]


def _events(api: Client) -> list[Object]:
    items: list[Object] = api.ask("GET", "/apis/events.k8s.io/v1/namespaces/ending/events")["items"]
    return items


def test_its_pods_are_left_alone(plane: ControlPlane, api: Client) -> None:
    """No controller runs that would finish the deletion: the namespace stays as it is."""
    for name in ("ending", "other"):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    with scheduling(plane) as dovetail:
        for name in ("a", "b"):
            api.create(objects.pod(name, objects.gpu_limits(1), namespace="ending"))
            api.wait_until(lambda name=name: "cluster has no nodes" in _said(api, name), "it says why it waits", 30)  # type: ignore[misc]
        api.wait_until(lambda: len(events(api)) == 2, "and an event does", 30)
        api.delete("Namespace", "ending")
        assert api.get("Namespace", "ending")["status"]["phase"] == "Terminating"
        api.create(objects.node("n", gpus=2))
        api.create(objects.pod("c", objects.gpu_limits(1)))
        assert placed(api, "c") == ["n"]
        assert [pod["spec"].get("nodeName") for pod in api.list("Pod", "ending")] == [None, None]
        assert dovetail.metric("dovetail_bind_writes_total") == 1
        assert dovetail.metric("dovetail_pods_waiting") == 0
        assert len(events(api)) == 2
        assert "terminated" not in dovetail.words()
        assert "warning" not in dovetail.words()


def _said(api: Client, name: str) -> str:
    found = objects.condition(api.get("Pod", name, "ending"), "PodScheduled")
    return str(found["message"]) if found else ""
