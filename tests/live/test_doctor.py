"""`dovetail doctor` on a real control plane: nothing on a healthy cluster, and each planted fault with its fix."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from dovetail.cli.main import cli
from dovetail.kube.admission.own_authority import make_generation
from tests.live.dovetail_process import scheduling
from tools.controlplane.access import DEPLOY
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU, REGISTER, card, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

ADMISSION, FLOW = "/apis/admissionregistration.k8s.io/v1", "/apis/flowcontrol.apiserver.k8s.io/v1"
RBAC, LEASES = "/apis/rbac.authorization.k8s.io/v1", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LATER = 45.0  # seconds: a pod is then old enough to have been looked at, and the Lease is still fresh
Found = list[dict[str, str]]
Planted = Iterator[None]


@contextmanager
def certified(folder: Path, days: float) -> Iterator[tuple[int, bytes]]:
    """A TLS server on loopback, and the PEM of its certificate, which expires in so many days."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dovetail-webhook")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(7)
    made = made.not_valid_before(now - dt.timedelta(days=400)).not_valid_after(now + dt.timedelta(days=days))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = made.add_extension(address, False).add_extension(x509.BasicConstraints(True, None), True)
    pem = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    path = folder / f"webhook-{days:g}.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                connection.settimeout(10)
                try:
                    with context.wrap_socket(connection, server_side=True) as secured:
                        secured.recv(1)
                except OSError:
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1], pem
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(20)


def webhook(port: int, pem: bytes) -> Object:
    client = {"url": f"https://127.0.0.1:{port}/webhook", "caBundle": base64.b64encode(pem).decode()}
    one = {"name": "pods.dovetail.dev", "clientConfig": client, "sideEffects": "None", "failurePolicy": "Ignore"}
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": "dovetail-webhook"}, "webhooks": [one | {"admissionReviewVersions": ["v1"]}]}


class Cluster:
    """A cluster with Dovetail as deploy/ installs it, one node with two cards, and one running pod."""

    def __init__(self, plane: ControlPlane, api: Client, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.plane, self.api, self.folder, self._patch = plane, api, folder, monkeypatch

    def doctor(self, *options: str, later: float = LATER, user: str = "admin") -> Found:
        """The findings, `later` seconds from now."""
        now = time.time
        with self._patch.context() as patch:
            patch.setattr("dovetail.cli.examining.time.time", lambda: now() + later)
            command = ["doctor", "--kubeconfig", str(self.plane.kubeconfig(user)), "-o", "json", *options]
            result = CliRunner().invoke(cli, command, catch_exceptions=False)
        assert result.exit_code in (0, 3), result.stderr
        found: Found = json.loads(result.stdout)["findings"]
        assert (result.exit_code == 3) == bool(found)
        return found

    @contextmanager
    def there(self, *items: Object) -> Planted:
        for item in items:
            self.api.create(item)
        try:
            yield
        finally:
            for item in items:
                self.api.delete(item["kind"], item["metadata"]["name"], gracePeriodSeconds=0)

    @contextmanager
    def without(self, path: str) -> Planted:
        kept = self.api.ask("GET", path)
        self.api.ask("DELETE", path)
        try:
            yield
        finally:
            for name in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"):
                kept["metadata"].pop(name, None)
            kept.pop("status", None)
            self.api.ask("POST", path.rpartition("/")[0], kept)

    @contextmanager
    def annotated(self, name: str, note: str, value: str) -> Planted:
        self.api.patch("Node", name, {"metadata": {"annotations": {note: value}}})
        try:
            yield
        finally:
            self.api.patch("Node", name, {"metadata": {"annotations": {note: None}}})

    @contextmanager
    def with_rule(self, change: Callable[[list[Object]], list[Object]]) -> Planted:
        path = f"{RBAC}/clusterroles/dovetail-scheduler"
        rules = self.api.ask("GET", path)["rules"]
        self.api.patch("ClusterRole", "dovetail-scheduler", {"rules": change(rules)})
        try:
            yield
        finally:
            self.api.patch("ClusterRole", "dovetail-scheduler", {"rules": rules})

    @contextmanager
    def with_webhook(self, port: int, pem: bytes) -> Planted:
        self.api.create(webhook(port, pem))
        try:
            yield
        finally:
            self.api.delete("MutatingWebhookConfiguration", "dovetail-webhook")


@pytest.fixture
def cluster(
    plane: ControlPlane, api: Client, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Cluster]:
    api.create(node("a", gpus=2))
    with scheduling(plane):
        for item in yaml.safe_load_all((DEPLOY / "flowschema.yaml").read_text(encoding="utf-8")):
            plural = f"{item['kind'].lower()}s"
            api.ask("POST", f"{FLOW}/{plural}", item)
        api.create(pod("runs", gpu_limits(1, memory=1000, cores=10)))
        api.wait_until(lambda: api.get("Pod", "runs")["status"].get("phase") == "Running", "the pod runs")
        yield Cluster(plane, api, monkeypatch, tmp_path)


def _lock() -> str:
    return f"{dt.datetime.now(dt.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')},default,nobody"


def _second_lease() -> Object:
    moment = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=LATER)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, "acquireTime": moment, "renewTime": moment}
    meta = {"name": "second", "namespace": "default", "labels": {"dovetail.dev/scheduler": "true"}}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def _on_a(name: str, record: str) -> Object:
    notes = {"hami.io/vgpu-devices-allocated": record}
    return pod(name, gpu_limits(1, memory=15360, cores=10), annotations=notes, nodeName="a", scheduler="dovetail")


