"""Everyday commands on a live cluster, with the rights of a viewer alone: get, explain, plan, snapshot, top."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dovetail.sim.load import load_trace
from tests.live.commands import Commands, grant_viewer
from tests.live.dovetail_process import scheduling
from tests.live.test_scheduling import placed, reason
from tools.controlplane import objects
from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane

WHOLE = objects.gpu_limits(1)
SECRET = "hunter2-do-not-print"


@pytest.fixture
def commands(plane: ControlPlane, api: Client) -> Commands:
    grant_viewer(api)
    return Commands(plane)


@pytest.fixture
def busy(plane: ControlPlane, api: Client) -> Iterator[Client]:
    """A running Dovetail, nodes `a` and `b` with two cards of 15,360 MiB each, three placed pods, and two that wait."""
    for name in ("a", "b"):
        api.create(objects.node(name, gpus=2, labels={"pool": name}))
    with scheduling(plane):
        api.create(objects.pod("whole-0", WHOLE))
        api.create(objects.pod("whole-1", WHOLE))
        api.create(objects.pod("part", objects.gpu_limits(1, memory=4096, cores=30)))
        placed(api, "whole-0", "whole-1", "part")
        api.create(objects.pod("big", objects.gpu_limits(1, memory=20000)))
        api.create(objects.pod("three", objects.gpu_limits(3)))
        reason(api, "big")
        reason(api, "three")
        yield api


def test_get_lists_who_has_which_gpus_and_who_waits(commands: Commands, busy: Client) -> None:
    gpus = commands.json("get", "gpus")["items"]
    assert [(one["node"], one["index"]) for one in gpus] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    used = {pod: one for one in gpus for pod in one["pods"]}
    assert set(used) == {"default/whole-0", "default/whole-1", "default/part"}
    assert used["default/part"]["memoryMib"] == {"used": 4096, "total": 15360}
    assert sum(one["memoryMib"]["used"] for one in gpus) == 2 * 15360 + 4096
    nodes = commands.json("get", "nodes")["items"]
    # Four cards, two of them whole in use, one with 4,096 of 15,360 MiB and 30 %: 70 % of it and one whole are free.
    assert sum(one["gpus"]["wholeFree"] for one in nodes) == 1
    assert sum(one["freeMilli"] for one in nodes) == 1000 + 700
    assert sum(one["strandedMilli"] for one in nodes) == 700
    queue = commands.json("get", "queue")["items"]
    assert [one["name"] for one in queue] == ["big", "three"]
    said = {one["name"]: objects.condition(busy.get("Pod", one["name"]), "PodScheduled") for one in queue}
    assert all(one["why"] == (said[one["name"]] or {})["message"] for one in queue)
    pods = commands.json("get", "pods")["items"]
    assert {one["name"]: bool(one["node"]) for one in pods} == {
        **dict.fromkeys(("whole-0", "whole-1", "part"), True),
        **dict.fromkeys(("big", "three"), False),
    }
    assert commands.run("get", "nodes", "-o", "name", "-l", "pool=a") == "node/a\n"
    table = commands.run("get", "gpus", "--no-headers").splitlines()
    assert len(table) == 4
    assert table[0].startswith("a ")
    assert commands.run("get", "gpus", program="kubectl-dovetail") == commands.run("get", "gpus")


def test_explain_says_what_the_scheduler_wrote(commands: Commands, busy: Client) -> None:
    for name in ("big", "three"):
        condition = reason(busy, name)
        answer = commands.json("explain", "pod", name, code=3)
        assert answer["state"] == "pending"
        assert answer["condition"] == condition["message"]
        assert commands.json("explain", name, code=3)["nodes"] == answer["nodes"]
    assert commands.json("explain", "whole-0")["state"] == "running"
    assert "there is no pod" in commands.ended("explain", "nothing").stderr


def test_a_plan_of_the_snapshot_is_the_plan_of_the_cluster(commands: Commands, busy: Client, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec:\n  schedulerName: dovetail\n"
        "  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8192}}}]\n"
    )
    path = tmp_path / "cluster.json.gz"
    commands.run("snapshot", "-o", str(path))
    live = commands.json("plan", "--live", "-f", str(new), code=3)
    stored = commands.json("plan", "-f", str(path), "-f", str(new), code=3)
    text = json.dumps(stored)
    for document in range(30):  # where a problem is: in the file or in the cluster
        text = text.replace(f"{path}#{document} ", "cluster ")
    assert live == json.loads(text)
    assert [one["pod"] for one in live["placements"]] == ["new"]
    assert {one["pod"] for one in live["pending"]} == {"big", "three"}
    commands.run("snapshot", "-o", str(tmp_path / "again.json"))
    once, again = gzip.decompress(path.read_bytes()).splitlines(), (tmp_path / "again.json").read_bytes().splitlines()
    assert once[2:] == again[2:]  # the first item has the time
    assert commands.json("get", "gpus", "-f", str(path)) == commands.json("get", "gpus")


def test_other_policies_are_tried_on_the_cluster_as_on_its_snapshot(
    commands: Commands, busy: Client, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.json.gz"
    commands.run("snapshot", "-o", str(path))
    found = commands.json("compare", "--live", "--policy", "binpack/binpack,fgd")
    assert found == commands.json("compare", "-f", str(path), "--policy", "binpack/binpack,fgd")
    assert found["pods"]["placedAnew"] == 3
    assert found["pods"]["waiting"] == 2
    assert [one["policy"] for one in found["policies"]] == ["own", "binpack/binpack", "fgd"]
    for one in found["policies"]:
        # Two whole cards and a part of a third, whatever the policy. No card has the memory that `big` wants, and no
        # node has three cards.
        assert (one["anew"]["placed"], one["anew"]["pending"], one["anew"]["waits"]) == (3, 2, [])
        assert one["anew"]["gpus"]["wholeFree"] == 1
        assert one["anew"]["gpuMemoryMib"] == {"used": 2 * 15360 + 4096, "total": 4 * 15360}
        assert (one["waiting"]["placed"], one["waiting"]["pending"]) == (0, 2)
    table = commands.run("compare", "--live", "--policy", "fgd").splitlines()
    assert table[0] == "2 nodes with 4 GPUs · placed anew: 3 pods · waiting: 2"


def test_the_history_of_the_cluster_becomes_a_trace(commands: Commands, busy: Client, tmp_path: Path) -> None:
    early, out = tmp_path / "early.json", tmp_path / "history"
    commands.run("snapshot", "-o", str(early))
    busy.delete("Pod", "whole-0", gracePeriodSeconds=0)
    busy.wait_until(lambda: busy.find("Pod", "whole-0") is None, "whole-0 is gone", 60)
    done = objects.pod("done", WHOLE)
    done["spec"] |= {"nodeName": "a", "schedulerName": "else"}
    busy.create(done)
    said = {"exitCode": 0, "startedAt": "2026-01-01T10:00:00Z", "finishedAt": "2099-01-01T10:00:00Z"}
    ended = {"name": "main", "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
    status = {"phase": "Succeeded", "containerStatuses": [{**ended, "state": {"terminated": said}}]}
    busy.patch("Pod", "done", {"status": status}, part="status")
    commands.run("trace", "import", "-f", str(early), "--live", "-o", str(out))
    trace, problems = load_trace(out / "nodes.csv", out / "jobs.csv")
    assert problems == []
    jobs = {job.name: job for job in trace.jobs}
    assert set(jobs) == {f"default/{name}" for name in ("whole-0", "whole-1", "part", "big", "three", "done")}
    assert [(one.name, one.gpus, one.gpu_memory_mib) for one in trace.machines] == [("a", 2, 15360), ("b", 2, 15360)]
    assert (jobs["default/part"].gpu_milli, jobs["default/part"].gpu_memory_mib) == (300, 4096)
    assert jobs["default/three"].gpus == 3
    assert (jobs["default/done"].duration or 0) > 72 * 365 * 86_400  # to 2099
    details = json.loads((out / "import.json").read_text())
    assert "default/whole-0" not in details["unfinished"]
    assert {"default/whole-1", "default/part", "default/big", "default/three"} == set(details["unfinished"])
    missing = {one["why"]: one["objects"] for one in details["remarks"]}
    assert missing["missing in a later dump: it ends when it was last seen"] == ["default/whole-0"]
    files = ("--nodes", str(out / "nodes.csv"), "--pods", str(out / "jobs.csv"), "--mode", "time", "--policy", "fgd")
    result = commands.json("replay", *files)
    # `big` wants more memory than a card has, and `three` more cards than a node: both wait here too.
    assert (result["jobs"], result["finished"], result["never_placed"]) == (6, 4, 2)


def test_no_secret_is_in_a_snapshot(commands: Commands, api: Client, tmp_path: Path) -> None:
    api.create(objects.node("a", gpus=2, annotations={"example.com/token": SECRET}))
    api.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": SECRET}})
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": SECRET}})
    made = objects.pod("pod", WHOLE, annotations={"example.com/token": SECRET, "hami.io/unknown": SECRET})
    container = made["spec"]["containers"][0]
    container |= {
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "args": [SECRET],
        "command": ["sh", "-c", SECRET],
        "livenessProbe": {"exec": {"command": [SECRET]}},
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
    }
    made["spec"]["initContainers"] = [{"name": "i", "image": "i", "env": [{"name": "P", "value": SECRET}]}]
    made["spec"]["volumes"] = [{"name": "v", "downwardAPI": {"items": []}}]
    api.create(made)
    template = {**made, "spec": {**made["spec"]}}
    for kind in (objects.deployment("d", 1, template), {**objects.deployment("r", 1, template), "kind": "ReplicaSet"}):
        api.create(kind)
    path = tmp_path / "snapshot.json"
    commands.run("snapshot", "-o", str(path))
    text = path.read_text()
    assert '"name":"pod"' in text
    assert SECRET not in text
    hidden = commands.run("snapshot", "--anonymize")
    assert SECRET not in hidden
    assert '"name":"pod"' not in hidden
    for what in ("gpus", "nodes", "pods", "queue"):
        assert SECRET not in commands.run("get", what, "-A", "-o", "json")


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the process at the end of the block, and close its pipes."""
    try:
        yield
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()


