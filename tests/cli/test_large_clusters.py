"""Work that the commands do once, however many pods and owners a cluster has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.cli import board
from dovetail.engine.why.explain import verdicts
from dovetail.whatif import plan
from dovetail.whatif.situation import start
from tests.cli.conftest import Run
from tests.kube.manifests import GPU, MEM, Object, card, container, node, other, pod


def waiting(name: str, namespace: str, owner: str, memory: int = 9000) -> Object:
    """A pod that fits nowhere: a GPU has 8,000 MiB."""
    references = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    meta = {"namespace": namespace, "uid": name, "labels": {"app": owner}, "ownerReferences": references}
    return pod(name, container({GPU: 1, MEM: memory}), meta=meta, schedulerName="dovetail")


def text(*objects: Object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n", card("GPU-a")), *objects]})


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the pods for which all nodes were asked what they lack."""
    names: list[str] = []

    def noted(scheduler: Any, asked: Any) -> Any:
        names.append(asked.name)
        return verdicts(scheduler, asked)

    monkeypatch.setattr(plan, "verdicts", noted)
    return names


def test_pods_with_equal_requests_lack_the_same(run: Run, looked_at: list[str]) -> None:
    pods = [waiting(f"p{n}", f"team-{n % 2}", f"app-{n}") for n in range(4)]
    queue = json.loads(run("get", "queue", "-f", "-", "-o", "json", stdin=text(*pods)).stdout)["items"]
    assert [one["why"] for one in queue] == ["GPU memory short by 1,000 MiB on 1 node"] * 4
    assert looked_at == ["p0"]


def test_pods_with_other_requests_lack_other_things(run: Run, looked_at: list[str]) -> None:
    pods = [waiting("p0", "a", "x"), waiting("p1", "a", "x", 8500)]
    queue = json.loads(run("get", "queue", "-f", "-", "-o", "json", stdin=text(*pods)).stdout)["items"]
    assert [one["why"].split(" on ")[0] for one in queue] == [
        "GPU memory short by 1,000 MiB",
        "GPU memory short by 500 MiB",
    ]
    assert looked_at == ["p0", "p1"]


def test_a_quota_is_asked_for_each_namespace(run: Run, looked_at: list[str]) -> None:
    hard = {"hard": {"limits.nvidia.com/gpumem": "100"}}
    quota = other("ResourceQuota", name="q", spec=hard)
    quota["metadata"]["namespace"] = "limited"
    pods = [waiting("p0", "free", "x"), waiting("p1", "limited", "x", 5000)]
    pods[0]["spec"]["containers"] = pods[1]["spec"]["containers"] = [container({GPU: 1, MEM: 5000})]
    taken = pod("t", container({GPU: 1, MEM: 5000}), meta={"namespace": "free", "uid": "t"}, nodeName="n")
    queue = json.loads(run("get", "queue", "-f", "-", "-o", "json", stdin=text(quota, taken, *pods)).stdout)["items"]
    assert queue[0]["why"] == "GPU memory short by 2,000 MiB on 1 node"
    assert "quota" in queue[1]["why"]
    assert looked_at == ["p0", "p1"]


def test_running_pods_are_booked_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def noted(*arguments: Any) -> Any:
        starts.append(1)
        return start(*arguments)

    monkeypatch.setattr(board, "start", noted)
    monkeypatch.setattr(plan, "start", noted)
    assert run("get", "pods", "-f", "-", stdin=text(waiting("p0", "a", "x"))).exit_code == 0
    assert len(starts) == 1