def _quota() -> Object:
    hard = {"limits.nvidia.com/gpu": "4"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "odd"}, "spec": {"hard": hard}}


class _Quotas:
    """ResourceQuotas, by path: the test's client has no name for the kind."""

    PATH = "/api/v1/namespaces/default/resourcequotas"

    @staticmethod
    @contextmanager
    def planted(cluster: Cluster) -> Planted:
        cluster.api.ask("POST", _Quotas.PATH, _quota())
        try:
            yield
        finally:
            cluster.api.ask("DELETE", f"{_Quotas.PATH}/odd")


def _taint() -> Object:
    return node("t", gpus=1, taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}])


def _without_binding(rules: list[Object]) -> list[Object]:
    return [rule for rule in rules if rule["resources"] != ["pods/binding"]]


# fault -> (how to plant it, the check that finds it, the object that it names, words of its advice)
FAULTS: dict[str, tuple[Callable[[Cluster], AbstractContextManager[None]], str, str, str]] = {
    "no right to bind": (
        lambda c: c.with_rule(_without_binding),
        "rights-missing",
        "ServiceAccount kube-system/dovetail-scheduler",
        "deploy/rbac.yaml",
    ),
    "no policy": (
        lambda c: c.without(f"{ADMISSION}/validatingadmissionpolicybindings/dovetail-scheduler-bindings"),
        "policy-missing",
        "ValidatingAdmissionPolicy dovetail-scheduler-bindings",
        "deploy/admission-policy.yaml",
    ),
    "no FlowSchema": (
        lambda c: c.without(f"{FLOW}/flowschemas/dovetail-scheduler"),
        "flow-missing",
        "FlowSchema dovetail-scheduler",
        "deploy/flowschema.yaml",
    ),
    "a second Dovetail": (
        lambda c: c.there(_second_lease()),
        "leader-overlap",
        "Lease default/second",
        "--node-selector",
    ),
    "no such scheduler": (
        lambda c: c.there(pod("lost", gpu_limits(1), scheduler="volcan0")),
        "pod-unserved",
        "Pod default/lost",
        "--scheduler-name volcan0",
    ),
    "past the webhook": (
        lambda c: c.there(pod("slipped", {GPU: 1}, scheduler="default-scheduler", schedulingGates=[{"name": "x.y/z"}])),
        "pod-slipped",
        "Pod default/slipped",
        "schedulerName dovetail",
    ),
    "a lock left behind": (
        lambda c: c.annotated("a", "hami.io/mutex.lock", _lock()),
        "node-lock-stale",
        "Node a",
        "kubectl annotate node a",
    ),
    "a cordoned card": (
        lambda c: c.annotated("a", "hami.io/device-cordon", "GPU-a-1"),
        "card-cordoned",
        "Node a",
        "hami.io/device-cordon-",
    ),
    "a broken card": (
        lambda c: c.there(node("u", gpus=[card("GPU-u", health=False)])),
        "card-unhealthy",
        "Node u",
        "XID",
    ),
    "a card twice": (
        lambda c: c.there(node("d", gpus=[card("GPU-a-0")])),
        "card-duplicate",
        "Node d",
        "delete the Node",
    ),
    "a register in pieces": (
        lambda c: c.there(node("k", annotations={REGISTER: json.dumps([card("GPU-k"), {}])})),
        "node-doubtful",
        "Node k",
        "device plugin",
    ),
    "a card over-booked": (
        lambda c: c.there(_on_a("o1", "GPU-a-1,NVIDIA,15360,10:;"), _on_a("o2", "GPU-a-1,NVIDIA,15360,10:;")),
        "card-overbooked",
        "Node a",
        "delete one of them",
    ),
    "a taint": (lambda c: c.there(_taint()), "node-tainted", "Node t", "kubectl taint node t"),
    "no plugin": (
        lambda c: c.there(node("e", labels={"nvidia.com/gpu.present": "true"})),
        "node-without-enforcer",
        "Node e",
        "device plugin",
    ),
    "a limit that counts nothing": (
        _Quotas.planted,
        "quota-ignored",
        "ResourceQuota default/odd",
        "requests.nvidia.com",
    ),
}
BESIDES = {"a card twice": {"node-unsettled"}}


