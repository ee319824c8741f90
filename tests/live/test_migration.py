"""docs/migrate-from-hami.md, step by step on a real control plane: side by side, the switch, and the way back.

Cards have 15,360 MiB. HAMi's device plugin runs on all nodes throughout. At every step, no running pod changes cards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.cli.main import cli
from tests.live.dovetail_process import scheduling
from tests.live.extending import extending
from tests.live.faults import Witness
from tests.live.hami_scheduler import ALLOCATED, LOCK, NAME, NODE, PHASE, TO_ALLOCATE, HamiScheduler
from tests.live.test_webhook import Served
from tools.controlplane import webhook
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import HANDSHAKE, condition, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

HANDSHAKEN = {HANDSHAKE: "Requesting_2026-11-18 08:00:00"}
POOL = "example.com/gpu-scheduler"


@pytest.fixture
def hami_cluster(api: Client, kubelet: Kubelet) -> Iterator[HamiScheduler]:
    """Two nodes of two cards; HAMi has placed old-0 (8,000 MiB), old-1 (8,000 MiB) and old-2 (a whole card)."""
    kubelet.hami = True
    for name in ("h", "d"):
        api.create(node(name, gpus=2, annotations=HANDSHAKEN))
    hami = HamiScheduler(api)
    for name, limits in (
        ("old-0", gpu_limits(1, memory=8000, cores=30)),
        ("old-1", gpu_limits(1, memory=8000, cores=30)),
        ("old-2", gpu_limits(1, memory=15360, cores=100)),
    ):
        api.create(pod(name, limits, scheduler=NAME))
        hami.place(name)
    yield hami
    assert kubelet.complaints == []


def cards_of(api: Client) -> dict[str, tuple[str, str]]:
    """Every running pod's node and record."""
    there = (item for item in api.list("Pod") if item["spec"].get("nodeName"))
    return {
        one["metadata"]["name"]: (one["spec"]["nodeName"], one["metadata"]["annotations"][ALLOCATED]) for one in there
    }


def until_runs(api: Client, *names: str) -> None:
    """Bound, and the device plugin has handed over the cards."""
    for name in names:
        api.wait_until(lambda: _phase(api.get("Pod", name)) == "success", f"{name} has its card", 90)  # noqa: B023


def _phase(item: Object) -> str:
    return str(item["metadata"].get("annotations", {}).get(PHASE, ""))


def from_hami(plane: ControlPlane, *options: str) -> tuple[dict[str, int], set[tuple[str, str]]]:
    command = ["doctor", "--from", "hami", "--kubeconfig", str(plane.kubeconfig("admin")), "-o", "json", *options]
    said = json.loads(CliRunner().invoke(cli, command, catch_exceptions=False).stdout)
    return said["differences"], {(one["check"], one["object"]) for one in said["findings"]}


