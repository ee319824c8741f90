"""The contract of `plan -o json`: these fields, of these types, are there. Add to it; never take away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.model.reason import REASON_WORDS
from tests.cli.conftest import PlanJson

REASONS = {word.name for word in REASON_WORDS.values()}


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Policy(Strict):
    node: str
    gpu: str


class PlacedDevice(Strict):
    container: str
    uuid: str | None
    index: int | None
    memory_mib: int
    compute_milli: int


class Placement(Strict):
    namespace: str
    pod: str
    node: str
    policy: Policy
    devices: list[PlacedDevice]


class Domain(Strict):
    level: str
    name: str
    domains: int
    fit: int
    members: int
    needed: int


class Pending(Strict):
    namespace: str
    pod: str
    policy: Policy
    reason: str
    message: str
    reasons: dict[str, int]
    nodes: dict[str, str]
    nearest: str | None
    domain: Domain | None


class Change(Strict):
    before: int
    after: int


class Resource(Strict):
    allocatable: int
    before: int
    after: int


class Use(Strict):
    slots: int
    memory_mib: int
    compute_milli: int


class Card(Strict):
    uuid: str
    index: int
    model: str
    healthy: bool
    cordoned: bool
    quarantined: bool
    slots: int
    memory_mib: int
    compute_milli: int
    before: Use
    after: Use
    pods: list[str]
    assumed: bool


class Node(Strict):
    name: str
    enforcer: str
    pods: Change
    resources: dict[str, Resource]
    whole_gpus_free: Change
    devices: list[Card]


class Summary(Strict):
    pods: int
    placed: int
    pending: int
    evicted: int
    nodes_used: int
    gpus_used: int
    whole_gpus_free: Change


class PodName(Strict):
    namespace: str
    pod: str


class Eviction(Strict):
    namespace: str
    pod: str
    node: str
    by: PodName
    reason: str
    breaks_budget: bool


class NotPlaced(Strict):
    kind: str
    namespace: str
    name: str
    why: str


class PlanDocument(Strict):
    apiVersion: str
    kind: str
    summary: Summary
    placements: list[Placement]
    pending: list[Pending]
    evictions: list[Eviction]
    nodes: list[Node]
    warnings: list[str]
    errors: list[str]
    notes: list[str]
    ignored: dict[str, int]
    not_placed: list[NotPlaced]


def checked(document: dict[str, Any]) -> PlanDocument:
    return msgspec.convert(document, PlanDocument)


CASES = {
    "demo": ["demo/cluster.yaml", "demo/demo-d.yaml"],
    "guide": ["guide/cluster.yaml", "guide/gpu-binpack.yaml"],
    "koordinator": ["koordinator/cluster.yaml", "koordinator/gang.yaml", "koordinator/vgpu-job-5.yaml"],
    "what-if": ["what-if"],
    "no nodes": ["demo/demo-a.yaml"],
}


@pytest.mark.parametrize("names", CASES.values(), ids=CASES.keys())
def test_the_contract_holds(examples: Path, plan_json: PlanJson, names: list[str]) -> None:
    plan = checked(plan_json(*(word for name in names for word in ("-f", examples / name))))
    assert (plan.apiVersion, plan.kind) == ("dovetail.dev/v1", "Plan")
    assert plan.summary.pods == len(plan.placements) + len(plan.pending)
    assert {pending.reason for pending in plan.pending} <= REASONS
    assert {reason for pending in plan.pending for reason in pending.reasons} <= REASONS
    for pending in plan.pending:
        assert pending.message
        assert sum(pending.reasons.values()) == len(pending.nodes)


def test_a_placement_names_container_and_card(examples: Path, plan_json: PlanJson) -> None:
    plan = checked(plan_json("-f", examples / "demo/cluster.yaml", "-f", examples / "demo/demo-a.yaml"))
    first = plan.placements[0]
    assert (first.namespace, first.pod, first.node) == ("default", "demo-a-0", "ip-10-0-52-161")
    [device] = first.devices
    assert (device.container, device.memory_mib, device.compute_milli) == ("vllm", 7500, 0)
    [card] = [card for node in plan.nodes for card in node.devices if card.uuid == device.uuid]
    assert card.index == device.index
    assert card.before == Use(0, 0, 0)
    assert card.after == Use(2, 15000, 0)
    assert card.pods == ["default/demo-a-0", "default/demo-a-1"]


def test_pending_speaks_hamis_language(examples: Path, plan_json: PlanJson) -> None:
    plan = checked(plan_json("-f", examples / "what-if"))
    first = plan.pending[0]
    assert (first.namespace, first.pod, first.reason) == ("search", "summariser-0", "CardInsufficientMemory")
    assert first.nearest == "gpu-a100-1"
    assert first.nodes["gpu-a100-1"] == "4/4 CardInsufficientMemory"
    assert first.nodes["gpu-l4-1"] == "2/2 CardTypeMismatch"
    assert first.reasons == {"CardTypeMismatch": 2, "CardInsufficientMemory": 1, "TaintNotTolerated": 1}


def test_use_before_is_that_of_the_running_pods(examples: Path, plan_json: PlanJson) -> None:
    plan = checked(plan_json("-f", examples / "what-if"))
    [node] = [node for node in plan.nodes if node.name == "gpu-a100-2"]
    assert [card.before.memory_mib for card in node.devices] == [81920, 81920, 0, 0]
    assert node.whole_gpus_free == Change(2, 2)
    assert node.devices[0].pods == ["training/pretrain-worker-0"]


def test_the_stock_plugin_picks_the_card_itself(plan_json: PlanJson) -> None:
    node = """
apiVersion: v1
kind: Node
metadata:
  name: plain
  labels:
    nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB
    nvidia.com/gpu.memory: "81920"
    nvidia.com/gpu.count: "2"
    nvidia.com/gpu.replicas: "1"
status:
  allocatable: {cpu: "8", memory: 32Gi, pods: "110", nvidia.com/gpu: "2"}
---
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  containers:
    - name: main
      resources:
        limits: {nvidia.com/gpu: 1}
"""
    plan = checked(plan_json("-f", "-", stdin=node))
    [device] = plan.placements[0].devices
    assert (device.uuid, device.index, device.container) == (None, None, "main")
    assert [n.enforcer for n in plan.nodes] == ["stock"]
