"""What the scheduler's token and a tenant's can do, tried on a real API server with the shipped roles and policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from tests.live.dovetail_process import Dovetail, scheduling
from tests.live.faults import Witness, create_all
from tests.live.preempting import budget, priority_class, runs
from tests.live.rights_table import (
    ALLOWED,
    CERTIFICATE,
    JSON,
    OWNER,
    REFUSED,
    RUNS,
    SCHEDULER,
    TENANT,
    VIEWER,
    WAITS,
    WEBHOOK,
    Row,
    by_uid,
    eviction,
    secret,
    webhook,
)
from tests.live.test_volumes import LOCAL, claim, volume
from tools.controlplane.access import DEPLOY, SHIPPED, component, grant_dovetail
from tools.controlplane.client import MERGE, STRATEGIC, Access, Client, Object
from tools.controlplane.hami_plugin import LOCK
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import HANDSHAKE, condition, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

NO = (403, 422)  # RBAC or the policy; what nobody may change
HAMI = {HANDSHAKE: "Reported 2026-01-01 00:00:00"}
HOST = "kubernetes.io/hostname"


@contextmanager
def _with_token(plane: ControlPlane, account: str, namespace: str) -> Iterator[Client]:
    """As a program in a pod of this ServiceAccount."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token = plane.client().ask("POST", path, body)["status"]["token"]
    client = Client(Access(plane.port, token, plane.authority))
    try:
        yield client
    finally:
        client.close()


def _until_limited(api: Client, client: Client) -> None:
    """The API server takes up a new policy within a second or two. Needs a node `probe`."""
    api.create(pod("probe", scheduler="nobody"))
    label = {"metadata": {"labels": {"probe": "yes"}}}

    def is_limited() -> bool:
        node_, status = "/api/v1/nodes/probe", "/api/v1/namespaces/default/pods/probe/status"
        patched = [client.request("PATCH", path, label, MERGE, dryRun="All")[0] for path in (node_, status)]
        return patched == [403, 403] and client.bind("absent", "probe")[0] == 403  # 404 where no policy is asked

    client.wait_until(is_limited, "the policies", 30)
    api.delete("Pod", "probe", gracePeriodSeconds=0)


def _populate(api: Client) -> None:
    for name in ("victim", "tenant"):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    rbac, meta = "rbac.authorization.k8s.io", {"name": "tenant", "namespace": "tenant"}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    verbs = ["get", "list", "watch", "create", "patch", "update", "delete"]
    groups = ["", "scheduling.x-k8s.io", "scheduling.k8s.io"]
    rule = {"apiGroups": groups, "resources": ["pods", "podgroups"], "verbs": verbs}
    api.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": [rule]})
    role = {"apiGroup": rbac, "kind": "Role", "name": "tenant"}
    subject = {"kind": "ServiceAccount", **meta}
    api.create(
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]}
    )
    record = {"hami.io/vgpu-devices-allocated": "GPU-a-0,NVIDIA,1000,0:;", "hami.io/bind-phase": "success"}
    taken = {"namespace": "victim", "name": "data", "uid": "u-1", "apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota", "namespace": "tenant"}}
    data = claim("data")
    data["metadata"]["namespace"] = "victim"
    create_all(
        api,
        [
            *(node(name, gpus=1) for name in ("a", "b", "probe")),
            pod("waits", gpu_limits(1), namespace="victim"),
            pod("runs", gpu_limits(1), namespace="victim", nodeName="a", annotations=record),
            pod("own", gpu_limits(1), namespace="tenant"),
            volume("free", "a"),
            volume("taken", "a", claimRef=taken),
            data,
            {**quota, "spec": {"hard": {"pods": "100"}}},
        ],
    )


def _add_components(api: Client) -> None:
    """The rights of the webhook and of viewers, beside objects of others.

    The webhook's configuration is empty, because no process answers here.
    """
    for item in yaml.safe_load_all(component("webhook").read_text(encoding="utf-8")):
        if item["kind"] == "MutatingWebhookConfiguration":
            api.create(webhook(item["metadata"]["name"]))
        elif item["kind"] not in ("Service", "NetworkPolicy"):
            api.create(item)
    elsewhere = {**secret("dovetail-webhook-tls"), "metadata": {"name": "dovetail-webhook-tls", "namespace": "victim"}}
    create_all(api, [webhook("other"), secret("any"), elsewhere])
    grant_dovetail(api, component("viewer"))
    account = {"kind": "ServiceAccount", "name": "viewer", "namespace": "tenant"}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer", "namespace": "tenant"}})
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "dovetail-viewer"}
    binding = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "viewer"}}
    api.create({**binding, "roleRef": role, "subjects": [account]})


