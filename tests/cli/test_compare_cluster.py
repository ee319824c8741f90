"""`dovetail compare` on the pods of a cluster: placed anew, and only those that wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.kube.manifests import ALLOCATED, card, container, node, pod

HALF = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 40}
TWO_WHOLE = {"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 100, "nvidia.com/gpucores": 100}
UID = "00000000-0000-0000-0000-{:012}"


def running(name: str, where: str, gpu: str, number: int, **fields: Any) -> dict[str, Any]:
    """A pod that holds half a card: 4,000 of 8,000 MiB and 40 %."""
    at = f"2026-11-10T10:{number:02}:00Z"
    meta = {
        "uid": UID.format(number),
        "creationTimestamp": at,
        "annotations": {ALLOCATED: f"{gpu},NVIDIA,4000,40:;", "hami.io/vgpu-node": where} | fields.pop("notes", {}),
        **fields.pop("meta", {}),
    }
    status = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]}
    spec = {"nodeName": where, "schedulerName": "dovetail", **fields}
    return pod(name, container(HALF), meta=meta, status=status, **spec)


def waiting(name: str, limits: dict[str, Any], number: int, **meta: Any) -> dict[str, Any]:
    at = f"2026-11-10T11:{number:02}:00Z"
    meta = {"uid": UID.format(100 + number), "creationTimestamp": at, **meta}
    return pod(name, container(limits), meta=meta, status={"phase": "Pending"}, schedulerName="dovetail")


NODES = [node(name, *(card(f"GPU-{name}{n}") for n in range(2))) for name in ("a", "b")]
SPREAD_OUT = [running(f"half-{n}", "ab"[n // 2], f"GPU-{'ab'[n // 2]}{n % 2}", n) for n in range(4)]
BIG = waiting("big", TWO_WHOLE, 0)


@pytest.fixture
def compared(run: Run, tmp_path: Path) -> Any:
    """`compared(objects, policies)` → the JSON."""

    def invoke(objects: list[dict[str, Any]], policies: str, *more: str) -> dict[str, Any]:
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        done = run("compare", "-f", path, "--policy", policies, *more, "-o", "json")
        assert done.exit_code == 0, done.output
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    return invoke


def of(document: dict[str, Any], policy: str, way: str = "anew") -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["policies"] if one["policy"] == policy)[way]
    return found


def test_packing_leaves_whole_gpus_for_the_pod_that_waits(compared: Any) -> None:
    found = compared([*NODES, *SPREAD_OUT, BIG], "binpack/binpack,spread/spread")
    assert found["pods"]["placedAnew"] == 4
    assert found["pods"]["waiting"] == 1
    assert found["today"]["gpus"] == {"total": 4, "usable": 4, "wholeFree": 0}  # one pod on each of four cards
    # Two halves on each card of one node: 4 pods need 2 cards. `big` then gets the other node's 2 whole cards.
    packed = of(found, "binpack/binpack")
    assert (packed["placed"], packed["pending"], packed["gpus"]["wholeFree"]) == (5, 0, 0)
    assert [(one["pod"], one["node"]) for one in packed["starts"]] == [("big", "b")]
    assert packed["waits"] == []
    # Spread puts one on each card, as today.
    spread = of(found, "spread/spread")
    assert (spread["placed"], spread["pending"], spread["starts"]) == (4, 1, [])
    assert spread["gpuMemoryMib"] == {"used": 4 * 4000, "total": 4 * 8000}
    assert spread["fragmentation"] == 1.0  # every card is partly in use
    # On the cluster as it is, no policy can place it.
    assert of(found, "binpack/binpack", "waiting")["pending"] == 1


def test_what_is_left_without_a_pod_that_waits(compared: Any) -> None:
    found = compared([*NODES, *SPREAD_OUT], "binpack/binpack")
    packed = of(found, "binpack/binpack")
    assert packed["gpus"]["wholeFree"] == 2
    assert packed["nodes"] == {"total": 2, "unused": 1}
    assert packed["largest"] == {"gpus": 2, "memoryMib": 8000, "computeMilli": 1000}
    # Free on a: nothing of the memory, as 2 × 4,000 = 8,000 MiB of each card are given; on b 2 × 1000 milli, all whole.
    assert (packed["freeMilli"], packed["strandedMilli"], packed["fragmentation"]) == (2000, 0, 0.0)
    assert found["today"]["nodes"] == {"total": 2, "unused": 0}


def test_pods_are_placed_in_the_order_in_which_they_got_their_nodes(compared: Any) -> None:
    one_card = [node("a", card("GPU-a0"))]
    pods = [running("first", "a", "GPU-a0", 1), running("second", "a", "GPU-a0", 2)]
    late = waiting("late", HALF, 0)
    late["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"  # older, but without a node
    found = compared([*one_card, late, *reversed(pods)], "binpack/binpack")
    own = of(found, "own")
    assert (own["placed"], own["pending"]) == (2, 1)
    assert own["starts"] == []
    assert own["waits"] == []  # the two that run keep the card: 2 × 4,000 MiB


def test_pods_of_other_schedulers_daemon_sets_and_those_being_deleted_keep_their_nodes(compared: Any) -> None:
    daemon = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}]}
    leaving = {"deletionTimestamp": "2026-11-10T12:00:00Z"}
    pods = [
        running("other", "a", "GPU-a0", 0, schedulerName="else"),
        running("daemon", "a", "GPU-a1", 1, meta=daemon),
        running("leaving", "b", "GPU-b0", 2, meta=leaving),
        running("moves", "b", "GPU-b1", 3),
    ]
    found = compared([*NODES, *pods], "binpack/binpack", "--scheduler-name", "dovetail")
    assert found["pods"] == {
        "placedAnew": 1,
        "waiting": 0,
        "kept": {"otherScheduler": 1, "daemonSet": 1, "leaving": 1},
    }
    # Three cards are half in use; `moves` joins one of them, so that one card is whole.
    assert of(found, "binpack/binpack")["gpus"]["wholeFree"] == 1
    everyone = compared([*NODES, *pods], "binpack/binpack")
    assert everyone["pods"]["kept"]["otherScheduler"] == 0  # manifests: pods of all schedulers
    assert everyone["pods"]["placedAnew"] == 2


def test_a_gang_is_placed_anew_as_a_whole_with_its_members_that_wait(compared: Any) -> None:
    gang = {"dovetail.dev/gang": "train", "dovetail.dev/gang-size": "3"}
    whole = {**TWO_WHOLE, "nvidia.com/gpu": 1}
    members = [running(f"m-{n}", "a", f"GPU-a{n}", n, notes=gang) for n in range(2)]
    members.append(waiting("m-2", whole, 0, annotations=gang))
    # Three members together need two halves and a whole card: of one node with two cards, they get both.
    fits = of(compared([NODES[0], *members], "binpack/binpack"), "binpack/binpack")
    assert (fits["placed"], fits["pending"]) == (3, 0)
    assert [one["pod"] for one in fits["starts"]] == ["m-2"]
    # Spread gives each half a card of its own. No whole card is left for the third, so that none of them runs.
    small = of(compared([node("a", card("GPU-a0")), *members], "binpack/binpack"), "binpack/binpack")
    assert (small["placed"], small["pending"]) == (0, 3)
    assert [one["pod"] for one in small["waits"]] == ["m-0", "m-1"]


def test_the_order_of_the_files_does_not_matter(compared: Any) -> None:
    objects = [*NODES, *SPREAD_OUT, BIG]
    assert compared(objects, "fgd,snug") == compared(objects[::-1], "fgd,snug")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-f", "examples/what-if", "--seeds", "1"), "--seeds is for traces; leave it out, or leave out --live and -f"),
        (("-f", "examples/what-if", "--baseline", "fgd"), "--baseline is for traces"),
        (("--context", "x"), "--context is for clusters; add --live, or a snapshot with -f"),
        (("-f", "examples/what-if", "-o", "csv"), "-o csv is for traces"),
        (("-f", "examples/what-if", "--policy", "nope"), "there is no such node policy"),
        (("-f", "examples/what-if", "--policy", "fgd/spread"), "fgd chooses the GPUs itself"),
    ],
)
def test_errors_name_the_fix(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run("compare", *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_policy_that_needs_measured_load_says_what_decides_instead(run: Run) -> None:
    done = run("compare", "-f", "examples/what-if", "--policy", "target-load")
    assert done.exit_code == 0
    assert "target-load needs measured load, which is not read here; " in done.stderr


def test_the_table_shows_differences_to_today(run: Run) -> None:
    done = run("compare", "-f", "examples/what-if", "--policy", "fgd")
    lines = done.stdout.splitlines()
    assert lines[0] == "4 nodes with 12 GPUs · placed anew: 8 pods · waiting: 2"
    today, own, fgd = (line.split("  ") for line in lines[4:7])
    assert [row[0] for row in (today, own, fgd)] == ["today", "own", "fgd"]
    assert "+4" in lines[6]  # 7 whole GPUs free, 3 today
    # The example's pod runs on a node whose taint it does not tolerate: no policy could place it there again.
    waits = "fgd: training/pretrain-worker-0 would wait: taint dedicated=training:NoSchedule not tolerated on 1 node; "
    assert any(line.startswith(waits) for line in lines)
