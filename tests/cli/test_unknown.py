"""What nobody knows is not printed as if it were known: cards of stock nodes, quarantined cards, sizes."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from dovetail.cli.output import picture
from dovetail.cli.output.plan_table import short_uuids
from dovetail.engine.usage import CardUse, NodeUse
from dovetail.model.device import Device
from dovetail.model.node import Node
from tests.cli.conftest import PlanJson, Run
from tests.kube.manifests import ALLOCATED, Object, card, container, node, pod


def text(*objects: Object) -> str:
    return "\n---\n".join(json.dumps(item) for item in objects)


def devices(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [device for one in plan["nodes"] for device in one["devices"]]


def holding(uuid: str, memory: int = 1000, name: str = "old") -> Object:
    """A running pod that has a part of a card."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}
    annotations = {ALLOCATED: f"{uuid},NVIDIA,{memory},0:;"}
    return pod(name, container(limits), meta={"annotations": annotations}, nodeName="n")


STOCK = node("n", labels={"nvidia.com/gpu.count": "2"}, allocatable={"nvidia.com/gpu": "2"})


def test_the_card_of_a_stock_node_is_assumed(plan_json: PlanJson, run: Run) -> None:
    given = text(STOCK, pod("new", container({"nvidia.com/gpu": 1})))
    plan = plan_json("-f", "-", stdin=given)
    assert sorted((d["assumed"], len(d["pods"])) for d in devices(plan)) == [(False, 0), (True, 1)]
    wide = run("plan", "-o", "wide", "-f", "-", stdin=given).stdout
    assert "(assumed) default/new" in wide
    assert "1 × kubelet's choice" in wide


def test_a_size_that_nobody_states_is_unknown(run: Run) -> None:
    given = text(STOCK, pod("new", container({"nvidia.com/gpu": 1})))
    wide = run("plan", "-o", "wide", "-f", "-", stdin=given).stdout
    assert "0 of unknown" in wide
    assert "0 MiB" not in wide
    assert "unknown" in run("explain", "new", "-f", "-", stdin=given).stdout


def test_a_quarantined_card_has_no_index_and_does_not_count(plan_json: PlanJson, run: Run) -> None:
    given = text(node("n", card("GPU-a"), card("GPU-b")), holding("GPU-gone"))
    plan = plan_json("-f", "-", stdin=given)
    assert [(d["uuid"], d["index"]) for d in devices(plan)] == [("GPU-a", 0), ("GPU-b", 0), ("GPU-gone", None)]
    wide = run("plan", "-o", "wide", "-f", "-", stdin=given).stdout
    assert "2 of 2" in wide  # whole GPUs free, not "of 3"
    assert "n     -    GPU-gone" in wide
    assert "-1" not in wide
    assert "-  GPU-gone" in run("explain", "old", "-f", "-", stdin=given).stdout


def test_the_picture_says_so_too() -> None:
    gone = CardUse(Device("GPU-gone", -1, "", "unknown", 0, quarantined=True), 1, 500, 0, ("d/a",), False)
    guessed = CardUse(Device("GPU-a", 0, "NVIDIA", "T4", 0), 1, 0, 0, ("d/b",), True)
    lines = [
        click.unstyle(line) for line in picture.draw([NodeUse(Node("n"), {}, (guessed, gone), 2)], {}, picture.ASCII)
    ]
    assert lines[0] == "n  1 x T4"
    assert lines[1].startswith("   0 [")
    assert lines[1].endswith("0 / unknown  + 1 pod  (assumed)")
    assert lines[2].startswith("   - [")


@pytest.mark.parametrize("state", ["", "explain"])
def test_a_card_of_unknown_size_that_is_overdrawn(plan_json: PlanJson, run: Run, state: str) -> None:
    """A percentage of nothing is nothing; dividing by it used to end the program."""
    asking = pod("new", container({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}))
    given = text(node("n", card("GPU-a", memory=0)), holding("GPU-a", 1000), asking)
    if state == "explain":
        assert run("explain", "new", "-f", "-", stdin=given).exit_code == 3
    else:
        [waiting] = plan_json("-f", "-", stdin=given)["pending"]
        assert waiting["reasons"] == {"CardInsufficientMemory": 1}


def test_shortened_uuids_stay_apart() -> None:
    uuids = ["GPU-ef931851-ecba", "GPU-ef931852-ecba", "GPU-n-0-0", "GPU-n-0-1", "GPU-n-1", "GPU-n-1-0", "MLU-1-2"]
    short = short_uuids(uuids)
    assert len(set(short.values())) == len(uuids)
    assert short["GPU-ef931851-ecba"] == "GPU-ef931851"
    assert (short["GPU-n-0-1"], short["GPU-n-1"], short["GPU-n-1-0"]) == ("GPU-n-0-1", "GPU-n-1", "GPU-n-1-0")
    assert short["MLU-1-2"] == "MLU-1-2"


def test_uuids_of_a_plan_stay_apart(run: Run) -> None:
    cluster = (
        "apiVersion: dovetail.dev/v1\nkind: Cluster\nnodes: [{name: n, gpus: {model: T4, count: 2, memory: 100}}]\n"
    )
    pods = text(*(pod(f"p{at}", container({"nvidia.com/gpu": 1})) for at in range(2)))
    said = run("plan", "-f", "-", stdin=f"{cluster}---\n{pods}").stdout
    assert "GPU-n-0" in said
    assert "GPU-n-1" in said


def test_the_reason_is_one_of_the_reasons(plan_json: PlanJson) -> None:
    """The first node refuses at the pod's turn for memory; in the end it is full of the others."""
    nodes = [node(name, card(f"GPU-{name}", memory=1000, count=1)) for name in ("a", "b", "c")]
    small = [pod(f"p-{at}", container({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 500})) for at in range(3)]
    big = pod("big", container({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2000}))
    plan = plan_json("-f", "-", stdin=text(*nodes, *small, big))
    [waiting] = plan["pending"]
    assert waiting["reasons"] == {"CardTimeSlicingExhausted": 3}
    assert waiting["reason"] == "CardTimeSlicingExhausted"