@pytest.fixture
def people(plane: ControlPlane, api: Client) -> Iterator[dict[str, Client]]:
    """Real tokens of the scheduler's ServiceAccount and of a tenant's, with what they would like to change."""
    grant_dovetail(api)
    _populate(api)
    _add_components(api)
    with (
        _with_token(plane, "dovetail-scheduler", "kube-system") as scheduler,
        _with_token(plane, "tenant", "tenant") as tenant,
        _with_token(plane, "viewer", "tenant") as viewer,
    ):
        _until_limited(api, scheduler)
        for client, path in ((scheduler, CERTIFICATE), (scheduler, WEBHOOK), (viewer, "/api/v1/nodes")):
            api.wait_until(lambda client=client, path=path: client.request("GET", path)[0] == 200, path)  # type: ignore[misc]
        yield {SCHEDULER: scheduler, TENANT: tenant, VIEWER: viewer}


def _try(people: dict[str, Client], row: Row) -> tuple[int, str]:
    status, said = people[row.who].request(row.verb, row.path, row.body, row.content)
    return status, str(said.get("message", "") if isinstance(said, dict) else said)


def test_what_is_refused(people: dict[str, Client], api: Client) -> None:
    assert len(REFUSED) >= 30
    assert len(set(map(str, REFUSED))) == len(REFUSED)
    before = {kind: api.list(kind, None) for kind in ("Pod", "Node", "PersistentVolume", "PersistentVolumeClaim")}
    for row in REFUSED:
        status, said = _try(people, row)
        assert status in NO, f"{row.who} could {row.verb} {row.path} ({row.why}): {status} {said}"
    for kind, items in before.items():
        assert api.list(kind, None) == items


def test_a_pod_is_stopped_by_its_uid(people: dict[str, Client], api: Client) -> None:
    scheduler, uid = people[SCHEDULER], api.get("Pod", "runs", "victim")["metadata"]["uid"]
    assert scheduler.request("DELETE", RUNS, {**by_uid(uid), "gracePeriodSeconds": 0}, JSON)[0] == 403
    for other in (eviction("another"), eviction(uid)):
        status, said = scheduler.request("POST", f"{RUNS}/eviction", other, JSON)
        assert status == (201 if other == eviction(uid) else 409), said
    waits = api.get("Pod", "waits", "victim")["metadata"]["uid"]
    assert scheduler.request("DELETE", WAITS, by_uid(waits), JSON)[0] == 403  # it holds nothing that others need
    assert scheduler.request("DELETE", RUNS, by_uid("another"), JSON)[0] == 409
    assert scheduler.request("DELETE", RUNS, by_uid(uid), JSON)[0] == 200


def test_what_is_allowed(people: dict[str, Client]) -> None:
    for row in ALLOWED:
        status, said = _try(people, row)
        assert status in (200, 201), f"{row.who} must {row.verb} {row.path} ({row.why}): {status} {said}"


BINDINGS: list[tuple[str, Object]] = [
    ("annotations that other programs read", {"annotations": {"example.com/x": "y"}}),
    ("an annotation that looks like HAMi's", {"annotations": {"hami.io/vgpu-devices-allocated.x": "y"}}),
    ("a label that a Service selects", {"labels": {"app": "payments"}}),
    ("HAMi's label of another node", {"labels": {"hami.io/vgpu-node": "b"}}),
    ("no resourceVersion: what was decided may be out of date", {"resourceVersion": None}),
    ("no uid: it may be another pod of the name", {"uid": None}),
]
RECORD = {
    "hami.io/vgpu-node": "a",
    "hami.io/vgpu-time": "1",
    "hami.io/bind-phase": "success",
    "hami.io/bind-time": "1",
    "hami.io/vgpu-devices-to-allocate": "GPU-a-0,NVIDIA,1000,0:;",
    "hami.io/vgpu-devices-allocated": "GPU-a-0,NVIDIA,1000,0:;",
    "hami.io/kunlun-allocated": "",
    "dovetail.dev/bound-by": "kube-system/dovetail-scheduler",
}