def test_watch_prints_what_changes_and_ends_cleanly(commands: Commands, plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("a", gpus=1))
    process = commands.started("get", "gpus", "--watch")
    lines: list[str] = []
    seen = threading.Condition()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with seen:
                lines.append(line)
                seen.notify_all()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with ending(process):
        with seen:
            assert seen.wait_for(lambda: any("LISTED" in line for line in lines), 60), lines
        assert lines[0].split()[:3] == ["EVENT", "NODE", "GPU"]
        api.create(objects.node("b", gpus=1))
        with seen:
            assert seen.wait_for(lambda: any(line.split()[:2] == ["ADDED", "b"] for line in lines), 60), lines
        api.delete("Node", "b")
        with seen:
            assert seen.wait_for(lambda: any(line.split()[:2] == ["GONE", "b"] for line in lines), 60), lines
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read().strip() == ""
        reader.join(60)


def test_a_closed_pipe_ends_the_watch(commands: Commands, api: Client) -> None:
    api.create(objects.node("a", gpus=1))
    process = commands.started("get", "nodes", "--watch")
    with ending(process):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("EVENT")
        process.stdout.close()
        api.create(objects.node("b", gpus=1))  # the next line has no reader
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_without_rights_the_missing_one_is_named(plane: ControlPlane, api: Client) -> None:
    api.create(objects.node("a", gpus=1))
    rules = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "half-a-viewer"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}],
    }
    api.create(rules)
    subject = {"kind": "ServiceAccount", "name": "dovetail-scheduler", "namespace": "kube-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "half-a-viewer"}
    meta = {"name": "half-a-viewer"}
    api.create({**rules, "kind": "ClusterRoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]})
    commands = Commands(plane, "dovetail")
    api.wait_until(lambda: '"pods"' in commands.ended("get", "gpus").stderr, "the missing right is that for pods", 60)
    done = commands.ended("get", "gpus")
    assert done.returncode == 2
    assert 'lacks verb "list" on resource "pods"' in done.stderr
    assert "deploy/optional/viewer/objects.yaml" in done.stderr
    watching = commands.ended("get", "gpus", "--watch")
    assert watching.returncode == 2
    assert 'on resource "pods"' in watching.stderr
    rules["rules"][0]["resources"] = ["nodes", "pods"]  # type: ignore[index]
    api.ask("PUT", "/apis/rbac.authorization.k8s.io/v1/clusterroles/half-a-viewer", rules)
    api.wait_until(lambda: commands.ended("get", "gpus").returncode == 0, "nodes and pods are enough", 60)
    assert "you may not list namespaces" in commands.ended("get", "gpus").stderr


def test_top_prints_a_frame_of_the_live_cluster(commands: Commands, busy: Client) -> None:
    lines = commands.run("top", "--once", "--width", "100").splitlines()
    # Two nodes with two cards each; two whole cards and 4,096 MiB of 4 × 15,360 MiB are given: 56 %.
    assert lines[0].startswith("2 nodes · 4 GPUs, 1 free · memory 56 % · ")
    assert sum("▕" in line for line in lines) == 4
    assert [line.split()[1] for line in lines[lines.index("WAITING") + 1 :]] == ["default/big", "default/three"]
