"""The extender's PodDisruptionBudget, kept by the real controller and the real Eviction API.

Of its two replicas only the leader is Ready. A drain must be able to take it, and must then wait for the next leader.
"""

from __future__ import annotations

import yaml

from tools.controlplane.access import DEPLOY
from tools.controlplane.client import Client, Object
from tools.controlplane.objects import node
from tools.controlplane.plane import ControlPlane

NAME = {"app.kubernetes.io/name": "dovetail-extender"}
REFUSED, EVICTED = 429, 201


def manifests(kind: str) -> list[Object]:
    text = (DEPLOY / "optional" / "extender" / "objects.yaml").read_text(encoding="utf-8")
    return [item for item in yaml.safe_load_all(text) if item and item["kind"] == kind]


def replica(api: Client, name: str, ready: bool) -> None:
    container = {"name": "extender", "image": "dovetail:dev"}
    meta = {"name": name, "namespace": "default", "labels": NAME}
    spec = {"containers": [container], "nodeName": "n", "terminationGracePeriodSeconds": 0}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    be_ready(api, name, ready)


def be_ready(api: Client, name: str, ready: bool) -> None:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    api.patch("Pod", name, {"status": {"phase": "Running", "conditions": [condition]}}, part="status")


def evict(api: Client, name: str) -> int:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    return api.status("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", body)


def allowed(api: Client, count: int) -> None:
    def is_so() -> bool:
        return bool(
            api.get("PodDisruptionBudget", "dovetail-extender").get("status", {}).get("disruptionsAllowed") == count
        )

    api.wait_until(is_so, f"{count} evictions are allowed", 60)


def test_the_leader_can_be_drained_and_the_next_eviction_waits_for_a_leader(plane: ControlPlane, api: Client) -> None:
    api.create(node("n", gpus=0))
    (budget,) = manifests("PodDisruptionBudget")
    budget["metadata"]["namespace"] = "default"
    api.create(budget)
    replica(api, "leads", ready=True)
    replica(api, "waits", ready=False)
    plane.start_controller_manager()
    allowed(api, 1)
    assert evict(api, "leads") == EVICTED
    allowed(api, 0)
    assert evict(api, "waits") == REFUSED  # nobody leads
    be_ready(api, "waits", ready=True)
    replica(api, "new", ready=False)
    allowed(api, 1)
    assert evict(api, "waits") == EVICTED


def test_the_budget_and_the_spread_are_those_of_the_extenders_pods() -> None:
    (budget,), (deployment,) = manifests("PodDisruptionBudget"), manifests("Deployment")
    template = deployment["spec"]["template"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    scheduler = next(
        item
        for item in yaml.safe_load_all((DEPLOY / "deployment.yaml").read_text(encoding="utf-8"))
        if item["kind"] == "Deployment"
    )
    ours, theirs = (
        [
            {key: value for key, value in one.items() if key != "labelSelector"}
            for one in spec["topologySpreadConstraints"]
        ]
        for spec in (template["spec"], scheduler["spec"]["template"]["spec"])
    )
    assert ours == theirs
    assert [one["labelSelector"]["matchLabels"] for one in template["spec"]["topologySpreadConstraints"]] == [
        NAME,
        NAME,
    ]
