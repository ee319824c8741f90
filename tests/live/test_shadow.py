"""`dovetail shadow` beside the real kube-scheduler, with rights that only read: its report, and nothing written."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import yaml

from tests.live.dovetail_process import DOVETAIL
from tests.live.faults import create_all, more
from tools.controlplane.access import DEPLOY
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import card, gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

READER = {"kind": "User", "name": "nobody", "apiGroup": "rbac.authorization.k8s.io"}


def grant(api: Client) -> None:
    """The shipped rights of the shadow, for the user `nobody`."""
    for item in yaml.safe_load_all((DEPLOY / "optional" / "shadow" / "objects.yaml").read_text()):
        if item["kind"] == "ClusterRoleBinding":
            item["subjects"] = [READER]
        if item["kind"] != "ServiceAccount":
            try:
                api.create(item)
            except ApiError as error:
                if error.status != 409:  # it exists already
                    raise


def whole_cards(name: str) -> Object:
    """A node with eight cards, of which each is for one pod."""
    return node(name, gpus=[card(f"GPU-{name}-{n}", n, count=1) for n in range(8)])


def test_beside_kube_scheduler_it_reports_and_writes_nothing(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Six nodes have 48 GPUs, and 60 pods want one each: 12 wait, until 15 that run are deleted."""
    nodes, pods = more(6, 100), more(60, 1_000)
    grant(api)
    create_all(api, (whole_cards(f"n{number}") for number in range(nodes)))
    plane.start_scheduler()
    out, said, folder = tmp_path / "out", tmp_path / "said", tmp_path / "journal"
    command = [DOVETAIL, "shadow", "--kubeconfig", str(plane.kubeconfig("nobody")), "--journal", str(folder)]
    with out.open("w") as stdout, said.open("w") as stderr:
        process = subprocess.Popen([*command, "-o", "json"], stdout=stdout, stderr=stderr)
    try:
        api.wait_until(lambda: "watching default-scheduler" in said.read_text(), "the shadow watches", 120)
        create_all(api, (pod(f"p{n}", gpu_limits(1), scheduler="default-scheduler") for n in range(pods)))
        fit = min(pods, nodes * 8)
        api.wait_until(lambda: len(bound(api)) == fit, f"kube-scheduler has bound {fit} pods", 180)
        for name in bound(api)[:15]:
            api.delete("Pod", name)
        left = min(pods - 15, nodes * 8)
        api.wait_until(lambda: len(bound(api)) == left, "others have taken their places", 180)
        api.wait_until(lambda: kinds(folder) & {"PodGone", "PodsGone"}, "the shadow has seen it", 60)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, said.read_text()[-2000:]
    found = json.loads(out.read_text())
    print({key: value for key, value in found.items() if key not in ("differing", "series", "assumptions")})
    assert found["kind"] == "ShadowReport"
    assert found["pods"] == pods
    tried = found["onTheClusterAsItWas"]
    assert tried["offered"] == pods
    assert tried["placeAtOnce"] + tried["placeLater"] >= min(pods, nodes * 8) - 5
    assert found["otherScheduler"]["placed"] >= fit
    assert found["dovetail"]["placed"] >= fit
    assert found["dovetail"]["gpuHours"] > 0
    assert found["assumptions"]
    assert "is forbidden" not in said.read_text()
    assert not any(item["metadata"].get("annotations") for item in api.list("Pod"))
    again = subprocess.run([DOVETAIL, "shadow", "--report", str(folder)], capture_output=True, text=True, timeout=120)
    assert "had Dovetail placed all of them:" in again.stdout, again.stderr
    replayed = subprocess.run([DOVETAIL, "journal", "replay", str(folder)], capture_output=True, text=True, timeout=120)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "all are the same" in replayed.stdout


def bound(api: Client) -> list[str]:
    pods = [item for item in api.list("Pod") if item["spec"].get("nodeName")]
    return sorted(item["metadata"]["name"] for item in pods if not item["metadata"].get("deletionTimestamp"))


def kinds(folder: Path) -> set[str]:
    done = subprocess.run([DOVETAIL, "journal", "stat", str(folder), "-o", "json"], capture_output=True, timeout=60)
    return set(json.loads(done.stdout)["kinds"]) if done.returncode == 0 else set()
