"""The admission webhook on a real control plane: HAMi manifests that name no scheduler, outages, denials."""

from __future__ import annotations

import http.client
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trustme
import yaml

from tests.live.assigned import faults, pieces
from tests.live.dovetail_process import Dovetail, scheduling
from tools.controlplane import objects, webhook
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import free_ports

EXAMPLES = Path(__file__).parents[2] / "examples"
GPU, MEM, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
# file -> (nodes used, GPUs used): the four strategies of HAMi's demo, and the guide's
DEMO = {"demo-a": (1, 2), "demo-b": (2, 2), "demo-c": (1, 4), "demo-d": (2, 4)}
GUIDE = ("gpu-binpack", "gpu-spread", "node-binpack", "node-spread", "gpu-binpack-node-spread", "gpu-node-spread")


class Served:
    """A Dovetail with its webhook, and the authority of its certificate."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.authority, self.port = plane, trustme.CA(), free_ports(1)[0]
        self.chain, self.key = folder / "tls.crt", folder / "tls.key"
        issued = self.authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(self.key)
        self.chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))

    @property
    def options(self) -> tuple[str, ...]:
        files = ("--webhook-cert-file", str(self.chain), "--webhook-key-file", str(self.key))
        return ("--webhook-listen", f"127.0.0.1:{self.port}", *files)

    def configure(self, api: Client) -> None:
        api.create(webhook.configuration([self.port], self.authority.cert_pem.bytes()))
        wait_until_asked(api)


def wait_until_asked(api: Client) -> None:
    """API servers read configurations from a watch: wait until a pod is mutated."""

    def is_mutated() -> bool:
        try:
            made = api.create(pod("probe"), dryRun="All")
        except ApiError:
            return False
        return bool(made["spec"]["schedulerName"] == "dovetail")

    api.wait_until(is_mutated, "the API server asks the webhook", 60)


@contextmanager
def serving(plane: ControlPlane, api: Client, folder: Path) -> Iterator[tuple[Dovetail, Served]]:
    served = Served(plane, folder)
    with ExitStack() as stack:
        dovetail = stack.enter_context(scheduling(plane, *served.options))
        served.configure(api)
        yield dovetail, served


def pod(name: str, limits: Object | None = None, **spec: object) -> Object:
    made = objects.pod(name, limits or {GPU: 1})
    del made["spec"]["schedulerName"]
    made["spec"].update(spec)
    return made


def manifest(path: Path, names_us: bool) -> Object:
    """A Deployment of the examples. HAMi's users write no schedulerName."""
    item: Object = yaml.safe_load(path.read_text(encoding="utf-8"))
    item["metadata"]["namespace"] = "default"
    if not names_us:
        del item["spec"]["template"]["spec"]["schedulerName"]
    return item


def _all_run(api: Client, count: int) -> list[Object]:
    def all_run() -> list[Object]:
        pods = api.list("Pod")
        running = [one for one in pods if one.get("status", {}).get("phase") == "Running"]
        return running if len(running) == len(pods) == count else []

    return api.wait_until(all_run, f"{count} pods run", 90)


def _nodes(folder: str) -> list[Object]:
    return list(yaml.safe_load_all((EXAMPLES / folder / "cluster.yaml").read_text(encoding="utf-8")))


