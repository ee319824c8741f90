"""A tenant that may change its pods rewrites which GPUs they have: rows 3a and 3b of the hardening table, on a real API
server with the shipped roles, while the scheduler runs and after it was killed, with a key that seals and without."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.live.lease import CLOCK_SKEW
from tests.live.dovetail_process import DOVETAIL, Dovetail, scheduling
from tests.live.faults import create_all
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import condition, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

ALLOCATED, TO_ALLOCATE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"
SEAL, BOUND_BY = "dovetail.dev/seal", "dovetail.dev/bound-by"
POLICY = Path(__file__).parents[2] / "deploy" / "optional" / "records-policy" / "objects.yaml"
HUGE = 2_147_483_647
BIND_SECONDS = 60.0  # generous: how fast a canary is bound is measured elsewhere


@pytest.fixture
def tenant(plane: ControlPlane, api: Client) -> Client:
    """The user `nobody`, who may do everything with pods in the namespace `tenant`, and nothing else."""
    rbac, meta = "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant", {"name": "tenant", "namespace": "tenant"}
    api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "tenant"}})
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    api.ask("POST", f"{rbac}/roles", {"metadata": meta, "rules": [_rule(verbs)]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}
    api.ask("POST", f"{rbac}/rolebindings", {"metadata": meta, "roleRef": role, "subjects": [subject]})
    return plane.client("nobody")


def _rule(verbs: list[str]) -> Object:
    return {"apiGroups": [""], "resources": ["pods"], "verbs": verbs}


@pytest.fixture(params=["sealed", "no key"])
def dovetail(request: pytest.FixtureRequest, plane: ControlPlane, api: Client, tmp_path: Path) -> Iterator[Dovetail]:
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n", encoding="utf-8")
    options = ("--seal-key-file", str(keys)) if request.param == "sealed" else ()
    with scheduling(plane, *options) as running:
        if options:
            time.sleep(CLOCK_SKEW + 1.5)  # pods that are created from then on must have a seal
        yield running


def is_sealed(dovetail: Dovetail) -> bool:
    return dovetail.metric("dovetail_records_sealed") == 1


def rewrite(tenant: Client, name: str, record: str | None, strip: bool = False) -> None:
    """Both annotations say this from now on; `strip`: the seal and the mark go, too."""
    notes: dict[str, Any] = {ALLOCATED: record, TO_ALLOCATE: record}
    notes |= {SEAL: None, BOUND_BY: None} if strip else {}
    tenant.patch("Pod", name, {"metadata": {"annotations": notes}}, "tenant")


def node_of(api: Client, name: str, namespace: str = "default") -> str:
    found: str = api.get("Pod", name, namespace)["spec"].get("nodeName", "")
    return found


def until_bound(api: Client, *names: str, namespace: str = "default") -> None:
    api.wait_until(lambda: all(node_of(api, name, namespace) for name in names), f"{names} are bound", BIND_SECONDS)


def until_waiting(api: Client, name: str, namespace: str) -> None:
    api.wait_until(lambda: condition(api.get("Pod", name, namespace), "PodScheduled"), f"{name} says why it waits")
    assert node_of(api, name, namespace) == ""


def events_of(api: Client, reason: str) -> list[str]:
    items = api.ask("GET", "/apis/events.k8s.io/v1/namespaces/tenant/events")["items"]
    return sorted(item["regarding"]["name"] for item in items if item["reason"] == reason)


def doctor(plane: ControlPlane, *options: str) -> tuple[int, list[tuple[str, str]]]:
    command = [
        DOVETAIL,
        "doctor",
        "--kubeconfig",
        str(plane.kubeconfig("dovetail")),
        "-o",
        "json",
        "--check",
        "record-*",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, [(one["check"], one["object"]) for one in json.loads(done.stdout)["findings"]]


def test_row_3a_a_rewritten_record_frees_no_quota(
    dovetail: Dovetail, plane: ControlPlane, api: Client, tenant: Client, kubelet: Kubelet
) -> None:
    """The namespace may have 2,000 MiB, and p has them: w waits whatever the tenant writes over p's record."""
    api.create(node("a", gpus=2))
    hard = {"spec": {"hard": {"limits.nvidia.com/gpumem": "2000"}}, "metadata": {"name": "q"}}
    api.ask("POST", "/api/v1/namespaces/tenant/resourcequotas", hard)
    tenant.create(pod("p", gpu_limits(1, memory=2000), namespace="tenant"))
    until_bound(api, "p", namespace="tenant")
    tenant.create(pod("w", gpu_limits(1, memory=1000), namespace="tenant"))
    until_waiting(api, "w", "tenant")
    (card,) = (part.split(",")[0] for part in _record(api, "p").split(":") if "," in part)

    for text in (f"{card},NVIDIA,0,0:;", "GPU-a-none,NVIDIA,0,0:;", f"{card},NVIDIA,1,0:;"):
        rewrite(tenant, "p", text)
    api.wait_until(lambda: events_of(api, "RecordChanged") == ["p"], "the tenant is told")
    assert dovetail.metric("dovetail_records_changed_total") >= 1
    assert _still_waits(api, "w")

    sealed = is_sealed(dovetail)
    for strip in (False, True):
        rewrite(tenant, "p", f"{card},NVIDIA,0,0:;", strip)
        dovetail.kill()
        dovetail.start()
        assert _still_waits(api, "w")
        assert dovetail.metric("dovetail_records_unverified") == (1 if sealed and strip else 0)
    if sealed:
        api.wait_until(lambda: events_of(api, "RecordUnverified") == ["p"], "the tenant is told")
        assert doctor(plane, *_keys(dovetail)) == (3, [("record-unverified", "Pod tenant/p")])
    tenant.delete("Pod", "p", "tenant", gracePeriodSeconds=0)
    until_bound(api, "w", namespace="tenant")


