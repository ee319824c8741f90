"""ElasticQuotas and Queues on the real control plane, with the CRDs of deploy/crds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.live.dovetail_process import scheduling
from tests.live.test_scheduling import placed, reason
from tools.controlplane import objects
from tools.controlplane.access import DEPLOY, component, grant_dovetail
from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUOTAS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/elasticquotas"
VOLCANO, KAI = "/apis/scheduling.volcano.sh/v1beta1/queues", "/apis/scheduling.run.ai/v2/queues"
WHOLE = objects.gpu_limits(1, memory=15360, cores=100)
SOON = 30.0


@contextmanager
def crds(api: Client) -> Iterator[None]:
    made = [yaml.safe_load(path.read_text()) for path in sorted((DEPLOY / "crds").glob("*.yaml"))]
    for one in made:
        api.ask("POST", CRDS, one)
    grant_dovetail(api, component("queue-status"))
    try:
        yield
    finally:
        for one in made:
            api.ask("DELETE", f"{CRDS}/{one['metadata']['name']}")


def make(api: Client, path: str, kind: str, name: str, meta: dict[str, Any] | None = None, **spec: Any) -> None:
    version = "/".join(path.split("/")[2:4])
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **(meta or {})}, "spec": spec}

    def made() -> bool:
        status, said = api.request("POST", path, body)
        assert status in (201, 404, 503), said  # until the CRD is established
        return status == 201

    api.wait_until(made, f"{kind} {name} exists", SOON)


def says(api: Client, name: str, text: str) -> None:
    api.wait_until(lambda: text in reason(api, name)["message"], f"{name} says {text!r}", SOON)


def shows(api: Client, path: str, field: str, amounts: dict[str, str]) -> None:
    def status() -> bool:
        return bool(api.ask("GET", path).get("status", {}).get(field) == amounts)

    api.wait_until(status, f"{path} has {field} {amounts}", SOON)


def test_an_elastic_quota_limits_its_namespace_and_shows_what_is_used(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("n", gpus=4))
    with crds(api):
        make(api, QUOTAS, "ElasticQuota", "quota", min={"nvidia.com/gpu": 1}, max={"nvidia.com/gpu": 1})
        with scheduling(plane):
            api.create(objects.pod("first", WHOLE))
            placed(api, "first")
            api.create(objects.pod("second", WHOLE))
            says(api, "second", "queue ElasticQuota/default/quota: gpus requested 1, used 1, ceiling 1")
            shows(api, f"{QUOTAS}/quota", "used", {"nvidia.com/gpu": "1"})


def test_queues_of_volcano_and_kai_are_read_as_their_projects_write_them(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("n", gpus=4))
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    limited = {"quota": 1, "limit": 1, "overQuotaWeight": 0}
    with crds(api):
        make(api, VOLCANO, "Queue", "ml", weight=2, capability={"nvidia.com/gpu": "1"}, reclaimable=True)
        make(api, KAI, "Queue", "team", priority=100, resources={"gpu": limited, "cpu": free, "memory": free})
        with scheduling(plane):
            for number in range(2):
                api.create(objects.pod(f"v{number}", WHOLE, annotations={"scheduling.volcano.sh/queue-name": "ml"}))
                api.create(objects.pod(f"k{number}", WHOLE, labels={"kai.scheduler/queue": "team"}))
                placed(api, "v0", "k0")
            for queue, letter in (("volcano/ml", "v"), ("kai/team", "k")):
                says(api, f"{letter}1", f"queue {queue}: gpus requested 1, used 1, ceiling 1")
            shows(api, f"{VOLCANO}/ml", "allocated", {"nvidia.com/gpu": "1"})
            shows(api, f"{KAI}/team", "allocated", {"nvidia.com/gpu": "1", "cpu": "0", "memory": "0"})
            shows(api, f"{KAI}/team", "requested", {"nvidia.com/gpu": "2", "cpu": "0", "memory": "0"})
