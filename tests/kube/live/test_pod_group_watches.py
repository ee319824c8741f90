"""Which PodGroups may be believed, by what their watches and the pods' watch do; and the one line about CRDs."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.api.watch import NotServed, Replaced
from dovetail.kube.conversion.groups import Standing
from dovetail.kube.live.pod_group_watches import WATCHED_POD_GROUPS, PodGroupWatches
from dovetail.kube.objects import core as objects
from tests.kube.live.stage import Stage, gpu_node, waiting

KIND = WATCHED_POD_GROUPS[0]


class Fake:
    """In place of a reflector."""

    def __init__(
        self, path: str, kind: object, hear: Any, *, on_watch: Any, on_begin: Any, wanted: Any, without: str
    ) -> None:
        self.path, self.hear, self.on_watch, self.wanted, self.renewed = path, hear, on_watch, wanted, 0
        self.on_begin = on_begin
        on_begin()  # the first list

    def opens(self) -> None:
        self.on_begin()
        self.on_watch(True)

    def renew(self) -> None:
        self.renewed += 1


def made(stage: Stage) -> tuple[PodGroupWatches, Any]:
    watches = PodGroupWatches(stage.driver, Fake, lambda *_: None, stage.log)  # type: ignore[arg-type]
    return watches, watches.reflectors[KIND]


def standing(stage: Stage) -> Standing:
    return stage.mirror.gangs.standing(KIND[0])


def listed() -> Any:
    group = {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"minMember": 2}}
    return Replaced([msgspec.convert(group, objects.PodGroup)], [])


def test_a_kind_is_believed_from_its_first_list_on() -> None:
    stage = Stage()
    _, reflector = made(stage)
    assert standing(stage) is Standing.BEHIND
    reflector.hear([listed()])
    assert standing(stage) is Standing.LISTED


def test_a_watch_that_broke_is_behind_until_it_is_open_again() -> None:
    stage = Stage()
    _, reflector = made(stage)
    reflector.hear([listed()])
    reflector.on_watch(False)
    assert standing(stage) is Standing.BEHIND
    reflector.opens()
    assert standing(stage) is Standing.LISTED


def test_when_the_pods_watch_breaks_those_of_pod_groups_are_begun_again() -> None:
    stage = Stage()
    watches, reflector = made(stage)
    reflector.hear([listed()])
    watches.pods_watched(True)
    assert (standing(stage), reflector.renewed) == (Standing.LISTED, 0)
    watches.pods_watched(False)
    assert (standing(stage), reflector.renewed) == (Standing.BEHIND, 1)
    watches.pods_watched(True)  # the pods are first
    assert standing(stage) is Standing.BEHIND
    reflector.opens()
    assert standing(stage) is Standing.LISTED


def test_a_list_begun_before_the_pods_watch_broke_is_not_believed() -> None:
    """What the list says is taken in; the watch that follows it is begun late enough."""
    stage = Stage()
    watches, reflector = made(stage)
    watches.pods_watched(False)
    reflector.hear([listed()])
    assert standing(stage) is Standing.BEHIND
    reflector.opens()
    assert (standing(stage), reflector.renewed) == (Standing.LISTED, 0)


def test_a_watch_asked_for_before_the_pods_watch_broke_is_begun_again() -> None:
    stage = Stage()
    watches, reflector = made(stage)
    reflector.hear([listed()])
    reflector.on_begin()
    watches.pods_watched(False)  # nothing is open yet that could be renewed
    renewed = reflector.renewed
    reflector.on_watch(True)
    assert (standing(stage), reflector.renewed) == (Standing.BEHIND, renewed + 1)
    reflector.opens()
    assert standing(stage) is Standing.LISTED


async def test_pods_that_waited_for_a_crd_are_placed_after_a_list_that_was_not_believed() -> None:
    """With PodGroups that are served again and without theirs among them, where such pods are placed alone."""
    async with Stage(unknown_group="alone") as stage:
        watches, reflector = made(stage)
        stage.nodes(gpu_node())
        reflector.hear([listed()])
        reflector.hear([NotServed()])
        stage.pods(waiting("a", labels={f"{KIND[0]}/pod-group": "other"}))
        await stage.settle()
        reflector.on_begin()
        watches.pods_watched(False)
        reflector.hear([listed()])
        await stage.settle()
        assert stage.hands.binds == []
        reflector.opens()
        await stage.settle()
        assert [bind.pod.name for bind in stage.hands.binds] == ["a"]


def test_a_kind_that_is_not_served_stays_so_whatever_the_pods_do() -> None:
    stage = Stage()
    watches, reflector = made(stage)
    reflector.hear([NotServed()])
    watches.pods_watched(False)
    assert (standing(stage), reflector.renewed) == (Standing.NOT_SERVED, 0)


def test_kinds_that_are_not_served_are_one_line() -> None:
    stage = Stage()
    watches, reflector = made(stage)
    for other in watches.reflectors.values():
        other.hear([NotServed()])  # type: ignore[attr-defined]
    assert [str(line) for line in stage.log] == [
        "PodGroups are not served of scheduling.x-k8s.io, scheduling.sigs.k8s.io, scheduling.volcano.sh, "
        "scheduling.run.ai, scheduling.k8s.io; pods that name one wait for it"
    ]
    reflector.hear([listed()])
    assert str(stage.log[-1]) == "PodGroups of scheduling.x-k8s.io/v1alpha1 are served now"
