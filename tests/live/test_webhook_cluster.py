"""The webhook on a real control plane: quotas, pods that went past it, the way through a Service, and alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.live.accounts import kubeconfig_of_account
from tests.live.dovetail_process import DOVETAIL, Dovetail, scheduling
from tests.live.test_scheduling import placed
from tests.live.test_webhook import Served, pod, serving, wait_until_asked
from tools.controlplane import objects, webhook
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU, gpu_limits
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Process, free_ports

SYSTEM, SERVICE = "kube-system", "dovetail-webhook"


def quota(**hard: str) -> Object:
    limits = {f"limits.nvidia.com/{name}": amount for name, amount in hard.items()}
    meta = {"name": "gpus", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": limits}}


def test_a_quota_denies_what_kubernetes_itself_does_not_count(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    """A limit of 8,000 MiB and of 50 % of a GPU, in a ResourceQuota with HAMi's names."""
    api.create(objects.node("a", gpus=2))
    with serving(plane, api, tmp_path) as (dovetail, _):
        api.create(quota(gpumem="8000", gpucores="50"))
        api.create(pod("first", gpu_limits(1, memory=6000, cores=30)))
        placed(api, "first")
        with pytest.raises(ApiError) as refused:
            api.create(pod("second", gpu_limits(1, memory=6000, cores=10)))
        said = "exceeding resource quota: the pod asks for 6,000 MiB"
        assert said in str(refused.value)
        assert "quota gpus: NVIDIA memory 6,000 of 8,000 MiB in use" in str(refused.value)
        with pytest.raises(ApiError, match="NVIDIA compute 300 of 500 milli in use"):
            api.create(pod("third", gpu_limits(1, memory=100, cores=30)))
        api.create(pod("small", gpu_limits(1, memory=2000, cores=20)))
        placed(api, "small")
        assert dovetail.metric('dovetail_webhook_denials_total{cause="quota"}') == 2
        api.delete("Pod", "first", gracePeriodSeconds=0)
        api.wait_until(lambda: _is_created(api, "second"), "the quota is free again", 30)


def _is_created(api: Client, name: str) -> bool:
    try:
        api.create(pod(name, gpu_limits(1, memory=6000, cores=10)))
    except ApiError:
        return False
    return True


def test_pods_that_went_past_it_are_counted_and_named(plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    """One exists before the leader, one is created while no webhook is configured."""
    api.create(objects.node("a", gpus=1))
    api.create(pod("before"))
    served = Served(plane, tmp_path)
    with scheduling(plane, *served.options) as dovetail:
        assert _past(dovetail, "waiting") == 1
        api.create(pod("meanwhile", nodeName="a"))
        api.wait_until(lambda: _past(dovetail, "bound") == 1, "it is counted", 30)
        for name in ("before", "meanwhile"):
            assert f"default/{name} asks for cards of NVIDIA and names default-scheduler" in dovetail.words()
        served.configure(api)
        api.create(pod("after"))
        for name in ("before", "meanwhile"):
            api.delete("Pod", name, gracePeriodSeconds=0)
        api.wait_until(lambda: _past(dovetail, "waiting") + _past(dovetail, "bound") == 0, "none is left", 30)


def _past(dovetail: Dovetail, state: str) -> float:
    return dovetail.metric(f'dovetail_pods_past_webhook{{state="{state}"}}')


def behind_a_service(api: Client, component: str, port: int) -> None:
    """The shipped configuration, with the Service, path and all. Only the port is that of this test.

    The API server runs outside the cluster's network, so the Service is a name for loopback.
    """
    meta = {"name": SERVICE, "namespace": SYSTEM}
    spec = {"type": "ExternalName", "externalName": "localhost"}
    api.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    for item in webhook.shipped(component):
        if item["kind"] == "MutatingWebhookConfiguration":
            item["webhooks"][0]["clientConfig"]["service"]["port"] = port
            api.create(item)


def test_the_api_server_asks_the_shipped_service_with_the_authority_that_dovetail_wrote(
    plane: ControlPlane, api: Client
) -> None:
    """The certificate is for the name of the Service, and the path is that of the configuration."""
    (port,) = free_ports(1)
    webhook.grant_webhook(api)
    behind_a_service(api, "webhook", port)
    options = ("--webhook-listen", f"127.0.0.1:{port}", "--webhook-secret", webhook.SECRET)
    with scheduling(plane, *options) as dovetail:
        wait_until_asked(api)
        assert dovetail.metric('dovetail_webhook_mutations_total{change="scheduler-name"}') >= 1
        with pytest.raises(ApiError, match=r'admission webhook "pods\.dovetail\.dev" denied'):
            api.create(pod("here", nodeName="a"))


@contextmanager
def alone(plane: ControlPlane, room: Path, port: int) -> Iterator[Path]:
    """The container of webhook-alone as a process, with its ServiceAccount's token; yields its log."""
    (deployment,) = [item for item in webhook.shipped("webhook-alone") if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    values = {"POD_NAMESPACE": SYSTEM, "POD_IP": "127.0.0.1"}
    words = [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], word) for word in container["args"]]
    words = [word.replace("0.0.0.0:9443", f"127.0.0.1:{port}") for word in words if not word.startswith("--listen=")]
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    kubeconfig = kubeconfig_of_account(plane, SYSTEM, account, room)
    log = room / "webhook.log"
    with ExitStack() as stack:
        process = Process("dovetail-webhook", [DOVETAIL, *words], log, KUBECONFIG=str(kubeconfig))
        stack.callback(process.stop, 20)
        yield log


def test_the_webhook_alone_has_the_rights_that_it_needs(plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    """As shipped for clusters with the extender: pods with GPUs get the name of HAMi's kube-scheduler."""
    (port,) = free_ports(1)
    for item in webhook.shipped("webhook-alone"):
        if item["kind"] not in ("Service", "MutatingWebhookConfiguration"):
            api.create(item)
    behind_a_service(api, "webhook-alone", port)

    def name() -> str:
        try:
            made = api.create(pod("probe", {GPU: 1}), dryRun="All")
        except ApiError:
            return ""
        return str(made["spec"]["schedulerName"])

    with alone(plane, tmp_path, port) as log:
        api.wait_until(lambda: name() == "hami-scheduler", "the API server asks the webhook", 60)
        said = log.read_text(encoding="utf-8")
    assert "lacks verb" not in said
    assert '"level":"error"' not in said.replace(" ", "")