def test_every_step_of_the_page(
    plane: ControlPlane, api: Client, kubelet: Kubelet, hami_cluster: HamiScheduler
) -> None:
    hami, old = hami_cluster, cards_of(api)
    assert {name: (where, text.split(",")[0]) for name, (where, text) in old.items()} == {
        "old-0": ("d", "GPU-d-0"),
        "old-1": ("d", "GPU-d-1"),  # 8,000 + 8,000 > 15,360
        "old-2": ("h", "GPU-h-0"),
    }

    # Step 1: the differences. No pod and no node is concerned; the name must be served, the plugin's lock be allowed.
    counts, found = from_hami(plane)
    assert counts == {"pods": 3, "unaffected_pods": 3, "nodes": 2, "unaffected_nodes": 2}
    assert {("hami-scheduler-name", f"schedulerName {NAME}"), ("hami-node-lock", "Nodes")} <= found

    # Step 2: side by side. `h` goes to Dovetail's pool; HAMi keeps `d`.
    api.patch("Node", "h", {"metadata": {"labels": {POOL: "dovetail"}}})
    api.patch("Node", "d", {"metadata": {"labels": {POOL: "hami"}}})
    hami_in_its_pool = HamiScheduler(api, {POOL: "hami"})
    with Witness(api) as witness:
        with scheduling(plane, "--node-selector", f"{POOL}=dovetail"):
            api.create(pod("new-0", gpu_limits(1, memory=9000, cores=20)))
            api.create(pod("old-3", gpu_limits(1, memory=7000, cores=20), scheduler=NAME))
            until_runs(api, "new-0")
            hami_in_its_pool.place("old-3")
            now = cards_of(api)
            assert now["new-0"][0] == "h"
            assert now["new-0"][1] == "GPU-h-1,NVIDIA,9000,20:;"  # GPU-h-0 belongs to old-2
            assert now["old-3"] == ("d", "GPU-d-0,NVIDIA,7000,20:;")  # 8,000 + 7,000 of 15,360
            assert {name: now[name] for name in old} == old

        # Step 3: the switch. HAMi's scheduler is stopped; Dovetail serves its name, on all nodes.
        old = cards_of(api)
        api.create(pod("waits", gpu_limits(1, memory=7360, cores=10), scheduler=NAME))  # created while neither runs
        with scheduling(plane, "--scheduler-name", "dovetail", "--scheduler-name", NAME):
            until_runs(api, "waits")
            api.create(pod("new-1", gpu_limits(1, memory=6360, cores=10), scheduler=NAME))
            until_runs(api, "new-1")
            api.create(pod("new-2", gpu_limits(1, memory=7000, cores=10), scheduler=NAME))
            api.wait_until(lambda: condition(api.get("Pod", "new-2"), "PodScheduled"), "it says why it waits")
            now = cards_of(api)
            assert {name: now[name] for name in old} == old
            # Free were 360 on GPU-d-0, 7,360 on GPU-d-1, 0 on GPU-h-0 and 6,360 on GPU-h-1.
            assert now["waits"] == ("d", "GPU-d-1,NVIDIA,7360,10:;")
            assert now["new-1"] == ("h", "GPU-h-1,NVIDIA,6360,10:;")
            assert "new-2" not in now
            counts, found = from_hami(plane, "--scheduler-name", NAME, "--scheduler-name", "dovetail")
            assert counts["pods"] == counts["unaffected_pods"] == 8

        # Step 4: the way back. Dovetail is stopped; HAMi reads Dovetail's records as its own, and places what waits.
        old = cards_of(api)
        for name, (where, record) in old.items():
            notes = api.get("Pod", name)["metadata"]["annotations"]
            assert notes[NODE] == where, name  # HAMi finds a pod's node by this annotation
            assert (notes[PHASE], notes[TO_ALLOCATE]) == ("success", ";"), name  # its plugin has handed over the card
            assert record.endswith(":;"), name
        assert [api.get("Node", name)["metadata"]["annotations"].get(LOCK) for name in ("h", "d")] == [None, None]
        assert hami.used("GPU-d-1") == {"pods": 2, "memory": 15360, "cores": 40}  # old-1 and waits
        with pytest.raises(LookupError):
            hami.place("new-2")  # 7,000 MiB are free nowhere
        api.delete("Pod", "old-0", gracePeriodSeconds=0)
        assert hami.place("new-2") == "GPU-d-0"  # 7,000 + 7,000 of 15,360
        now = cards_of(api)
        assert {name: now[name] for name in old if name != "old-0"} == {n: at for n, at in old.items() if n != "old-0"}
    assert witness.wrong == []


