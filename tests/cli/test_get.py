"""`dovetail get` on files: who has which GPUs, what is free, who waits and why."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from dovetail.cli.kubectl_completion import candidates
from dovetail.cli.watching import changes
from dovetail.kube.conversion.label_query import parse_labels
from tests.cli.conftest import Run
from tests.cli.test_terminal import CONTROL, ESCAPES

EXAMPLE = ("-f", "examples/what-if")


def items(run: Run, *words: str, code: int = 0) -> list[dict[str, Any]]:
    done = run("get", *words, "-o", "json")
    assert done.exit_code == code, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return found


def test_gpus_show_who_holds_how_much_of_each(run: Run) -> None:
    gpus = items(run, "gpus", *EXAMPLE)
    assert len(gpus) == 12  # 4 + 4 A100, 2 + 2 L4
    first = gpus[0]
    assert (first["node"], first["index"], first["pods"]) == ("gpu-a100-1", 0, ["chat/chat-7f9c6d5b8-2xkqp"])
    assert first["memoryMib"] == {"used": 57344, "total": 81920}
    assert first["computeMilli"] == {"used": 600, "total": 1000}
    pretrain = [one for one in gpus if one["pods"] == ["training/pretrain-worker-0"]]
    assert [one["index"] for one in pretrain] == [0, 1]


def test_nodes_show_what_is_whole_what_is_stranded_and_what_fits(run: Run) -> None:
    nodes = {one["name"]: one for one in items(run, "nodes", *EXAMPLE)}
    full = nodes["gpu-a100-1"]
    # Free of the four cards, the scarcer of memory and compute: (81,920 - 57,344) / 81,920 = 300 of 400 milli, twice;
    # (81,920 - 43,008) / 81,920 = 475 of 500; (81,920 - 49,152) / 81,920 = 400 of 600.
    assert full["freeMilli"] == full["strandedMilli"] == 300 + 300 + 475 + 400
    assert full["fragmentation"] == 1.0
    assert full["largest"] == {"gpus": 1, "memoryMib": 81920 - 43008, "computeMilli": 500}
    assert nodes["gpu-a100-2"]["gpus"] == {"total": 4, "usable": 4, "wholeFree": 2}
    assert nodes["gpu-a100-2"]["fragmentation"] == 0.0
    assert "2 whole GPUs" in run("get", "nodes", *EXAMPLE).stdout


def test_the_queue_is_in_the_order_of_service_with_the_reason_of_a_plan(run: Run) -> None:
    queue = items(run, "queue", *EXAMPLE)
    assert [one["name"] for one in queue] == ["summariser-0", "summariser-1"]
    pending = json.loads(run("plan", *EXAMPLE, "-o", "json").stdout)["pending"]
    assert [one["why"] for one in queue] == [one["message"] for one in pending]


def test_the_schedulers_own_words_come_first(run: Run) -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available."}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "dovetail", "containers": [{"name": "c", "resources": {"limits": {"cpu": "900"}}}]},
        "status": {"phase": "Pending", "conditions": [said]},
    }
    (only,) = json.loads(run("get", "queue", "-f", "-", "-o", "json", stdin=json.dumps(pod)).stdout)["items"]
    assert (only["reason"], only["why"]) == ("Unschedulable", "0/4 nodes are available.")
    assert only["waitSeconds"] > 0


def test_gangs_and_quotas(run: Run) -> None:
    folder = ("-f", "examples/koordinator/cluster.yaml", "-f", "examples/koordinator/gang.yaml")
    done = run("get", "gangs", *folder)
    assert done.exit_code == 0
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "chat"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": "200000", "pods": "10"}},
    }
    text = json.dumps(quota)
    found = json.loads(run("get", "quotas", *EXAMPLE, "-f", "-", "-o", "json", stdin=text).stdout)["items"]
    by_resource = {one["resource"]: (one["used"], one["ceiling"]) for one in found}
    assert by_resource["gpu-memory/NVIDIA"] == (2 * 57344, 200000)
    assert by_resource["pods"] == (2, 10)


def test_names_labels_and_namespaces_choose(run: Run) -> None:
    assert run(
        "get", "nodes", *EXAMPLE, "-l", "kubernetes.io/hostname in (gpu-l4-1,gpu-l4-2)", "-o", "name"
    ).stdout.split() == [
        "node/gpu-l4-1",
        "node/gpu-l4-2",
    ]
    assert [one["node"] for one in items(run, "gpus", "gpu-l4-2", *EXAMPLE)] == ["gpu-l4-2"] * 2
    assert {one["namespace"] for one in items(run, "pods", *EXAMPLE, "-n", "search")} == {"search"}
    missing = run("get", "nodes", "gpu-x", *EXAMPLE)
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "not found: gpu-x" in missing.stderr
    assert run("get", "gangs", *EXAMPLE, "-l", "a=b").exit_code == 2
    assert "is no label selector" in run("get", "nodes", *EXAMPLE, "-l", "a=b)").stderr


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("app=web", {"app": "web"}, True),
        ("app==web,tier!=db", {"app": "web"}, True),
        ("app=web,tier!=db", {"app": "web", "tier": "db"}, False),
        ("env in (a, b)", {"env": "b"}, True),
        ("env notin (a,b)", {"env": "b"}, False),
        ("env notin (a,b)", {}, True),
        ("!old", {}, True),
        ("old", {}, False),
        ("old,x=", {"old": "1", "x": ""}, True),
        ("", {}, True),
    ],
)
def test_label_selectors_are_kubectls(text: str, labels: dict[str, str], matches: bool) -> None:
    assert all(term.matches(labels) for term in parse_labels(text)) is matches


def test_a_watch_tells_what_is_new_different_and_gone() -> None:
    before = {"a": {"n": 1, "ageSeconds": 1}, "b": {"n": 1}, "c": {"n": 1}}
    now = {"a": {"n": 1, "ageSeconds": 9}, "b": {"n": 2}, "d": {"n": 1}}
    assert [(what, item["n"]) for what, item in changes(before, now)] == [("CHANGED", 2), ("ADDED", 1), ("GONE", 1)]


@pytest.mark.parametrize("kind", ["gpus", "nodes", "pods", "queue", "gangs", "quotas"])
@pytest.mark.parametrize("form", ["wide", "json", "yaml", "name"])
def test_no_text_of_an_object_controls_the_terminal(run: Run, kind: str, form: str) -> None:
    card = {"id": f"GPU{ESCAPES}", "count": 1, "devmem": 100, "devcore": 100, "type": f"T4{ESCAPES}", "health": True}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "annotations": {"hami.io/node-nvidia-register": json.dumps([card])}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "1"}},
    }
    said = {"type": "PodScheduled", "status": "False", "reason": f"R{ESCAPES}", "message": f"M{ESCAPES}"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "uid": "u",
            "labels": {"a": f"b{ESCAPES}"},
            "annotations": {"dovetail.dev/gang": f"g{ESCAPES}"},
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "9"}}}]},
        "status": {"phase": f"P{ESCAPES}", "conditions": [said]},
    }
    done = run("get", kind, "-A", "-f", "-", "-o", form, stdin=yaml.safe_dump_all([node, pod]))
    assert not CONTROL.search(done.stdout.replace("\n", "")), done.stdout
    assert not CONTROL.search(done.stderr.replace("\n", ""))


def test_kubectl_completes_the_plugin() -> None:
    assert candidates(["get", "g"]) == ["gpus", "gangs"]
    assert [line.partition("\t")[0] for line in candidates(["sna"])] == ["snapshot"]
    assert any(line.startswith("--watch\t") for line in candidates(["get", "gpus", "--wa"]))


def test_without_a_cluster_the_message_says_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    done = run("get", "gpus")
    assert done.exit_code == 2
    assert "KUBECONFIG" in done.stderr
    assert "-f FILE" in done.stderr
    assert run("plan").exit_code == 2
    assert run("get", "gpus", "-w", *EXAMPLE).exit_code == 2


def test_a_gang_of_which_all_members_run_has_the_topology_of_its_pod_group(run: Run) -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "annotations": {"dovetail.dev/topology-required": "topology.kubernetes.io/rack"}},
        "spec": {"minMember": 2},
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"g-{n}", "labels": {"scheduling.x-k8s.io/pod-group": "g"}},
            "spec": {"nodeName": "gpu-l4-1", "containers": [{"name": "c"}]},
            "status": {"phase": "Running"},
        }
        for n in range(2)
    ]
    given = "\n---\n".join(yaml.safe_dump(one) for one in (group, *pods))
    done = run("get", "gangs", *EXAMPLE, "-f", "-", "-o", "json", stdin=given)
    found = json.loads(done.stdout)["items"]
    assert [(one["name"], one["bound"], one["minimum"]) for one in found] == [("g", 2, 2)]
    assert "topology.kubernetes.io/rack" in found[0]["topology"]
