"""`explain` of a waiting pod: what its queue is owed, who holds it, and which way would place it, at what cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.test_plan_queues import inside, quota
from tests.cli.test_preemption import HIGH, cluster, given, runs, wants
from tests.kube.manifests import Object

HOUR = 3600
NOW = 1_767_225_600 + 10 * HOUR  # ten hours after the start of 2026


@pytest.fixture(autouse=True)
def _at_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(NOW))


def since(hour: int, made: Object) -> Object:
    made["status"] = {"phase": "Running", "startTime": f"2026-01-01T{hour:02d}:00:00Z"}
    return made


def explained(run: Run, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("explain", *arguments, "-o", "json").stdout)
    return found


def ways(found: dict[str, Any]) -> dict[str, tuple[bool, list[str]]]:
    return {way["kind"]: (way["possible"], [one["pod"] for one in way["stops"]]) for way in found["ways"]}


def test_preemption_that_is_switched_off_has_its_cost(tmp_path: Path, run: Run) -> None:
    """Two pods of one GPU, started at 4 and at 8 o'clock; it is 10. The new pod needs both: 6 + 2 GPU-hours."""
    there = (since(4, runs("a")), since(8, runs("b", index=1)))
    objects = given(tmp_path, cluster(2), HIGH, *there, wants("new", 2, priorityClassName="high"))
    found = explained(run, "new", "--no-preemption", *objects)
    assert ways(found) == {"wait": (True, []), "preempt": (True, ["b", "a"])}
    way = found["ways"][1]
    assert way["gpu_hours_lost"] == 8.0
    assert {one["pod"]: one["gpu_hours_lost"] for one in way["stops"]} == {"a": 6.0, "b": 2.0}
    assert found["owed"] is None


def test_a_pod_that_outranks_nobody_is_told_which_priority_would_help(tmp_path: Path, run: Run) -> None:
    objects = given(tmp_path, cluster(1), since(4, runs("a", priority=7)), wants("new"))
    text = run("explain", "new", *objects).stdout
    assert "no pod yields to its priority 0; at 8 or more: stops default/a (6.0 GPU-hours lost)" in text
    assert ways(explained(run, "new", *objects)) == {"wait": (True, []), "preempt": (False, ["a"])}


def test_without_a_start_time_the_cost_is_not_known(tmp_path: Path, run: Run) -> None:
    objects = given(tmp_path, cluster(1), runs("a", priority=7), wants("new"))
    assert explained(run, "new", *objects)["ways"][1]["gpu_hours_lost"] is None
    assert "GPU-hours lost are not known" in run("explain", "new", *objects).stdout


def test_a_pod_that_never_fits(tmp_path: Path, run: Run) -> None:
    objects = given(tmp_path, cluster(1), HIGH, runs("a"), wants("new", 2, priorityClassName="high"))
    found = explained(run, "new", *objects)
    assert ways(found) == {"wait": (False, []), "preempt": (False, [])}
    assert [way["sentence"] for way in found["ways"]] == [
        "it does not fit even if all running pods have ended",
        "stopping running pods would not make room",
    ]


def test_preemption_policy_never(tmp_path: Path, run: Run) -> None:
    pod = wants("new", priorityClassName="high", preemptionPolicy="Never")
    found = explained(run, "new", *given(tmp_path, cluster(1), HIGH, runs("a"), pod))
    assert found["ways"][1]["sentence"] == "its preemptionPolicy is Never"


def test_what_a_queue_is_owed_and_who_holds_it(tmp_path: Path, run: Run) -> None:
    """Two GPUs; A and B are owed one each, and A holds both. B's pod would get one by reclaim."""
    there = (inside("a", since(9, runs("a0"))), inside("a", since(1, runs("a1", index=1))))
    objects = given(tmp_path, cluster(2), quota("a", 1, 2), quota("b", 1, 2), *there, inside("b", wants("b0")))
    found = explained(run, "b0", "--no-preemption", *objects)
    assert found["owed"]["queue"] == "ElasticQuota/b/b"
    amounts = found["owed"]["amounts"]["gpus"]
    assert amounts == {"guarantee": 1_000, "deserved": 1_000, "used": 0, "ceiling": 2_000}
    assert found["owed"]["loans"] == [{"queue": "ElasticQuota/a/a", "resource": "gpus", "amount": 1_000}]
    assert list(ways(found)) == ["wait", "borrow", "reclaim", "preempt"]
    possible, (victim,) = ways(found)["reclaim"]
    assert possible
    assert victim in ("a0", "a1")
    text = run("explain", "b0", "--no-preemption", *objects).stdout
    assert "ElasticQuota/a/a has borrowed gpus 1 of its guarantee" in text


def test_a_queue_that_has_what_it_is_owed(tmp_path: Path, run: Run) -> None:
    there = (inside("a", runs("a0")), inside("b", runs("b0", index=1)))
    objects = given(tmp_path, cluster(2), quota("a", 1, 2), quota("b", 1, 2), *there, inside("b", wants("b1")))
    found = explained(run, "b1", *objects)
    by_kind = {way["kind"]: way["sentence"] for way in found["ways"]}
    assert by_kind["reclaim"] == "its queue has what it is owed"
    assert "there is no free place either" in by_kind["borrow"]


def test_where_rights_decide_nothing_they_are_not_shown(tmp_path: Path, run: Run) -> None:
    objects = given(tmp_path, cluster(1), runs("a"), wants("new"))
    assert explained(run, "new", *objects)["ways"] == []
    assert "How it could get a place" not in run("explain", "new", *objects).stdout


def test_a_placed_pod_names_the_pods_that_are_stopped_for_it(tmp_path: Path, run: Run) -> None:
    objects = given(tmp_path, cluster(1), HIGH, runs("a"), wants("new", priorityClassName="high"))
    found = explained(run, "new", *objects)
    assert [one["pod"] for one in found["evictions"]] == ["a"]
    assert "Stopped for it:" in run("explain", "new", *objects).stdout
