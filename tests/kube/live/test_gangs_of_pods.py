"""Gangs that pods describe themselves, as the live scheduler hears of them: sizes and partners come and change."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.gangs import PodGroup
from dovetail.kube.objects.queues import KOORDINATOR
from dovetail.model.events import Event, GangChanged, GroupArrived, PodObserved
from tests.kube.live.stage import Stage

KEY = "PodGroup/default/g@dovetail.dev"
LABEL = "pod-group.scheduling.sigs.k8s.io"


def member(name: str, node: str = "", version: str = "1", **notes: str) -> objects.Pod:
    given = {f"dovetail.dev/{key.replace('_', '-')}": value for key, value in notes.items()}
    return pod(name, {}, given, node, version)


def pod(name: str, labels: Any, notes: Any, node: str = "", version: str = "1") -> objects.Pod:
    meta = {"name": name, "namespace": "default", "uid": f"u-{name}", "resourceVersion": version}
    spec: dict[str, Any] = {"containers": [{"name": "c"}], "nodeName": node, "schedulerName": "dovetail"}
    return msgspec.convert({"metadata": {**meta, "labels": labels, "annotations": notes}, "spec": spec}, objects.Pod)


def hears(stage: Stage, *pods: objects.Pod) -> list[Event]:
    return list(stage.mirror.hear_pods([Changed(one) for one in pods]))


def minimums(happened: list[Event]) -> list[tuple[str, int]]:
    return [(event.name, event.minimum) for event in happened if isinstance(event, GangChanged)]


def offered(happened: list[Event]) -> dict[str, tuple[list[str], int]]:
    return {
        event.group.name: (sorted(one.name for one in event.group.pods), event.group.minimum)
        for event in happened
        if isinstance(event, GroupArrived)
    }


def test_the_size_is_that_of_the_pods_and_goes_with_the_last_of_them() -> None:
    stage = Stage()
    happened = hears(stage, member("a", gang="g", gang_size="2"), member("b", gang="g", gang_size="2"))
    assert (minimums(happened), offered(happened)) == ([(KEY, 2)], {KEY: (["a", "b"], 2)})
    runs = hears(stage, *(member(name, "n", "2", gang="g", gang_size="2") for name in "ab"))
    assert minimums(runs) == []  # pods that run still say how many are needed
    gone = list(stage.mirror.hear_pods([Deleted(Ref("default", name, f"u-{name}"), None) for name in "ab"]))
    assert minimums(gone) == [(KEY, 0)]


def test_a_later_pod_with_a_larger_size_offers_the_gang_again() -> None:
    stage = Stage()
    hears(stage, member("a", gang="g", gang_size="1"))
    happened = hears(stage, member("b", gang="g", gang_size="3"))
    assert (minimums(happened), offered(happened)) == ([(KEY, 3)], {KEY: (["a", "b"], 3)})


def group(name: str, minimum: int, *partners: str) -> PodGroup:
    titles = ", ".join(f'"default/{one}"' for one in partners)
    notes = {"gang.scheduling.koordinator.sh/groups": f"[{titles}]"} if partners else {}
    meta = {"name": name, "namespace": "default", "annotations": notes}
    return msgspec.convert({"metadata": meta, "spec": {"minMember": minimum}}, PodGroup)


def test_pod_groups_that_start_together_before_and_after_their_pods() -> None:
    """a needs 1 and b needs 2: 3 together. A list that is withdrawn separates them again."""
    stage = Stage()
    together, alone = f"PodGroup/default/a+b@{KOORDINATOR}", f"PodGroup/default/a@{KOORDINATOR}"
    stage.mirror.hear_pod_groups([Changed(group("a", 1, "a", "b"))], KOORDINATOR, "v1alpha1")
    hears(stage, pod("a0", {LABEL: "a"}, {}), pod("b0", {LABEL: "b"}, {}), pod("b1", {LABEL: "b"}, {}, "n"))
    happened = stage.mirror.hear_pod_groups([Changed(group("b", 2, "a", "b"))], KOORDINATOR, "v1alpha1")
    assert offered(happened)[together] == (["a0", "b0"], 3)
    (moved,) = [event.running.pod for event in happened if isinstance(event, PodObserved)]
    assert (moved.name, moved.group, moved.role) == ("b1", together, "default/b")
    happened = stage.mirror.hear_pod_groups([Changed(group("a", 1))], KOORDINATOR, "v1alpha1")
    assert offered(happened)[alone] == (["a0"], 1)
    assert stage.mirror.pods["u-a0"].pod.role == ""
