"""Pods of a namespace that is being deleted are left alone: no bind, no condition, no event, no second try."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kube.api.errors import Forbidden, error_of
from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted, Replaced
from dovetail.kube.live.binder import Fate
from dovetail.kube.objects import core as objects
from tests.kube.live.stage import Stage, bound, gpu_node, waiting
from tests.kube.live.test_binder_faults import Server, _bind

pytestmark = pytest.mark.asyncio
# As a 1.36 API server answers a Binding there.
REFUSAL = {
    "kind": "Status",
    "status": "Failure",
    "message": 'pods "a" is forbidden: unable to create new content in namespace ml because it is being terminated',
    "reason": "Forbidden",
    "details": {
        "name": "a",
        "kind": "pods",
        "causes": [
            {
                "reason": "NamespaceTerminating",
                "message": "namespace ml is being terminated",
                "field": "metadata.namespace",
            }
        ],
    },
    "code": 403,
}


def namespace(ends: bool = False, name: str = "ml") -> objects.Namespace:
    when = "2026-01-31T12:00:00Z" if ends else ""
    return objects.Namespace(objects.Meta(name=name, labels={}, deletion_timestamp=when))


def hear(stage: Stage, *events: Any) -> None:
    stage.driver.happened(stage.mirror.hear_namespaces(list(events)))


def refusal() -> Forbidden:
    error = error_of(403, msgspec.json.encode(REFUSAL), "POST /api/v1/namespaces/ml/pods/a/binding")
    assert isinstance(error, Forbidden)
    return error


async def test_a_pod_that_waits_is_not_bound_after_its_namespace_began_to_end() -> None:
    async with Stage() as stage:
        hear(stage, Changed(namespace()))
        stage.pods(waiting("a"))
        await stage.settle()
        hear(stage, Changed(namespace(ends=True)))
        stage.nodes(gpu_node())
        stage.pods(waiting("a", version=2), waiting("b"))
        await stage.settle()
        assert stage.hands.binds == []
        assert not stage.mirror.known.waits("uid-a")
        assert len(stage.scheduler.waiting) == 0
        assert stage.mirror.known.has("ml/a")  # it is there, and is not scheduled


async def test_pods_listed_at_start_are_left_alone_whichever_list_comes_first() -> None:
    async with Stage() as stage:
        stage.pods(waiting("a"))
        hear(stage, Replaced([namespace(ends=True)], []))
        stage.nodes(gpu_node())
        await stage.settle()
        assert stage.hands.binds == []


async def test_pods_of_another_namespace_are_placed() -> None:
    async with Stage() as stage:
        hear(stage, Replaced([namespace(ends=True, name="other")], []))
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        assert [each.pod.name for each in stage.hands.binds] == ["a"]


async def test_a_namespace_of_the_same_name_is_a_new_one() -> None:
    async with Stage() as stage:
        hear(stage, Changed(namespace(ends=True)), Deleted(Ref("", "ml", ""), namespace()), Changed(namespace()))
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        assert [each.pod.name for each in stage.hands.binds] == ["a"]


@pytest.mark.parametrize("labels", [{}, {"scheduling.x-k8s.io/pod-group": "train"}], ids=["single", "gang"])
@pytest.mark.parametrize("known", [False, True], ids=["heard after the end began", "heard before"])
async def test_a_pod_of_the_new_namespace_that_is_heard_of_first_is_placed(known: bool, labels: dict[str, str]) -> None:
    """The watch of namespaces is behind that of pods: the pod was left alone for the old namespace's sake."""
    async with Stage() as stage:
        group = msgspec.convert(
            {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"minMember": 1}}, objects.PodGroup
        )
        stage.driver.happened(stage.mirror.hear_pod_groups([Changed(group)], "scheduling.x-k8s.io"))
        if known:
            stage.pods(waiting("a", labels=labels))
        hear(stage, Changed(namespace(ends=True)))
        if not known:
            stage.pods(waiting("a", labels=labels))
        stage.nodes(gpu_node())
        await stage.settle()
        assert stage.hands.binds == []
        hear(stage, Deleted(Ref("", "ml", ""), None), Changed(namespace()))
        await stage.settle()
        assert [each.pod.name for each in stage.hands.binds] == ["a"]


async def test_a_pod_that_was_left_alone_and_is_deleted_does_not_come_again() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        hear(stage, Changed(namespace(ends=True)))
        stage.pods(waiting("a"), waiting("b"))
        stage.pod_gone(waiting("a"))
        b = waiting("b", version=2)
        b["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
        stage.pods(b)
        assert stage.mirror.pods == {}  # nothing is kept of them
        hear(stage, Changed(namespace()))
        await stage.settle()
        assert stage.hands.binds == []


async def test_a_namespace_that_ends_again_in_the_same_moment_is_still_left_alone() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        hear(stage, Changed(namespace(ends=True)))
        stage.pods(waiting("a"))
        hear(stage, Deleted(Ref("", "ml", ""), None), Changed(namespace()), Changed(namespace(ends=True)))
        await stage.settle()
        assert stage.hands.binds == []


async def test_a_bind_that_is_refused_because_of_it_is_neither_tried_again_nor_told() -> None:
    assert (await _bind(Server(refusal()))).fate is Fate.GONE
    assert (await _bind(Server(Forbidden("exceeded quota", code=403)))).fate is Fate.REFUSED


@pytest.mark.parametrize("details", [None, [], "x", {}, {"causes": None}, {"causes": ["x", {"reason": 1}]}])
async def test_a_refusal_with_other_details_is_read_as_any_refusal(details: Any) -> None:
    error = error_of(403, msgspec.json.encode({**REFUSAL, "details": details}), "POST /x")
    assert isinstance(error, Forbidden)
    assert not error.namespace_ends


async def test_a_pod_that_is_being_bound_keeps_its_card_when_its_namespace_ends() -> None:
    """Its Binding came true just before: the watch of namespaces is ahead of that of pods. A card, two pods."""
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        hear(stage, Changed(namespace(ends=True)))
        other = waiting("b")
        other["metadata"]["namespace"] = "other"
        stage.pods(waiting("a", version=2), other)  # a's condition was written
        await stage.settle()
        assert stage.holders() == {"a"}
        stage.answer(Fate.BOUND, bind)
        stage.pods(bound("a", bind, version=3))
        await stage.settle()
        assert stage.holders() == {"a"}
        stage.pod_gone(waiting("a"))
        await stage.settle()
        assert stage.holders() == {"b"}


async def test_a_pod_that_was_not_bound_after_all_is_left_alone() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        hear(stage, Changed(namespace(ends=True)))
        stage.answer(Fate.GONE, bind)
        await stage.settle()
        assert stage.holders() == set()
        assert not stage.mirror.known.waits("uid-a")
        hear(stage, Deleted(Ref("", "ml", ""), None), Changed(namespace()))  # it is of the new namespace
        await stage.settle()
        assert [each.pod.name for each in stage.hands.binds] == ["a", "a"]
