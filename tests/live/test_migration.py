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
from tests.live.faults import Witness
from tests.live.hami_scheduler import ALLOCATED, LOCK, NAME, NODE, PHASE, TO_ALLOCATE, HamiScheduler
from tools.controlplane.client import Client, Object
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


def test_the_page_has_the_steps_of_the_test() -> None:
    """The options that the test uses are those of the page."""
    page = (Path(__file__).parents[2] / "docs" / "migrate-from-hami.md").read_text(encoding="utf-8")
    for words in ("dovetail doctor --from hami", f"--node-selector {POOL}=dovetail", f"--scheduler-name {NAME}"):
        assert words in page
    assert f"--node-label-selector={POOL}=hami" in page
