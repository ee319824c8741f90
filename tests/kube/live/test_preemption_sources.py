"""Budgets, PriorityClasses and minimums of gangs from watches: events only where something differs."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted, NotServed, Replaced
from dovetail.kube.conversion.preemption import MINIMUM_PRIORITY
from dovetail.kube.live.budget_mirror import BudgetMirror
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.bounds import BUDGETS
from dovetail.kube.objects.budgets import PodDisruptionBudget
from dovetail.model.events import GangChanged, PodObserved
from dovetail.model.pod import Tolerance
from tests.kube.live.stage import Stage, bound, gpu_node, waiting
from tests.kube.manifests import Object

pytestmark = pytest.mark.asyncio
API = "scheduling.x-k8s.io"


def budget(allowed: int, **selector: object) -> PodDisruptionBudget:
    meta, spec = {"name": "web", "namespace": "ml"}, {"selector": {"matchLabels": {"app": "web"}, **selector}}
    return msgspec.convert(
        {"metadata": meta, "spec": spec, "status": {"disruptionsAllowed": allowed}}, PodDisruptionBudget
    )


async def test_a_budget_is_reported_when_it_changes_and_when_it_is_gone() -> None:
    mirror = BudgetMirror(lambda: 7.0)
    (event,) = mirror.hear([Replaced([budget(1)], [])])
    assert event.budget is not None
    assert (event.namespace, event.name, event.budget.allowed) == ("ml", "web", 1)
    assert mirror.hear([Changed(budget(1))]) == []
    assert [one.budget.allowed for one in mirror.hear([Changed(budget(0))]) if one.budget is not None] == [0]
    assert [one.budget for one in mirror.hear([Deleted(Ref("ml", "web", "u"), None)])] == [None]
    mirror.hear([Changed(budget(2))])
    assert [one.budget for one in mirror.hear([NotServed()])] == [None]


async def test_a_budget_that_cannot_be_read_keeps_its_form() -> None:
    mirror = BudgetMirror(lambda: 7.0)
    mirror.hear([Changed(budget(1))])
    wrong = [{"key": "app", "operator": "Near", "values": ["x"]}]
    assert mirror.hear([Changed(budget(1, matchExpressions=wrong))]) == []
    assert [fault.name for fault in mirror.faults] == ["ml/web"]


async def test_a_namespace_with_more_budgets_than_are_read() -> None:
    """One is left out, and said once, however often others come; when one goes there is room again."""

    def named(number: int) -> PodDisruptionBudget:
        return msgspec.structs.replace(budget(1), metadata=objects.Meta(name=f"b{number}", namespace="ml"))

    mirror = BudgetMirror(lambda: 7.0)
    assert len(mirror.hear([Changed(named(number)) for number in range(BUDGETS.most)])) == BUDGETS.most == 500
    assert mirror.hear([Changed(named(number)) for number in range(500, 600)]) == []
    assert [fault.name for fault in mirror.faults] == ["ml/b500"]
    assert len(mirror.hear([Deleted(Ref("ml", "b7", "u"), None), Changed(named(501))])) == 2
    assert mirror.hear([Deleted(Ref("ml", "b500", "u"), None)]) == []  # it was left out


async def _running(stage: Stage, rank: str) -> Object:
    stage.nodes(gpu_node())
    item = waiting("low")
    item["spec"]["priorityClassName"] = rank
    stage.pods(item)
    await stage.settle()
    (bind,) = stage.hands.binds
    placed = bound("low", bind)
    placed["spec"]["priorityClassName"] = rank
    stage.pods(placed)
    await stage.settle()
    return placed


def batch(**annotations: str) -> objects.PriorityClass:
    return msgspec.convert(
        {"metadata": {"name": "batch", "annotations": annotations}, "value": 5}, objects.PriorityClass
    )


async def test_running_pods_follow_their_priority_class() -> None:
    async with Stage() as stage:
        await _running(stage, "batch")
        notes = {MINIMUM_PRIORITY: "100"}
        (event,) = stage.mirror.hear_priority_classes([Changed(batch(**notes))])
        assert isinstance(event, PodObserved)
        assert event.running.pod.tolerance == Tolerance(100, 0.0)
        assert stage.mirror.hear_priority_classes([Changed(batch(**notes))]) == []
        (event,) = stage.mirror.hear_priority_classes([Deleted(Ref("", "batch", "u"), None)])
        assert isinstance(event, PodObserved)
        assert event.running.pod.tolerance is None


async def test_an_annotation_that_is_no_number_is_named_in_the_log() -> None:
    async with Stage() as stage:
        stage.mirror.hear_priority_classes([Changed(batch(**{MINIMUM_PRIORITY: "high"}))])
        (problem,) = stage.mirror.problems
        assert problem.where == "PriorityClass batch"


async def test_a_start_time_books_nothing_again() -> None:
    async with Stage() as stage:
        placed = await _running(stage, "")
        written = stage.scheduler.ledger.generation
        placed["metadata"]["resourceVersion"] = "9"
        placed["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        (event,) = stage.mirror.hear_pods([Changed(msgspec.convert(placed, objects.Pod))])
        assert isinstance(event, PodObserved)
        assert event.running.started > 0
        stage.driver.happened([event])
        await stage.settle()
        assert stage.scheduler.ledger.generation == written


async def test_minimums_of_gangs_are_reported_once() -> None:
    async with Stage() as stage:
        group = msgspec.convert(
            {"metadata": {"name": "g", "namespace": "ml"}, "spec": {"minMember": 3}}, objects.PodGroup
        )
        (event,) = stage.mirror.hear_pod_groups([Changed(group)], API)
        assert event == GangChanged(1000.0, f"PodGroup/ml/g@{API}", 3)
        assert stage.mirror.hear_pod_groups([Changed(group)], API) == []
        (event,) = stage.mirror.hear_pod_groups([Deleted(Ref("ml", "g", "u"), None)], API)
        assert event == GangChanged(1000.0, f"PodGroup/ml/g@{API}", 0)


async def test_while_a_nomination_is_written_the_reported_one_does_not_count() -> None:
    """The watch may still report the pod as it was before the write: the engine must not forget its place."""
    async with Stage() as stage:
        stage.pods(waiting("high"))
        await stage.settle()
        stage.mirror.is_being_nominated = lambda uid: True
        later = waiting("high", 2)
        later["status"] = {"nominatedNodeName": "n"}
        assert stage.mirror.hear_pods([Changed(msgspec.convert(later, objects.Pod))]) == []
        stage.mirror.is_being_nominated = lambda uid: False
        stage.mirror.known.wrote("uid-high", "3", "", None, "n")
        again = {**later, "metadata": {**later["metadata"], "resourceVersion": "4"}}
        assert stage.mirror.hear_pods([Changed(msgspec.convert(again, objects.Pod))]) == []  # as we wrote it