def test_each_fault_alone_then_all_at_once(cluster: Cluster) -> None:
    """Nothing on the healthy cluster, before and after. Every fault is found at its object, with its fix."""
    assert cluster.doctor() == []
    for name, (plant, check, object_, advice) in FAULTS.items():
        with plant(cluster):
            found = cluster.doctor()
        assert {one["check"] for one in found} - BESIDES.get(name, set()) == {check}, name
        assert [advice in one["advice"] for one in found if (one["check"], one["object"]) == (check, object_)], name
        assert all(advice in one["advice"] for one in found if one["object"] == object_ and one["check"] == check), name
    assert cluster.doctor() == []
    with ExitStack() as all_:
        for plant, *_ in FAULTS.values():
            all_.enter_context(plant(cluster))
        there = {(one["check"], one["object"]) for one in cluster.doctor()}
    assert {(check, object_) for _, check, object_, _ in FAULTS.values()} - there == set()
    assert len(FAULTS) >= 12


def test_the_webhooks_certificate(cluster: Cluster, tmp_path: Path) -> None:
    """A valid one; one that expires in 3 days; one that the caBundle does not verify; nobody at the address."""
    title = "MutatingWebhookConfiguration dovetail-webhook"
    with certified(tmp_path, 300) as (port, pem), certified(tmp_path, 3) as (soon_port, soon):
        with cluster.with_webhook(port, pem):
            assert cluster.doctor() == []
        with cluster.with_webhook(soon_port, soon):
            found = cluster.doctor()
            assert {(one["check"], one["object"]) for one in found} == {("webhook-certificate", title)}
            assert "expires in 3.0 days" in found[0]["message"]
        with cluster.with_webhook(port, soon):
            found = cluster.doctor("--check", "webhook-*")
            assert "the caBundle does not verify the certificate" in found[-1]["message"]
    with cluster.with_webhook(port, pem):  # the server has ended
        found = cluster.doctor()
    assert [(one["check"], one["object"]) for one in found] == [("webhook-unreachable", title)]