def test_the_webhook_and_its_way_back(
    plane: ControlPlane, api: Client, kubelet: Kubelet, hami_cluster: HamiScheduler, tmp_path: Path
) -> None:
    """Pods without a scheduler name get HAMi's from Dovetail's webhook, so that they are HAMi's again afterwards."""
    hami, old = hami_cluster, cards_of(api)
    served = Served(plane, tmp_path)
    with scheduling(plane, *served.options, "--scheduler-name", NAME, "--scheduler-name", "dovetail"):
        api.create(webhook.configuration([served.port], served.authority.cert_pem.bytes()))

        def is_named() -> bool:
            try:
                made = api.create(unnamed("probe", gpu_limits(1)), dryRun="All")
            except ApiError:
                return False
            return bool(made["spec"]["schedulerName"] == NAME)

        api.wait_until(is_named, "the API server asks the webhook", 60)
        api.create(unnamed("new-0", gpu_limits(1, memory=9000, cores=20)))
        until_runs(api, "new-0")
        assert cards_of(api)["new-0"] == ("h", "GPU-h-1,NVIDIA,9000,20:;")  # 9,000 MiB are free on no other card

    # The way back in the wrong order: Dovetail is away, its configuration is there, and GPU pods are refused.
    with pytest.raises(ApiError):
        api.create(unnamed("refused", gpu_limits(1)))
    kept = plane.kubectl("get", "mutatingwebhookconfiguration", webhook.NAME, "-o", "yaml")
    plane.kubectl("delete", "mutatingwebhookconfiguration", webhook.NAME)
    # With HAMi's webhook in its place pods are named for it; the stand-in of HAMi has none, so the test names the pod.
    api.create(pod("back-0", gpu_limits(1, memory=9000, cores=20), scheduler=NAME))
    with pytest.raises(LookupError):
        hami.place("back-0")  # HAMi counts new-0
    api.create(pod("back-1", gpu_limits(1, memory=6360, cores=20), scheduler=NAME))
    assert hami.place("back-1") in ("GPU-d-0", "GPU-d-1", "GPU-h-1")
    now = cards_of(api)
    assert {name: now[name] for name in old} == old
    plane.kubectl("create", "-f", "-", stdin=kept)  # a configuration that was kept in a file can be created again


def test_behind_kube_scheduler_and_back(
    plane: ControlPlane, api: Client, kubelet: Kubelet, hami_cluster: HamiScheduler
) -> None:
    """HAMi's kube-scheduler asks Dovetail in HAMi's place; afterwards HAMi reads what Dovetail wrote."""
    hami, old = hami_cluster, cards_of(api)
    with extending(plane):
        api.create(pod("new-0", gpu_limits(1, memory=9000, cores=20), scheduler=NAME))
        until_runs(api, "new-0")
        now = cards_of(api)
        assert now["new-0"] == ("h", "GPU-h-1,NVIDIA,9000,20:;")
        assert {name: now[name] for name in old} == old
    notes = api.get("Pod", "new-0")["metadata"]["annotations"]
    assert (notes[NODE], notes[PHASE], notes[TO_ALLOCATE]) == ("h", "success", ";")
    api.wait_until(lambda: LOCK not in api.get("Node", "h")["metadata"]["annotations"], "the lock is released", 30)
    assert hami.used("GPU-h-1") == {"pods": 1, "memory": 9000, "cores": 20}
    api.create(pod("back-0", gpu_limits(1, memory=9000, cores=20), scheduler=NAME))
    with pytest.raises(LookupError):
        hami.place("back-0")
    api.create(pod("back-1", gpu_limits(1, memory=7000, cores=20), scheduler=NAME))
    assert hami.place("back-1") == "GPU-d-0"
    now = cards_of(api)
    assert {name: now[name] for name in old} == old


def unnamed(name: str, limits: Object) -> Object:
    """A pod that names no scheduler, as HAMi's users write it."""
    made = pod(name, limits)
    del made["spec"]["schedulerName"]
    return made


def test_the_page_has_the_steps_of_the_test() -> None:
    """The options that the test uses are those of the page."""
    page = (Path(__file__).parents[2] / "docs" / "migrate-from-hami.md").read_text(encoding="utf-8")
    for words in ("dovetail doctor --from hami", f"--node-selector {POOL}=dovetail", f"--scheduler-name {NAME}"):
        assert words in page
    assert f"--node-label-selector={POOL}=hami" in page
    assert f"--scheduler-name {NAME} --scheduler-name dovetail" in page  # the webhook's name is HAMi's
    assert f"kubectl delete mutatingwebhookconfiguration {webhook.NAME}" in page
    assert "http://dovetail-extender.kube-system.svc" in page
