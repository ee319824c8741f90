"""The control plane itself is what the other tests take it for."""

from __future__ import annotations

import pytest

from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.objects import condition, deployment, node, pod, pod_spec
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Failed


def resource_version(api: Client) -> str:
    version: str = api.ask("GET", "/api/v1/namespaces/default/pods")["metadata"]["resourceVersion"]
    return version


def refused(api: Client, version: str) -> int | None:
    """The code with which a watch from this resourceVersion is refused, at once or in its stream."""
    try:
        event: Object | None = next(api.watch("Pod", version, seconds=5), None)
    except ApiError as error:
        return error.status
    return event["object"]["code"] if event and event["type"] == "ERROR" else None


def test_who_has_no_role_may_do_nothing(plane: ControlPlane, api: Client) -> None:
    assert api.request("GET", "/api/v1/nodes")[0] == 200
    assert plane.client("nobody").request("GET", "/api/v1/nodes")[0] == 403
    assert plane.client("dovetail").request("GET", "/api/v1/nodes")[0] == 403
    assert plane.client(None).request("GET", "/api/v1/nodes")[0] == 403


def test_the_user_dovetail_has_its_roles(dovetail_api: Client) -> None:
    assert dovetail_api.request("GET", "/api/v1/nodes")[0] == 200


def test_kubectl_comes_in_with_the_kubeconfig_of_a_user(plane: ControlPlane, api: Client) -> None:
    api.create(node("a"))
    assert "node/a" in plane.kubectl("get", "nodes", "-o", "name")
    may = ("auth", "can-i", "create", "pods", "--subresource=binding")
    assert "yes" in plane.kubectl(*may, user="system:kube-scheduler")
    with pytest.raises(Failed, match="can-i"):
        plane.kubectl(*may, user="nobody")


def test_a_deployment_gets_its_pods(plane: ControlPlane, api: Client) -> None:
    plane.start_controller_manager()
    api.create(deployment("web", 3, pod_spec()))
    pods = api.wait_until(lambda: len(found := api.list("Pod")) == 3 and found, "three pods of the deployment")
    assert {item["spec"]["schedulerName"] for item in pods} == {"dovetail"}


def test_kube_scheduler_binds_a_pod(plane: ControlPlane, api: Client) -> None:
    plane.start_scheduler()
    api.create(node("a"))
    api.create(pod("p", {"cpu": 1}, scheduler="default-scheduler"))
    api.create(pod("ours"))
    bound = api.wait_until(lambda: (p := api.get("Pod", "p"))["spec"].get("nodeName") and p, "the pod is bound")
    assert bound["spec"]["nodeName"] == "a"
    assert "nodeName" not in api.get("Pod", "ours")["spec"]


def test_kube_scheduler_takes_a_configuration(plane: ControlPlane, api: Client) -> None:
    plane.start_scheduler({"profiles": [{"schedulerName": "other"}]})
    api.create(pod("p", scheduler="other"))
    said = api.wait_until(lambda: condition(api.get("Pod", "p"), "PodScheduled"), "the pod is looked at")
    assert said["reason"] == "Unschedulable"  # there is no node


def test_the_api_server_comes_back_on_its_port_with_its_objects(plane: ControlPlane, api: Client) -> None:
    api.create(node("a"))
    port, uid = plane.port, api.get("Node", "a")["metadata"]["uid"]
    plane.stop_api_server(grace=0)
    with pytest.raises(OSError, match="refused"):
        api.get("Node", "a")
    plane.start_api_server()
    assert plane.port == port
    assert api.get("Node", "a")["metadata"]["uid"] == uid


def test_an_old_watch_is_told_to_list_again_after_compaction(plane: ControlPlane, api: Client) -> None:
    old = resource_version(api)
    api.create(pod("p"))
    assert refused(api, old) is None
    plane.forget_history()
    api.create(pod("q"))
    assert refused(api, old) == 410


def test_a_binding_brings_annotations_and_labels(plane: ControlPlane, api: Client) -> None:
    api.create(node("a"))
    made = api.create(pod("p", labels={"app": "web"}, annotations={"mine": "stays"}))
    meta = made["metadata"]
    preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    status, _ = api.bind("p", "a", annotations={"ours": "rides"}, labels={"on": "a"}, **preconditions)
    assert status == 201
    bound = api.get("Pod", "p")
    assert bound["spec"]["nodeName"] == "a"
    assert bound["metadata"]["annotations"] == {"mine": "stays", "ours": "rides"}
    brought = {"on": "a"} if plane.version >= (1, 35) else {}  # before that, labels of a Binding are left aside
    assert bound["metadata"]["labels"] == {"app": "web", **brought}


def test_a_stale_binding_is_refused(api: Client) -> None:
    api.create(node("a"))
    meta = api.create(pod("p"))["metadata"]
    api.patch("Pod", "p", {"metadata": {"annotations": {"epoch": "2"}}})
    assert api.bind("p", "a", uid=meta["uid"], resourceVersion=meta["resourceVersion"])[0] == 409
    assert api.bind("p", "a", uid="another")[0] == 409
    assert "nodeName" not in api.get("Pod", "p")["spec"]
    assert api.bind("p", "a", uid=meta["uid"])[0] == 201
    assert api.bind("p", "a", uid=meta["uid"])[0] == 409  # it is bound already


@pytest.mark.parametrize("test", ["one", "another"])
def test_every_test_begins_with_a_clean_slate(plane: ControlPlane, api: Client, test: str) -> None:
    assert api.list("Node") == []
    assert api.list("Pod", None) == []
    assert api.find("Namespace", "leftover") is None
    assert api.find("Lease", "leftover", "kube-system") is None
    assert not plane.running("kube-controller-manager")
    plane.start_controller_manager()
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "leftover"}})
    meta = {"name": "leftover", "namespace": "kube-system"}
    api.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}})
    api.create(node("a"))
    stuck = pod("stuck", namespace="leftover", nodeName="a")
    stuck["metadata"]["finalizers"] = ["tests.dovetail.dev/never"]
    api.create(stuck)
    api.create(deployment("web", 5, pod_spec()))
    plane.stop_api_server(grace=0)