def test_a_webhook_that_is_installed_in_part(cluster: Cluster, api: Client) -> None:
    """Its Service without a configuration; then a configuration without authority, and no pod behind the Service."""
    meta = {"name": "dovetail-webhook", "namespace": "kube-system"}
    api.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 443}]}})
    assert [one["check"] for one in cluster.doctor()] == ["webhook-missing"]
    made = webhook(443, b"")
    made["webhooks"][0]["clientConfig"] = {"service": {**meta, "path": "/webhook"}}
    api.create(made)
    found = {one["check"]: one["message"] for one in cluster.doctor()}
    assert set(found) == {"webhook-unreachable", "webhook-certificate"}
    assert "Service kube-system/dovetail-webhook has no ready pod" in found["webhook-unreachable"]
    assert "has no caBundle" in found["webhook-certificate"]


def test_the_certificate_of_a_webhook_behind_a_service(cluster: Cluster, api: Client) -> None:
    """It is in the Secret. The authority of the caBundle has signed it, or another one has, or nobody may read it."""
    meta = {"name": "dovetail-webhook", "namespace": "kube-system"}
    names, now, life = ("dovetail-webhook.kube-system.svc",), dt.datetime.now(dt.UTC), dt.timedelta(days=90)
    ours, others = make_generation(names, now, life), make_generation(names, now, life)
    api.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 443}]}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": "dovetail-webhook-tls"}}
    api.create({**secret, "data": ours.secret_data()})
    for bundle, checks in (
        (ours.bundle, {"webhook-unreachable"}),  # no pod is behind the Service
        (others.bundle, {"webhook-unreachable", "webhook-certificate"}),
    ):
        made = webhook(443, bundle)
        client = made["webhooks"][0]["clientConfig"]
        made["webhooks"][0]["clientConfig"] = {"service": {**meta, "path": "/webhook"}, "caBundle": client["caBundle"]}
        api.create(made)
        found = {one["check"]: one["message"] for one in cluster.doctor()}
        assert set(found) == checks
        api.delete("MutatingWebhookConfiguration", "dovetail-webhook")
    assert "Secret kube-system/dovetail-webhook-tls: none of its authorities" in found["webhook-certificate"]


def test_times_a_leader_that_died_and_a_pod_that_does_not_end(
    plane: ControlPlane, cluster: Cluster, api: Client
) -> None:
    """Ten minutes later nobody has renewed the Lease; the pod has a finalizer that nobody removes."""
    api.patch("Pod", "runs", {"metadata": {"finalizers": ["example.com/forgotten"]}})
    api.delete("Pod", "runs")
    api.wait_until(lambda: api.get("Pod", "runs")["metadata"].get("deletionTimestamp"), "the pod is being deleted")
    found = cluster.doctor("--check", "pod-terminating", "--check", "leader-*", later=600.0)
    objects = {(one["check"], one["object"]) for one in found}
    assert objects == {
        ("pod-terminating", "Pod default/runs"),
        ("leader-stale", "Lease kube-system/dovetail-scheduler"),
    }
    api.patch("Pod", "runs", {"metadata": {"finalizers": None}})


def test_as_the_scheduler_itself_it_examines_what_it_may_read(cluster: Cluster) -> None:
    """With the rights of deploy/rbac.yaml alone: its own rights are examined, the rest is said to be left out."""
    assert cluster.doctor(user="dovetail") == []
    with cluster.with_rule(_without_binding):
        assert [one["check"] for one in cluster.doctor(user="dovetail")] == ["rights-missing"]


def test_nothing_installed_at_all(
    plane: ControlPlane, api: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api.create(node("a", gpus=1))
    found = Cluster(plane, api, monkeypatch, tmp_path).doctor("--check", "leader-missing", "--check", "rights-missing")
    assert [one["check"] for one in found] == ["leader-missing", "rights-missing"]
    assert "kubectl apply -k deploy/" in found[0]["advice"]
