"""`dovetail doctor` on files: faults of a cluster, each alone and all at once; a healthy cluster has none.

Cards have 8,000 MiB and 10 slots.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from dovetail.kube.doctor.rights import LOCK_RIGHT, NEEDED_RIGHTS
from tests.cli.conftest import Run
from tests.kube.manifests import ALLOCATED, CORES, GPU, MEM, REGISTER, Object, card, container, node, other, pod

DEPLOY = Path(__file__).parents[2] / "deploy"
NOW = dt.datetime.now(dt.UTC)
LONG_AGO = "2026-01-01T00:00:00Z"
LOCK = "hami.io/mutex.lock"


def gpu_pod(name: str, cards: str = "", where: str = "n", scheduler: str = "dovetail", **more: Any) -> Object:
    """A pod of 1,000 MiB and 10 % that exists; with `cards`, it runs and has this card."""
    notes = {ALLOCATED: f"{cards},NVIDIA,{more.pop('memory', 1000)},{more.pop('cores', 10)}:;"} if cards else {}
    meta = {"namespace": "ml", "uid": f"uid-{name}", "creationTimestamp": LONG_AGO, "annotations": notes}
    meta |= more.pop("meta", {})
    limits = more.pop("limits", {GPU: 1, MEM: 1000, CORES: 10})
    spec = {"schedulerName": scheduler, **({"nodeName": where} if cards else {}), **more.pop("spec", {})}
    return pod(name, container(limits), meta=meta, status=more.pop("status", {}), **spec)


def lease(name: str, renewed: str, holder: str = "one", **notes: str) -> Object:
    labels = {"dovetail.dev/scheduler": "true"}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed, "acquireTime": renewed}
    meta = {"name": name, "namespace": "kube-system", "labels": labels, "annotations": notes}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def certificate(days: float) -> bytes:
    """PEM of a certificate that expires in so many days."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dovetail-webhook")])
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(7).not_valid_before(NOW - dt.timedelta(days=400))
    return built.not_valid_after(NOW + dt.timedelta(days=days)).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def webhook(pem: bytes) -> Object:
    client = {
        "service": {"namespace": "kube-system", "name": "dovetail-webhook"},
        "caBundle": base64.b64encode(pem).decode(),
    }
    hooks = [{"name": "pods.dovetail.dev", "clientConfig": client, "failurePolicy": "Ignore"}]
    return other("MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "dovetail-webhook", webhooks=hooks)


def manifests(*names: str) -> list[Object]:
    found = [one for name in names for one in yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8"))]
    return [one for one in found if one]


def without_verb(verb: str, resource: str) -> list[Object]:
    """deploy/rbac.yaml without one verb on one resource."""
    items = manifests("rbac.yaml")
    for item in items:
        for rule in item.get("rules", ()):
            if resource in rule["resources"] and verb in rule["verbs"]:
                rule["verbs"] = [one for one in rule["verbs"] if one != verb]
    return items


HEALTHY_NODE = node("n", card("GPU-0"), card("GPU-1"))
NEW = (NOW + dt.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
HEALTHY = [
    HEALTHY_NODE,
    gpu_pod("runs", "GPU-0"),
    lease("dovetail-scheduler", NEW),
    webhook(certificate(300)),
    *manifests("rbac.yaml", "admission-policy.yaml", "flowschema.yaml"),
]


def tainted() -> Object:
    return node("t", card("GPU-t"), spec={"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]})


def text_register() -> Object:
    made = node("r", card("GPU-r"))
    made["metadata"]["annotations"][REGISTER] = "GPU-r,10,8000,100,NVIDIA-T4,0,true:"
    return made


def quota(name: str, namespace: str = "ml", **hard: Any) -> Object:
    meta = {"name": name, "namespace": namespace}
    hard = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}


def elastic_quota(gpus: int) -> Object:
    meta = {"name": "team", "namespace": "ml"}
    spec = {"min": {GPU: gpus}, "max": {GPU: gpus}}
    return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": meta, "spec": spec}


WHOLE = {GPU: 1, MEM: 8000, CORES: 10}
LOCKED = {LOCK: f"{LONG_AGO},ml,gone"}
SLIPPED = gpu_pod("slipped", scheduler="default-scheduler")
GRACE_OVER = {"deletionTimestamp": LONG_AGO}
TEN_ON_ONE = [gpu_pod(f"small-{n}", "GPU-s", "s", cores=1, limits={GPU: 1, MEM: 100, CORES: 1}) for n in range(10)]
REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed: no binding pod"}
UNSERVED_GROUP = {
    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"name": "gang", "namespace": "ml"},
    "spec": {"minMember": 1},
}
MEMBER = gpu_pod("member", scheduler="volcan0", meta={"labels": {"scheduling.x-k8s.io/pod-group": "gang"}})
OLD_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "queues.scheduling.volcano.sh"},
    "spec": {"group": "scheduling.volcano.sh", "versions": [{"name": "v1alpha1", "served": True}]},
}
UNBOUND = [one for one in manifests("admission-policy.yaml") if one["kind"] == "ValidatingAdmissionPolicy"]

# fault -> (objects, the check that finds it, the object that it names, words of its advice)
FAULTS: dict[str, tuple[list[Object], str, str, str]] = {
    "a broken card": ([node("u", card("GPU-u", health=False))], "card-unhealthy", "Node u", "XID"),
    "a cordoned card": (
        [node("c", card("GPU-c"), annotations={"hami.io/device-cordon": "GPU-c"})],
        "card-cordoned",
        "Node c",
        "kubectl annotate node c hami.io/device-cordon-",
    ),
    "memory and no slot": ([node("s", card("GPU-s")), *TEN_ON_ONE], "card-stranded", "Node s", "deviceSplitCount"),
    "a card twice": (
        [node("d1", card("GPU-d")), node("d2", card("GPU-d"))],
        "card-duplicate",
        "Node d2",
        "delete the Node object",
    ),
    "a node that is not ready": (
        [node("x", card("GPU-x"), conditions=[{"type": "Ready", "status": "Unknown"}])],
        "node-not-ready",
        "Node x",
        "kubectl describe node x",
    ),
    "a cordoned node": (
        [node("y", card("GPU-y"), spec={"unschedulable": True})],
        "node-cordoned",
        "Node y",
        "uncordon y",
    ),
    "a taint that no pod tolerates": (
        [tainted()],
        "node-tainted",
        "Node t",
        "kubectl taint node t team=ml:NoSchedule-",
    ),
    "GPUs and no plugin": (
        [node("e", labels={"nvidia.com/gpu.present": "true"})],
        "node-without-enforcer",
        "Node e",
        "install HAMi's device plugin",
    ),
    "a lock of a pod that is gone": (
        [node("l", card("GPU-l"), annotations=LOCKED)],
        "node-lock-stale",
        "Node l",
        f"kubectl annotate node l {LOCK}-",
    ),
    "a register of an old plugin": ([text_register()], "node-register-old", "Node r", "upgrade HAMi's device plugin"),
    "a register that cannot be read": (
        [node("k", card("GPU-k"), annotations={REGISTER: json.dumps([card("GPU-k"), {}])})],
        "node-doubtful",
        "Node k",
        "device plugin that writes the annotation",
    ),
    "a card over-booked": (
        [node("o", card("GPU-o")), *(gpu_pod(f"o{n}", "GPU-o", "o", memory=8000, limits=WHOLE) for n in range(2))],
        "card-overbooked",
        "Node o",
        "delete one of them",
    ),
    "a scheduler that does not exist": (
        [gpu_pod("lost", scheduler="volcan0")],
        "pod-unserved",
        "Pod ml/lost",
        "--scheduler-name volcan0",
    ),
    "a pod past the webhook": ([SLIPPED], "pod-slipped", "Pod ml/slipped", "schedulerName dovetail"),
    "a pod that does not end": (
        [gpu_pod("stuck", "GPU-1", meta={**GRACE_OVER})],
        "pod-terminating",
        "Pod ml/stuck",
        "delete pod stuck --force",
    ),
    "a pod that its kubelet refused": (
        [gpu_pod("refused", "GPU-1", status=REFUSED)],
        "pod-rejected",
        "Pod ml/refused",
        "device plugin's log",
    ),
    "a PodGroup without a scheduler": (
        [UNSERVED_GROUP, MEMBER],
        "pod-group-unserved",
        "PodGroup ml/gang",
        "schedulerName",
    ),
    "a promise of 900 GPUs": ([elastic_quota(900)], "quota-unhostable", "ElasticQuota ml/team", "lower the guarantee"),
    "a quota below the pod": (
        [quota("tight", "small", **{"limits.nvidia.com/gpumem": 500}), gpu_pod("big", meta={"namespace": "small"})],
        "quota-too-small",
        "Pod small/big",
        "raise the quota",
    ),
    "a limit that counts nothing": (
        [quota("odd", "odd", **{"limits.nvidia.com/gpu": 4})],
        "quota-ignored",
        "ResourceQuota odd/odd",
        "requests.nvidia.com/gpu",
    ),
    "no leader": ([lease("empty", NEW, holder="")], "leader-missing", "Lease kube-system/empty", "read their logs"),
    "a dead leader": ([lease("dead", LONG_AGO)], "leader-stale", "Lease kube-system/dead", "read their logs"),
    "two leaders on the same nodes": (
        [lease("dovetail-scheduler", NEW), lease("second", NEW)],
        "leader-overlap",
        "Lease kube-system/dovetail-scheduler",
        "--node-selector",
    ),
    "a policy without binding": (
        UNBOUND,
        "policy-missing",
        "ValidatingAdmissionPolicy dovetail-scheduler-bindings",
        "kubectl apply -f deploy/admission-policy.yaml",
    ),
    "a version of a CRD that is not read": ([OLD_CRD], "version-of-crd", "API group scheduling.volcano.sh", "upgrade"),
    "a right that is missing": (
        without_verb("create", "pods/binding"),
        "rights-missing",
        "ServiceAccount kube-system/dovetail-scheduler",
        "kubectl apply -f deploy/rbac.yaml",
    ),
    "no authority in the configuration": (
        [webhook(b"")],
        "webhook-certificate",
        "MutatingWebhookConfiguration dovetail-webhook",
        "docs/doctor.md",
    ),
    "an expired certificate": (
        [webhook(certificate(-3))],
        "webhook-certificate",
        "MutatingWebhookConfiguration dovetail-webhook",
        "docs/doctor.md",
    ),
}
# What follows from a fault by itself.
BESIDES = {
    "a card twice": {"node-unsettled"},
    "a PodGroup without a scheduler": {"pod-unserved"},
}


def examined(run: Run, tmp_path: Path, items: list[Object], *options: str) -> tuple[int, list[dict[str, str]]]:
    path = tmp_path / "cluster.json"
    path.write_text("\n".join(json.dumps(item) for item in items), encoding="utf-8")
    result = run("doctor", "-f", path, "-o", "json", *options)
    found: list[dict[str, str]] = json.loads(result.stdout)["findings"]
    return result.exit_code, found


def test_a_healthy_cluster_has_no_findings(run: Run, tmp_path: Path) -> None:
    assert examined(run, tmp_path, HEALTHY) == (0, [])


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone(fault: str, run: Run, tmp_path: Path) -> None:
    items, check, object_, advice = FAULTS[fault]
    code, found = examined(run, tmp_path, [HEALTHY_NODE, *items])
    assert code == 3
    assert {one["check"] for one in found} == {check} | BESIDES.get(fault, set())
    (one, *_) = [one for one in found if one["check"] == check and one["object"] == object_]
    assert advice in one["advice"]
    assert one["message"]


def test_all_faults_at_once(run: Run, tmp_path: Path) -> None:
    """Every one of them is found beside all others, at its object."""
    items = [HEALTHY_NODE, *(item for items, *_ in FAULTS.values() for item in items)]
    code, found = examined(run, tmp_path, items)
    there = {(one["check"], one["object"]) for one in found}
    assert code == 3
    assert {(check, object_) for _, check, object_, _ in FAULTS.values()} - there == set()
    assert len(FAULTS) >= 12


def test_the_table_begins_with_the_worst_and_ends_with_what_to_do(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    chosen = ("a cordoned node", "a broken card", "a card twice")
    path.write_text("\n".join(json.dumps(item) for name in chosen for item in FAULTS[name][0]), encoding="utf-8")
    said = run("doctor", "-f", path).stdout
    order = [line.split()[0] for line in said.splitlines() if line.split()[:1] in (["ERROR"], ["WARNING"], ["NOTE"])]
    assert order == ["ERROR", "WARNING", "WARNING", "NOTE"]
    assert "  node-cordoned: when it may take pods: kubectl uncordon y" in said.split("What to do:")[1]


def test_one_check_alone_and_several_by_a_pattern(run: Run, tmp_path: Path) -> None:
    items = [*FAULTS["a cordoned node"][0], *FAULTS["a broken card"][0], *FAULTS["a card twice"][0]]
    _, found = examined(run, tmp_path, items, "--check", "node-cordoned")
    assert [one["check"] for one in found] == ["node-cordoned"]
    _, found = examined(run, tmp_path, items, "--check", "card-*")
    assert [(one["severity"], one["check"]) for one in found] == [
        ("error", "card-duplicate"),
        ("warning", "card-unhealthy"),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--check", "cards"), "--check cards: there is no such check"),
        (("--service-account", "x"), "write NAMESPACE/NAME"),
    ],
)
def test_bad_options_are_refused(options: tuple[str, ...], said: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(HEALTHY_NODE), encoding="utf-8")
    result = run("doctor", "-f", path, *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_objects_of_wrong_types_are_named_and_left_out(run: Run, tmp_path: Path) -> None:
    """A tenant may write these objects: none of them ends the command."""
    path = tmp_path / "cluster.json"
    odd = [lease("odd", NEW), quota("q"), webhook(b"no certificate")]
    odd[0]["spec"] = "none"
    odd[1]["spec"]["hard"] = {"limits.nvidia.com/gpumem": "many"}
    path.write_text("\n".join(json.dumps(item) for item in (HEALTHY_NODE, *odd)), encoding="utf-8")
    result = run("doctor", "-f", path, "-o", "json")
    assert result.exit_code == 3
    assert "Lease" in result.stderr
    assert {one["check"] for one in json.loads(result.stdout)["findings"]} == {"quota-ignored", "webhook-certificate"}


def test_the_table_of_rights_is_the_shipped_role() -> None:
    """Every verb of deploy/rbac.yaml, and nothing else; HAMi's lock is optional."""

    def flat(rules: list[Any]) -> set[tuple[str, str, str, tuple[str, ...]]]:
        return {
            (group, resource, verb, tuple(rule.get("resourceNames", ())))
            for rule in rules
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    roles = {item["kind"]: item["rules"] for item in manifests("rbac.yaml") if "rules" in item}
    for kind, local in (("ClusterRole", False), ("Role", True)):
        known = [right for right in NEEDED_RIGHTS if right.namespaced == local]
        table = {(group, res, verb, one.names) for one in known for group, res in one.each() for verb in one.verbs}
        assert table == flat(roles[kind])
    lock = next(item for item in manifests("optional/hami-lock/objects.yaml") if item["kind"] == "ClusterRole")
    assert {(g, r, v, ()) for g, r in LOCK_RIGHT.each() for v in LOCK_RIGHT.verbs} == flat(lock["rules"])