def test_a_binding_says_which_cards_and_nothing_else(people: dict[str, Client], api: Client) -> None:
    meta = api.get("Pod", "waits", "victim")["metadata"]
    exact = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    for why, change in BINDINGS:
        words = {key: value for key, value in {**exact, **change}.items() if value is not None}
        status, said = people[SCHEDULER].bind("waits", "a", "victim", **words)
        assert status == 403, (why, said)
    status, said = people[SCHEDULER].request("POST", "/api/v1/namespaces/victim/bindings", {})
    assert status == 403, said  # the old door: no preconditions
    labels = {"hami.io/vgpu-node": "a"}
    status, said = people[SCHEDULER].bind("waits", "a", "victim", **exact, annotations=RECORD, labels=labels)
    assert status == 201, said
    bound = api.get("Pod", "waits", "victim")
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("a", RECORD)


SPECS: list[Object] = [
    {"containers": [{"name": "main", "image": "evil"}]},
    {"containers": [{"name": "main", "securityContext": {"privileged": True}}]},
    {"containers": [{"name": "main", "command": ["evil"]}]},
    {"initContainers": [{"name": "evil", "image": "evil"}]},
    {"serviceAccountName": "default", "hostNetwork": True, "hostPID": True},
    {"nodeName": "b"},
    {"tolerations": [{"operator": "Exists"}]},
    {"activeDeadlineSeconds": 1},
    {"schedulingGates": []},
    {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
]


@pytest.mark.parametrize("limited", [True, False], ids=["with the policy", "with roles only"])
def test_nothing_of_a_spec_changes_through_the_status(limited: bool, plane: ControlPlane, api: Client) -> None:
    """The API server answers 200 and keeps spec and owners: to patch pods/status is not to patch pods."""
    grant_dovetail(api, *(SHIPPED if limited else SHIPPED[:1]))
    _populate(api)
    with _with_token(plane, "dovetail-scheduler", "kube-system") as scheduler:
        if limited:
            _until_limited(api, scheduler)
        for path, name in ((WAITS, "waits"), (RUNS, "runs")):
            before = api.get("Pod", name, "victim")
            for change in [*({"spec": spec} for spec in SPECS), {"metadata": {"ownerReferences": [OWNER]}}]:
                status, said = scheduler.request("PATCH", f"{path}/status", change, STRATEGIC)
                assert status in (200, *NO), said
            after = api.get("Pod", name, "victim")
            assert after["spec"] == before["spec"]
            assert "ownerReferences" not in after["metadata"]


def test_a_stamp_makes_bindings_of_before_fail(people: dict[str, Client], api: Client) -> None:
    meta = api.get("Pod", "waits", "victim")["metadata"]
    stamp = {"metadata": {"uid": meta["uid"], "annotations": {"dovetail.dev/epoch": "7.me"}}}
    stamped = people[SCHEDULER].ask("PATCH", f"{WAITS}/status", stamp, MERGE)["metadata"]
    assert stamped["annotations"]["dovetail.dev/epoch"] == "7.me"
    assert int(stamped["resourceVersion"]) > int(meta["resourceVersion"])
    exact = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    assert people[SCHEDULER].bind("waits", "a", "victim", **exact)[0] == 409


# ---- the scheduler itself, with no more than that ----------------------------------------------------------------


def _bound(api: Client, name: str) -> bool:
    return bool(api.get("Pod", name)["spec"].get("nodeName"))


@pytest.fixture
def limited(plane: ControlPlane, api: Client, kubelet: Kubelet) -> Iterator[Dovetail]:
    """A scheduler whose every write is looked at by the policy."""
    kubelet.hami = True
    create_all(api, [node("probe"), node("a", gpus=2), node("hami", gpus=2, annotations=HAMI)])
    with scheduling(plane, "--lease-seconds", "4") as dovetail:
        _until_limited(api, plane.client("dovetail"))
        api.delete("Node", "probe")
        yield dovetail
        assert "denied request" not in dovetail.words()
        assert not re.search(r"\b403\b(?!Z)", dovetail.words())  # an answer, not the milliseconds of a time


def test_all_that_it_writes_passes_the_policy(
    limited: Dovetail, plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    """Cards, HAMi's lock, a condition, a volume, a claim's node; then a take-over that stamps what waits."""
    plane.start_controller_manager("persistentvolume-binder")
    share = gpu_limits(1, memory=1000, cores=10)
    with Witness(api) as witness:
        create_all(api, [LOCAL, volume("disk", "a"), claim("data")])
        mount: Object = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
        create_all(
            api,
            [
                pod("whole", gpu_limits(1, memory=15360, cores=100), nodeSelector={HOST: "a"}),
                *(pod(f"locked-{number}", share, nodeSelector={HOST: "hami"}) for number in range(3)),
                pod("disk", share, **mount),
                pod("big", gpu_limits(9)),
            ],
        )
        for name in ("whole", "locked-0", "locked-1", "locked-2", "disk"):
            api.wait_until(lambda name=name: _bound(api, name), f"{name} is bound")  # type: ignore[misc]
        api.wait_until(lambda: condition(api.get("Pod", "big"), "PodScheduled"), "big says why it waits")
        limited.kill()
        create_all(api, [pod("after", share)])
        limited.start()
        api.wait_until(lambda: _bound(api, "after"), "the successor binds")
        assert "dovetail.dev/epoch" in api.get("Pod", "big")["metadata"]["annotations"]
        assert "dovetail.dev/epoch" in api.get("Pod", "after")["metadata"]["annotations"]
        api.wait_until(lambda: LOCK not in api.get("Node", "hami")["metadata"]["annotations"], "the lock is free")
    assert kubelet.complaints == []
    assert witness.wrong == []


def test_preemption_passes_the_policy(limited: Dovetail, api: Client) -> None:
    """An eviction, then a deletion that breaks a budget; nominations and conditions of both."""
    api.create(priority_class("high", 1000))
    budget(api, "web", 0, app="web")
    whole, here = gpu_limits(1, memory=15360, cores=100), {HOST: "a"}
    create_all(
        api, [pod("batch", whole, nodeSelector=here), pod("web", whole, nodeSelector=here, labels={"app": "web"})]
    )
    runs(api, "batch", "web")
    for number, victim in enumerate(("batch", "web")):
        name = f"urgent-{number}"
        api.create(pod(name, whole, nodeSelector=here, priorityClassName="high"))
        runs(api, name)
        assert api.find("Pod", victim) is None


def test_pods_that_cannot_be_stamped_do_not_stop_a_take_over(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    """A tenant fills the annotations of a pod that waits: 256 KiB in one, or 20,000 of them."""
    full = pod("full", gpu_limits(9), annotations={"a": "x" * (256 * 1024 - 1)})
    many = pod("many", gpu_limits(9), annotations={f"n{number}": "" for number in range(20_000)})
    create_all(api, [node("probe"), node("a", gpus=1)])
    with scheduling(plane, "--lease-seconds", "4") as dovetail:
        _until_limited(api, plane.client("dovetail"))
        create_all(api, [full, many])
        for name in ("full", "many"):
            api.wait_until(lambda name=name: condition(api.get("Pod", name), "PodScheduled"), name)  # type: ignore[misc]
        dovetail.kill()
        versions = {name: api.get("Pod", name)["metadata"]["resourceVersion"] for name in ("full", "many")}
        api.create(pod("canary", gpu_limits(1)))
        dovetail.start()
        api.wait_until(lambda: _bound(api, "canary"), "the canary is bound")
        assert "stamped 3 waiting pods" in dovetail.words()
        for name, version in versions.items():
            assert int(api.get("Pod", name)["metadata"]["resourceVersion"]) > int(version)


def test_without_the_right_to_lock_nothing_is_bound_where_hamis_plugin_is(
    plane: ControlPlane, api: Client, kubelet: Kubelet
) -> None:
    kubelet.hami = True
    create_all(api, [node("a", gpus=1, annotations=HAMI), node("b")])
    grant_dovetail(api, DEPLOY / "rbac.yaml", DEPLOY / "admission-policy.yaml")
    dovetail = Dovetail(plane)
    dovetail.start()
    try:
        create_all(api, [pod("card", gpu_limits(1)), pod("none")])
        said = api.wait_until(lambda: _refusal(api.get("Pod", "card")), "the pod says what is missing")
        assert "HAMi's device plugin on node a" in said
        assert "kubectl apply -k deploy/optional/hami-lock" in said
        assert "kubectl apply -k deploy/optional/hami-lock" in dovetail.words()
        api.wait_until(lambda: _bound(api, "none"), "pods without cards need no lock")
        assert not _bound(api, "card")
        grant_dovetail(api, component("hami-lock"))
        api.wait_until(lambda: _bound(api, "card"), "the next try has the lock", 90)
    finally:
        dovetail.stop()
    assert kubelet.complaints == []


def _refusal(item: Object) -> str:
    found = condition(item, "PodScheduled")
    return found["message"] if found is not None and found["reason"] == "BindingRefused" else ""
