"""Snapshots: only what is read is kept, a plan of one is that of the cluster, other names change nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from dovetail.cli import snapshots
from dovetail.cli.errors import Refused
from dovetail.cli.main import cli
from dovetail.cli.sources import ReadCluster
from dovetail.kube.conversion.reduced import annotations_read, reduced
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.files import documents, snapshot
from dovetail.kube.files.anonymous import anonymized
from dovetail.kube.files.decode import TYPE_OF_KIND
from dovetail.kube.files.documents import Document
from dovetail.kube.files.snapshot import SnapshotMarker
from dovetail.kube.objects.problems import Problems

EXAMPLES = [("examples/what-if",), ("examples/preemption",), ("examples/koordinator/cluster.yaml",)]
Json = dict[str, Any]


def read(*paths: str) -> tuple[Document, ...]:
    return documents.read(paths, Problems())


def as_in_a_cluster(found: tuple[Document, ...]) -> list[Document]:
    """The documents as the API server has them: with uids, and reduced to what is read; without workloads."""
    result = []
    for number, one in enumerate(found):
        kind = TYPE_OF_KIND.get((one.group, one.kind))
        if one.kind == "Cluster":  # nodes in short: no object of an API server
            result.append(one)
        if kind is None or one.kind in ("Deployment", "Job", "StatefulSet", "Cluster"):
            continue
        body = json.loads(json.dumps(one.body))
        body["metadata"].setdefault("uid", f"uid-{number}")
        typed = msgspec.convert(body, kind)
        result.append(
            Document(
                one.place, one.kind, one.api_version, reduced(one.api_version, one.kind, typed, DEFAULT_VENDORS), True
            )
        )
    return result


def written(path: Path, found: list[Document] | tuple[Document, ...]) -> Path:
    path.write_bytes(b"".join(snapshot.encode(SnapshotMarker("2026-01-31T12:00:00Z", complete=False), found)))
    return path


def plan(path: Path, *more: str) -> Json:
    done = CliRunner().invoke(cli, ["plan", "-f", str(path), *more, "-o", "json"])
    assert done.exit_code in (0, 3), done.output
    made: Json = json.loads(done.stdout)
    return made


@pytest.mark.parametrize("paths", EXAMPLES, ids=lambda paths: Path(paths[0]).name)
def test_what_is_left_out_changes_no_plan(paths: tuple[str, ...], tmp_path: Path) -> None:
    whole = []
    for number, one in enumerate(read(*paths)):
        if one.kind not in ("Deployment", "Job", "StatefulSet"):
            body = json.loads(json.dumps(one.body))
            body.setdefault("metadata", {}).setdefault("uid", f"uid-{number}")
            whole.append(body)
    (tmp_path / "whole.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": whole}))
    before = plan(tmp_path / "whole.json")
    after = plan(
        written(tmp_path / "s.json", as_in_a_cluster(read(*paths))), "--scheduler-name", "default-scheduler", *NAMES
    )
    for part in ("summary", "placements", "pending", "nodes", "evictions"):
        assert after[part] == before[part], part
    assert before["nodes"]


NAMES = ("--scheduler-name", "dovetail", "--scheduler-name", "hami-scheduler", "--scheduler-name", "koord-scheduler")


def test_anonymous_names_are_the_same_everywhere_and_keep_their_order(tmp_path: Path) -> None:
    found = as_in_a_cluster(read("examples/what-if"))
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "acme-gang", "namespace": "acme"},
        "spec": {"minMember": 2},
    }
    found.append(Document("x#1", "PodGroup", "scheduling.x-k8s.io/v1alpha1", group, True))
    for name in ("acme-worker-10", "acme-worker-2"):
        found.append(Document("x#2", "Pod", "v1", acme(name), True))
    before = plan(written(tmp_path / "named.json", found))
    hidden = anonymized(found)
    after = plan(written(tmp_path / "hidden.json", hidden))
    text = (tmp_path / "hidden.json").read_text()
    assert not any(word in text for word in ("acme", "summariser", "pretrain", "search"))
    assert after["summary"] == before["summary"]
    used = [[(one["name"], one["resources"]) for one in made["nodes"]] for made in (before, after)]
    assert used[0] == used[1]
    where = [[(one["node"], one["devices"]) for one in made["placements"]] for made in (before, after)]
    assert where[0] == where[1]
    workers = [
        one
        for one in hidden
        if one.kind == "Pod" and "scheduling.x-k8s.io/pod-group" in one.body["metadata"].get("labels", {})
    ]
    gangs = {one.body["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for one in workers}
    assert gangs == {one.body["metadata"]["name"] for one in hidden if one.kind == "PodGroup"}
    assert len({one.body["metadata"]["namespace"] for one in workers}) == 1
    apart = [
        one.body["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        for one in workers
    ]
    team = {one.body["metadata"]["labels"]["team"] for one in workers}
    assert {terms[0]["labelSelector"]["matchLabels"]["team"] for terms in apart} == team != {"acme-research"}


def acme(name: str) -> Json:
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"team": "acme-research"}}}
    labels = {"scheduling.x-k8s.io/pod-group": "acme-gang", "team": "acme-research"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "acme", "uid": name.encode().hex(), "labels": labels},
        "spec": {
            "schedulerName": "dovetail",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        },
    }


def test_only_annotations_that_are_read_are_kept() -> None:
    is_read = annotations_read(DEFAULT_VENDORS)
    for name in (
        *(
            "hami.io/node-nvidia-register",
            "hami.io/vgpu-devices-allocated",
            "nvidia.com/use-gputype",
            "dovetail.dev/gang",
        ),
        *("scheduling.k8s.io/group-name", "hami.io/device-cordon", "tencent.com/predicate-gpu-idx-0"),
    ):
        assert is_read(name), name
    for name in (
        *("kubectl.kubernetes.io/last-applied-configuration", "hami.io/secret", "dovetail.dev/token"),
        *("nvidia.com/token", "vault.hashicorp.com/agent-inject-template-x"),
    ):
        assert not is_read(name), name


def test_manifests_are_added_to_a_snapshot_and_replace_what_is_not_a_pod() -> None:
    def document(kind: str, name: str, version: str = "v1", **body: Any) -> Document:
        return Document("f#1", kind, version, {"metadata": {"name": name, "namespace": "default"}, **body})

    there = [dataclasses.replace(document("Pod", "p"), reduced=True), document("ResourceQuota", "q", spec={"hard": {}})]
    new = [document("Pod", "p"), document("Pod", "new"), document("ResourceQuota", "q", spec={"hard": {"pods": "1"}})]
    found = snapshot.together(there, new)
    assert [(one.kind, one.name, one.reduced) for one in found] == [
        ("Pod", "p", True),
        ("Pod", "new", False),
        ("ResourceQuota", "q", False),
    ]


def test_a_marker_that_is_not_ours_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(
        '{"apiVersion": "dovetail.dev/v1", "kind": "Snapshot", "metadata": {"name": "x"}, "taken": "yesterday"}'
    )
    done = CliRunner().invoke(cli, ["plan", "-f", str(path)])
    assert done.exit_code == 2
    assert "take one with `dovetail snapshot`" in done.stderr


def test_a_gzipped_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s.json.gz"
    path.write_bytes(b"not gzip")
    done = CliRunner().invoke(cli, ["plan", "-f", str(path)])
    assert done.exit_code == 2
    assert "cannot be read" in done.stderr


def taken() -> ReadCluster:
    return ReadCluster(read("examples/what-if"), SnapshotMarker("2026-01-31T12:00:00Z", complete=False))


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz"])
def test_a_link_stays_and_its_file_is_written(tmp_path: Path, name: str) -> None:
    link, file = tmp_path / name, tmp_path / f"real-{name}"
    link.symlink_to(file)
    snapshots.write(str(link), taken())
    assert link.is_symlink()
    assert len(read(str(file))) == 1 + len(taken().documents)  # the marker
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((link.name, file.name))


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """Nor is a device: as root, `dovetail snapshot -o /dev/full` made a file of it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(Refused, match="it is not a regular file; write to a file, or to stdout with -o -"):
        snapshots.write(str(path), taken())
    assert path.is_fifo()