def test_row_3b_claims_of_eight_small_pods_block_no_card(
    dovetail: Dovetail, plane: ControlPlane, api: Client, tenant: Client, kubelet: Kubelet
) -> None:
    """Eight cards of 15,360 MiB. Of each at most 8 × 1 MiB are charged: a canary of 7,000 MiB fits twice on each."""
    api.create(node("a", gpus=8))
    names = [f"p{n}" for n in range(8)]
    create_all(tenant, (pod(name, gpu_limits(1, memory=1), namespace="tenant") for name in names))
    until_bound(api, *names, namespace="tenant")
    for n, name in enumerate(names):
        rewrite(tenant, name, f"GPU-a-{n},NVIDIA,{HUGE},100:;")
    canaries = [f"canary-{n}" for n in range(16)]
    create_all(api, (pod(name, gpu_limits(1, memory=7000)) for name in canaries[:8]))
    until_bound(api, *canaries[:8])

    sealed = is_sealed(dovetail)
    for n, name in enumerate(names):
        rewrite(tenant, name, f"GPU-a-{n},NVIDIA,{HUGE},100:;", strip=True)
    dovetail.kill()
    dovetail.start()
    assert dovetail.metric("dovetail_records_unverified") == (8 if sealed else 0)
    create_all(api, (pod(name, gpu_limits(1, memory=7000)) for name in canaries[8:]))
    until_bound(api, *canaries)
    if sealed:
        api.wait_until(lambda: events_of(api, "RecordUnverified") == names, "the tenant is told")


def test_a_card_whose_record_was_moved_is_not_given_twice(
    plane: ControlPlane, api: Client, tenant: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    """p has one of two cards. The tenant says that it is the other one, with the seal and without, and the scheduler is
    killed. A canary that wants a whole card never gets p's; it gets the other one while p's seal is there."""
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n", encoding="utf-8")
    api.create(node("a", gpus=2))
    whole = gpu_limits(1, memory=15360, cores=100)
    with scheduling(plane, "--seal-key-file", str(keys)) as dovetail:
        time.sleep(CLOCK_SKEW + 1.5)
        tenant.create(pod("p", whole, namespace="tenant"))
        until_bound(api, "p", namespace="tenant")
        true = _record(api, "p")
        (other,) = {"GPU-a-0", "GPU-a-1"} - {true.split(",")[0]}
        rewrite(tenant, "p", f"{other},NVIDIA,15360,100:;")
        dovetail.kill()
        dovetail.start()
        api.create(pod("canary", whole))
        until_bound(api, "canary")
        assert _record(api, "canary", "default").startswith(other)
        api.delete("Pod", "canary", gracePeriodSeconds=0)
        rewrite(tenant, "p", f"{other},NVIDIA,15360,100:;", strip=True)
        dovetail.kill()
        dovetail.start()
        api.create(pod("canary-2", whole))
        until_waiting(api, "canary-2", "default")
        assert doctor(plane, "--seal-key-file", str(keys))[1] == [("record-unverified", "Pod tenant/p")]
        tenant.delete("Pod", "p", "tenant", gracePeriodSeconds=0)
        until_bound(api, "canary-2")


def test_the_policy_for_records_refuses_what_a_tenant_writes(
    plane: ControlPlane, api: Client, tenant: Client, kubelet: Kubelet
) -> None:
    plane.kubectl("apply", "-f", str(POLICY))
    api.create(node("a", gpus=1))
    with scheduling(plane):
        tenant.create(pod("p", gpu_limits(1), namespace="tenant", annotations={ALLOCATED: "GPU-z,NVIDIA,1,1:;"}))
        until_bound(api, "p", namespace="tenant")  # also over what a pod that waits says itself
        assert _record(api, "p").startswith("GPU-a-0,")

    def refused(notes: dict[str, Any]) -> bool:
        try:
            tenant.patch("Pod", "p", {"metadata": {"annotations": notes}}, "tenant")
        except ApiError as error:
            return error.status == 403 and "is written once" in str(error)
        return False

    # Each try writes another value: a policy that is not in force yet lets the first one through, and writing the same
    # value again changes nothing, which the policy allows.
    tries = itertools.count()
    api.wait_until(lambda: refused({SEAL: f"try-{next(tries)}"}), "the policy is in force", 30)
    assert refused({ALLOCATED: "GPU-a-0,NVIDIA,0,0:;"})
    assert refused({ALLOCATED: None})
    assert refused({BOUND_BY: "other/lease"})
    tenant.patch("Pod", "p", {"metadata": {"annotations": {"team": "a"}, "labels": {"team": "a"}}}, "tenant")
    api.patch("Pod", "p", {"metadata": {"annotations": {SEAL: None}}}, "tenant")  # an administrator may


def test_the_policy_for_records_names_every_vendors_record() -> None:
    policy = next(yaml.safe_load_all(POLICY.read_text(encoding="utf-8")))
    (records,) = (one["expression"] for one in policy["spec"]["variables"] if one["name"] == "records")
    assert set(json.loads(records)) >= {SEAL, BOUND_BY, *DEFAULT_VENDORS.allocated}


def _record(api: Client, name: str, namespace: str = "tenant") -> str:
    text: str = api.get("Pod", name, namespace)["metadata"]["annotations"][ALLOCATED]
    return text


def _still_waits(api: Client, name: str) -> bool:
    time.sleep(2.0)
    return node_of(api, name, "tenant") == ""


def _keys(dovetail: Dovetail) -> tuple[str, ...]:
    at = dovetail._command.index("--seal-key-file")
    return tuple(dovetail._command[at : at + 2])
