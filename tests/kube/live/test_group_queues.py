"""Pods that name no queue are in that of their Volcano PodGroup, whatever is reported first."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted, Replaced
from dovetail.kube.api.watch import Event as Watched
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.gangs import GangObject
from dovetail.kube.objects.queues import VOLCANO_GROUP
from dovetail.model.events import Event, GroupArrived, PodObserved
from dovetail.model.pod import Pod
from tests.kube.live.stage import Stage

GROUP = "scheduling.k8s.io/group-name"


def group(queue: str = "ml", name: str = "g") -> objects.PodGroup:
    spec = {"minMember": 1, "queue": queue}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, objects.PodGroup)


def member(name: str, node: str = "", **annotations: str) -> objects.Pod:
    notes = {GROUP: "g", **{key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()}}
    meta = {"name": name, "namespace": "default", "uid": f"u-{name}", "resourceVersion": "1", "annotations": notes}
    spec: dict[str, Any] = {"containers": [{"name": "c"}], "nodeName": node, "schedulerName": "dovetail"}
    return msgspec.convert({"metadata": meta, "spec": spec}, objects.Pod)


def hears(stage: Stage, *pods: objects.Pod) -> list[Event]:
    return list(stage.mirror.hear_pods([Changed(pod) for pod in pods]))


def queues(happened: list[Event]) -> dict[str, str]:
    """Pod -> its queue, of all pods that the engine is told."""
    told: list[Pod] = []
    for event in happened:
        told += event.group.pods if isinstance(event, GroupArrived) else ()
        told += [event.running.pod] if isinstance(event, PodObserved) else []
    return {pod.name: pod.queue for pod in told}


def test_a_group_that_comes_after_its_pods() -> None:
    stage = Stage()
    hears(stage, member("waits"), member("runs", "n"))
    happened = stage.mirror.hear_pod_groups([Changed(group())], VOLCANO_GROUP, "v1beta1")
    assert queues(happened) == {"waits": "volcano/ml", "runs": "volcano/ml"}
    assert queues(hears(stage, member("runs", "n"))) == {}  # the next report of the pod says nothing new


def test_a_group_that_comes_first_and_changes_its_queue() -> None:
    stage = Stage()
    stage.mirror.hear_pod_groups([Replaced([group()], [])], VOLCANO_GROUP, "v1beta1")
    assert queues(hears(stage, member("runs", "n"))) == {"runs": "volcano/ml"}
    happened = stage.mirror.hear_pod_groups([Changed(group("web"))], VOLCANO_GROUP, "v1beta1")
    assert queues(happened) == {"runs": "volcano/web"}
    gone: list[Watched[GangObject]] = [Deleted(Ref("default", "g", "u"), None)]
    assert queues(stage.mirror.hear_pod_groups(gone, VOLCANO_GROUP, "v1beta1")) == {"runs": ""}


def test_a_pod_that_names_a_queue_itself_stays_in_it() -> None:
    stage = Stage()
    hears(stage, member("own", "n", scheduling_volcano_sh__queue_name="x"))
    own = member("own", "n")
    own = msgspec.structs.replace(
        own,
        metadata=msgspec.structs.replace(
            own.metadata, annotations={GROUP: "g", "scheduling.volcano.sh/queue-name": "x"}, resource_version="2"
        ),
    )
    assert queues(hears(stage, own)) == {"own": "volcano/x"}
    assert queues(stage.mirror.hear_pod_groups([Changed(group())], VOLCANO_GROUP, "v1beta1")) == {}