def test_hamis_demo_without_a_scheduler_name_has_its_outcomes(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    for node in _nodes("demo"):
        api.create(node)
    plane.start_controller_manager()
    with serving(plane, api, tmp_path) as (dovetail, _):
        for name, (nodes, cards) in DEMO.items():
            for names_us in (False, True) if name == "demo-a" else (False,):  # as HAMi's users have it; as shipped
                api.create(manifest(EXAMPLES / "demo" / f"{name}.yaml", names_us))
                pods = _all_run(api, 4)
                held = Counter(piece.card for one in pods for piece in pieces(one))
                used = {one["spec"]["nodeName"] for one in pods}
                assert (len(used), len(held)) == (nodes, cards), dovetail.words()
                assert {one["spec"]["schedulerName"] for one in pods} == {"dovetail"}
                assert faults(api) == []
                api.delete("Deployment", name, "default")
                api.wait_until(lambda: not api.list("Pod"), "the pods are gone", 60)
        assert dovetail.metric('dovetail_webhook_mutations_total{change="scheduler-name"}') >= 4 * len(DEMO)
        assert dovetail.metric('dovetail_webhook_reviews_total{outcome="failed"}') == 0


def test_the_guides_deployments_without_a_scheduler_name_are_placed_as_with_it(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    for node in _nodes("guide"):
        api.create(node)
    plane.start_controller_manager()
    with serving(plane, api, tmp_path) as (dovetail, _):
        for name in GUIDE:
            outcomes = []
            for names_us in (False, True):
                item = manifest(EXAMPLES / "guide" / f"{name}.yaml", names_us)
                api.create(item)
                pods = _all_run(api, item["spec"]["replicas"])
                held = Counter(piece.card for one in pods for piece in pieces(one))
                per_node = Counter(one["spec"]["nodeName"] for one in pods)
                outcomes.append((sorted(per_node.items()), sorted(held.items())))
                assert faults(api) == []
                api.delete("Deployment", item["metadata"]["name"], "default")
                api.wait_until(lambda: not api.list("Pod"), "the pods are gone", 60)
            assert outcomes[0] == outcomes[1], dovetail.words()


def test_what_the_api_server_stores_and_denies(plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    api.create(objects.node("gpu-1", 2))
    api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "free", "labels": {"hami.io/webhook": "ignore"}}}
    )
    with serving(plane, api, tmp_path):
        limits = api.create(pod("whole"))["spec"]["containers"][0]["resources"]
        assert (limits["limits"][CORES], limits["requests"][CORES]) == ("100", "100")  # exclusive
        part = api.create(pod("part", {MEM: "2Gi"}))["spec"]["containers"][0]["resources"]
        assert (part["limits"], part["requests"]) == ({MEM: "2048", GPU: "1"}, {MEM: "2048", GPU: "1"})
        for name, said, changes in (
            ("here", "pod has node assigned", {"nodeName": "gpu-1"}),
            ("huge", "is not a number of cards", {}),
        ):
            with pytest.raises(ApiError, match=said):
                api.create(pod(name, {GPU: "1", MEM: "1"} if changes else {GPU: "-1"}, **changes))
        wrong = pod("wrong")
        wrong["metadata"]["annotations"] = {"hami.io/gpu-scheduler-policy": "spraed"}
        with pytest.raises(ApiError, match="no GPU policy; write one of"):
            api.create(wrong)
        for ignored in ({**pod("other"), "namespace": "free"}, pod("labelled")):
            namespace = ignored.pop("namespace", "default")
            ignored["metadata"]["namespace"] = namespace
            if namespace == "default":
                ignored["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
            assert api.create(ignored)["spec"]["schedulerName"] == "default-scheduler"


def test_while_the_webhook_is_down_pods_without_gpus_are_created_and_others_refused(
    plane: ControlPlane, api: Client, tmp_path: Path
) -> None:
    with serving(plane, api, tmp_path) as (dovetail, _):
        dovetail.kill()
        began = time.monotonic()
        for number in range(20):
            made = api.create(pod(f"cpu-{number}", {"cpu": "100m"}))
            assert made["spec"]["schedulerName"] == "default-scheduler"
        # Not asked at all: asking in vain would cost a time-out of 5 s for each.
        assert time.monotonic() - began < 20
        with pytest.raises(ApiError, match=r"failed calling webhook .*pods-1\.dovetail\.dev"):
            api.create(pod("gpu"))
        dovetail.start()
        api.wait_until(lambda: _created(api, "gpu"), "the webhook answers again", 60)


def _created(api: Client, name: str) -> bool:
    try:
        return bool(api.create(pod(name))["spec"]["schedulerName"] == "dovetail")
    except ApiError:
        return False


def test_plain_http_is_refused(plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    with serving(plane, api, tmp_path) as (_, served):
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        connection.connect()
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            _answer_of(connection)
        connection.close()


def _answer_of(connection: http.client.HTTPConnection) -> int:
    connection.request("POST", "/webhook", body=b"{}")
    return connection.getresponse().status
