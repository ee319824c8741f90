"""Mistakes in a pending pod's request are events on the pod, each once."""

from __future__ import annotations

import pytest

from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.reader import PodReader
from tests.kube.live.stage import Stage, gpu_node, read, waiting
from tests.kube.manifests import GPU, MEM, Object

pytestmark = pytest.mark.asyncio
SLIP = {"hami.io/gpu-schedular-policy": "binpack"}


def slipping(name: str, version: int = 1, annotations: Object | None = None, limits: Object | None = None) -> Object:
    item = waiting(name, version, limits=limits)
    item["metadata"]["annotations"] = SLIP if annotations is None else annotations
    return item


def remarks(stage: Stage) -> list[tuple[str, str, bool]]:
    """(pod, reason, warning) of every event that is no placement and no failure to place."""
    routine = ("Scheduled", "FailedScheduling")
    return [(note.pod.name, note.reason, note.warning) for note in stage.hands.notes if note.reason not in routine]


async def test_a_slip_is_an_event_of_each_replica_and_said_once() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node(cards=4))
        stage.pods(slipping("a"), slipping("b"), waiting("right"))
        await stage.settle()
        stage.pods(slipping("a", 2), slipping("b", 3))
        await stage.settle()
        assert remarks(stage) == [("a", "DoubtfulRequest", True), ("b", "DoubtfulRequest", True)]
        text = next(note.text for note in stage.hands.notes if note.reason == "DoubtfulRequest")
        assert "metadata.annotations.hami.io/gpu-schedular-policy" in text
        assert "did you mean hami.io/gpu-scheduler-policy?" in text
        assert len(stage.hands.binds) == 3  # a slip does not keep a pod from being placed


async def test_a_slip_that_comes_later_is_said_then() -> None:
    async with Stage() as stage:
        stage.pods(slipping("a", annotations={}))
        await stage.settle()
        assert remarks(stage) == []
        stage.pods(slipping("a", 2))
        await stage.settle()
        assert remarks(stage) == [("a", "DoubtfulRequest", True)]


async def test_a_unit_is_a_normal_event_and_the_card_is_charged() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(slipping("a", annotations={}, limits={GPU: "1", MEM: "4Gi"}))
        await stage.settle()
        assert remarks(stage) == [("a", "RequestRead", False)]
        (bind,) = stage.hands.binds
        assert [share.memory_mib for share in bind.decision.shares] == [4096]


async def test_nonsense_is_a_warning_a_condition_and_no_bind() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(slipping("a", annotations={}, limits={GPU: "1", MEM: "17179869184"}))
        await stage.settle()
        assert remarks(stage) == [("a", "InvalidRequest", True)]
        assert stage.hands.binds == []
        condition = stage.hands.conditions["uid-a"]
        assert condition.reason == "InvalidRequest"
        assert "write 16384Mi" in condition.message


async def test_a_part_of_no_card_is_a_warning_and_the_pod_gets_no_card() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(slipping("a", annotations={}, limits={GPU: "0", MEM: "8000"}))
        await stage.settle()
        assert remarks(stage) == [("a", "DoubtfulRequest", True)]
        assert [bind.decision.shares for bind in stage.hands.binds] == [()]


async def test_what_admission_would_fill_in_is_no_event() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(slipping("a", annotations={}, limits={GPU: "1"}))
        await stage.settle()
        assert len(stage.hands.binds) == 1
        assert remarks(stage) == []


async def test_an_event_has_one_name_for_one_pod_and_text() -> None:
    """After a restart the API server refuses it the second time."""
    names = []
    for _ in range(2):
        async with Stage() as stage:
            stage.pods(slipping("a"), slipping("b"))
            await stage.settle()
            names.append([note.once for note in stage.hands.notes if note.reason == "DoubtfulRequest"])
    assert names[0] == names[1]
    assert len(set(names[0])) == 2


async def test_replicas_with_and_without_a_slip_are_read_apart() -> None:
    reader = PodReader({"dovetail": Settings()})
    right, label = waiting("a"), waiting("b", labels={"hami.io/gpu-scheduler-policy": "binpack"})
    for item, wrong in ((right, 0), (label, 1), (slipping("c", annotations={"hami.oi/gpu-scheduler-policy": "x"}), 1)):
        found = [problem for problem in reader.pod(read(item)).problems if problem.severity == "warning"]
        assert len(found) == wrong
