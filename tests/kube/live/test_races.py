"""What the API server says and what becomes of our writes, in every order: nothing is given twice, nobody is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted, Replaced
from dovetail.kube.live.binder import Fate
from dovetail.kube.live.kernels import Kernels
from dovetail.kube.live.patience import is_refusal
from dovetail.kube.objects import core as objects
from dovetail.model.events import GroupArrived, PodGone
from dovetail.model.pod import Group, Pod
from tests.kube.live.stage import Stage, bound, gpu_node, read, waiting
from tests.kube.manifests import Object

pytestmark = pytest.mark.asyncio
GANG = {"scheduling.x-k8s.io/pod-group": "gang"}
API = "scheduling.x-k8s.io"


def _pod_group(stage: Stage, minimum: int, name: str = "gang") -> None:
    source = {"metadata": {"name": name, "namespace": "ml"}, "spec": {"minMember": minimum}}
    batch: list[Any] = [Changed(msgspec.convert(source, objects.PodGroup))]
    stage.driver.happened(stage.mirror.hear_pod_groups(batch, API))


async def test_a_lost_answer_whose_pod_the_watch_has_shown_keeps_its_card() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        stage.pods(bound("a", bind))  # the watch is faster than our second try, which finds the pod bound
        stage.answer(Fate.CHANGED, bind, bound("a", bind))
        stage.pods(waiting("b"))
        await stage.settle()
        assert stage.holders() == {"a"}
        assert len(stage.hands.binds) == 1  # b waits: there is one card


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.GONE])
async def test_no_outcome_takes_a_card_from_a_pod_that_has_a_node(fate: Fate) -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        stage.pods(bound("a", bind))
        stage.answer(fate, bind)
        await stage.settle()
        assert stage.holders() == {"a"}


async def test_an_answer_that_is_older_than_the_end_of_its_pod_is_not_heard() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        late = bound("a", bind)
        stage.pod_gone(late)
        stage.answer(Fate.CHANGED, bind, late)
        await stage.settle()
        assert stage.holders() == set()


async def test_an_answer_that_is_older_than_what_is_known_is_not_heard() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a", version=1))
        await stage.settle()
        (bind,) = stage.hands.binds
        stage.pods(bound("a", bind, version=3))
        stage.answer(Fate.CHANGED, bind, waiting("a", version=2))
        await stage.settle()
        assert stage.holders() == {"a"}
        assert len(stage.hands.binds) == 1


async def test_a_pod_that_changed_while_it_was_bound_is_placed_again() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        changed = waiting("a", version=2, labels={"x": "y"})
        stage.pods(changed)
        await stage.settle()
        assert len(stage.hands.binds) == 1  # the first write is still on its way
        stage.answer(Fate.CHANGED, stage.hands.binds[0], changed)
        await stage.settle()
        assert [bind.pod.labels for bind in stage.hands.binds] == [{}, {"x": "y"}]
        assert stage.holders() == {"a"}


async def test_a_pod_of_which_the_watch_knows_more_than_the_answer_is_placed_again() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        stage.pods(waiting("a", version=3, labels={"x": "3"}))
        stage.answer(Fate.CHANGED, stage.hands.binds[0], waiting("a", version=2, labels={"x": "2"}))
        await stage.settle()
        assert [bind.pod.labels for bind in stage.hands.binds] == [{}, {"x": "3"}]


async def test_a_pod_that_nobody_will_ask_for_is_found_by_the_safety_net() -> None:
    """None is known to be lost; but an answer that says it is gone may have been wrong."""
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        stage.answer(Fate.GONE, stage.hands.binds[0])
        await stage.settle()
        assert len(stage.hands.binds) == 1
        stage.clock += 100.0
        stage.driver.happened(())
        await stage.settle()
        assert len(stage.hands.binds) == 2
        assert stage.driver.counts.rescued == 1


async def _is_rescued(stage: Stage, uid: str) -> bool:
    """The engine and the binder forget the pod without a word; the safety net finds it again."""
    stage.hands.under_way.pop(uid, None)
    stage.scheduler.handle(PodGone(stage.clock, uid))
    before = stage.driver.counts.rescued
    stage.clock += 100.0
    stage.driver.happened(())
    await stage.settle()
    return stage.driver.counts.rescued == before + 1 and uid in stage.scheduler.ledger.pods


async def test_a_pod_whose_placement_was_outdated_once_is_in_the_safety_net() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        stage.answer(Fate.OUTDATED, stage.hands.binds[0])
        await stage.settle()
        assert len(stage.hands.binds) == 2
        assert await _is_rescued(stage, "uid-a")


async def test_a_pod_that_rests_after_a_refusal_is_left_to_its_timer() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        stage.answer(Fate.REFUSED, stage.hands.binds[0])
        await stage.settle()
        assert not await _is_rescued(stage, "uid-a")
        assert stage.driver.counts.rescued == 0


class _GangsWait:
    """In place of the kernels: gangs wait for theirs, and a later group of the same name takes the earlier one's."""

    def __init__(self) -> None:
        self.parked: dict[str, Callable[[], object]] = {}
        self.ready = False

    def admit(self, group: Group, _: int, again: Callable[[], object]) -> str:
        if self.ready or not group.pods[0].group:
            return ""
        self.parked[group.name] = again
        return "not compiled"


async def test_a_pod_that_left_a_gang_that_waits_for_its_kernel_is_in_the_safety_net() -> None:
    async with Stage() as stage:
        kernels = _GangsWait()
        stage.driver.kernels = cast(Kernels, kernels)
        stage.nodes(gpu_node(cards=2))
        _pod_group(stage, 1)
        stage.pods(waiting("a", labels=GANG), waiting("b", labels=GANG))
        await stage.settle()
        stage.pods(waiting("b", version=2), waiting("a", version=2, labels={**GANG, "x": "y"}))
        await stage.settle()
        assert [bind.pod.name for bind in stage.hands.binds] == ["b"]
        kernels.ready = True
        for again in kernels.parked.values():
            again()
        await stage.settle()
        assert [bind.pod.name for bind in stage.hands.binds] == ["b", "a"]
        assert await _is_rescued(stage, "uid-b")


async def test_the_safety_net_offers_a_gang_once_however_many_members_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage() as stage:
        _pod_group(stage, 6)
        names = ["a", "b", "c", "d", "e"]
        stage.pods(*(waiting(name, labels=GANG) for name in names), waiting("f"), waiting("g"))
        await stage.settle()
        for name in (*names, "f", "g"):
            stage.scheduler.handle(PodGone(stage.clock, f"uid-{name}"))
        offered: list[GroupArrived] = []
        made: list[str] = []
        group_of = stage.mirror.gangs.group

        def group(pod: Pod) -> Group:
            made.append(pod.name)
            return group_of(pod)

        monkeypatch.setattr(stage.mirror.gangs, "group", group)
        monkeypatch.setattr(stage.driver, "happened", offered.extend)
        stage.driver.safety_net.look()
        assert stage.driver.counts.rescued == 7
        assert made == ["a", "f", "g"]
        assert [len(event.group.pods) for event in offered] == [5, 1, 1]


async def test_pods_of_others_that_kubelet_refuses_are_not_our_concern() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        for scheduler in ("dovetail", "other"):
            pod = waiting(scheduler)
            pod["spec"] |= {"schedulerName": scheduler, "nodeName": "n"}
            refused = {**pod, "status": {"phase": "Failed", "reason": "OutOfcpu"}}
            stage.pods(pod, refused)
        assert [note.pod.name for note in stage.hands.notes] == ["dovetail"]


async def test_a_pod_group_that_comes_while_its_pods_are_bound_frees_nothing() -> None:
    async with Stage(unknown_group="alone") as stage:
        stage.nodes(gpu_node(cards=2))
        stage.pods(waiting("a", labels=GANG))
        await stage.settle()
        _pod_group(stage, 2)
        stage.pods(waiting("b"), waiting("c"))
        await stage.settle()
        assert [bind.pod.name for bind in stage.hands.binds] == ["a", "b"]
        assert stage.holders() == {"a", "b"}


async def test_pods_that_waited_alone_wait_together_once_their_pod_group_comes() -> None:
    async with Stage() as stage:
        stage.pods(waiting("a", labels=GANG), waiting("b", labels=GANG))
        await stage.settle()
        _pod_group(stage, 2)
        await stage.settle()
        stage.nodes(gpu_node("one"))
        await stage.settle()
        assert stage.hands.binds == []  # one card is not enough for both
        stage.nodes(gpu_node("two"))
        await stage.settle()
        assert sorted(bind.pod.name for bind in stage.hands.binds) == ["a", "b"]


async def test_a_pod_that_changes_its_gang_waits_in_one_place() -> None:
    async with Stage() as stage:
        _pod_group(stage, 2)
        _pod_group(stage, 1, "other")
        stage.pods(waiting("a", labels=GANG), waiting("b", labels=GANG))
        await stage.settle()
        stage.pods(waiting("a", version=2, labels={API + "/pod-group": "other"}))
        await stage.settle()
        stage.nodes(gpu_node(cards=4))
        await stage.settle()
        assert [bind.pod.name for bind in stage.hands.binds] == ["a"]  # b lacks its companion


async def test_a_gang_member_that_was_refused_comes_back_with_its_gang() -> None:
    async with Stage() as stage:
        _pod_group(stage, 2)
        stage.nodes(gpu_node(cards=2))
        stage.pods(waiting("a", labels=GANG), waiting("b", labels=GANG))
        await stage.settle()
        first = {bind.pod.name: bind for bind in stage.hands.binds}
        for bind in first.values():
            stage.answer(Fate.REFUSED, bind, message="no")
        await stage.settle()
        assert stage.holders() == set()
        group = stage.mirror.recall(first["a"].pod)
        assert group is not None
        assert {pod.name for pod in group.pods} == {"a", "b"}
        assert group.minimum == 2


async def test_a_bind_that_worked_while_its_node_went_is_still_one() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        stage.node_gone("n")
        await stage.settle()
        stage.answer(Fate.BOUND, stage.hands.binds[0])
        await stage.settle()
        assert stage.holders() == {"a"}
        stage.nodes(gpu_node())  # it was only its object that went
        stage.pods(waiting("b"))
        await stage.settle()
        assert len(stage.hands.binds) == 1


async def test_cards_of_pods_without_record_are_charged_once_their_node_is_known() -> None:
    async with Stage() as stage:
        runs = waiting("old")
        runs["spec"]["nodeName"] = "n"
        stage.pods(runs)
        await stage.settle()
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        assert stage.hands.binds == []


async def test_somebody_elses_stamp_is_a_reason_to_look_at_the_lease_and_no_proof() -> None:
    """Anybody who may change a pod can write it."""
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        stamped = waiting("a", version=2)
        stamped["metadata"]["annotations"] = {"dovetail.dev/epoch": "99.mallory"}
        stage.answer(Fate.CHANGED, stage.hands.binds[0], stamped)
        await stage.settle()
        assert stage.doubts == 1
        assert len(stage.hands.binds) == 2


@pytest.mark.parametrize(
    ("epoch", "doubts"), [("2.other", 1), ("1.other", 1), ("0.before", 0), ("1.me.3", 0), ("x", 0)]
)
async def test_a_stamp_in_the_watch_is_a_reason_to_look_at_the_lease(epoch: str, doubts: int) -> None:
    """Whoever took over stamps every pod that waits: the watch may tell us before the lease does."""
    async with Stage() as stage:
        stage.pods(waiting("a"))
        await stage.settle()
        for version in (2, 3):
            stamped = waiting("a", version, labels={"version": str(version)})
            stamped["metadata"]["annotations"] = {"dovetail.dev/epoch": epoch}
            stage.pods(stamped)
        assert stage.doubts == doubts  # once for each new stamp, not for each word of the watch
        assert stage.mirror.pods["uid-a"].version == "3"
        assert stage.mirror.pods["uid-a"].doubt == doubts  # still, though the pod has changed since


async def test_a_stamp_that_our_own_write_has_met_is_seen_as_well() -> None:
    """A condition is patched without a precondition: the answer's version may be the stamp's successor."""
    async with Stage() as stage:
        stage.pods(waiting("a"))
        stage.mirror.known.wrote("uid-a", "5", "2.other", ("Unschedulable", "no room"))
        stage.driver.judge_stamps()
        assert stage.mirror.pods["uid-a"].version == "5"
        assert stage.mirror.pods["uid-a"].doubt == 1


async def test_names_that_come_again_are_other_pods() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        again = waiting("a", version=9)
        again["metadata"]["uid"] = "another"
        stage.pods(again)  # the end of the first one was not seen
        await stage.settle()
        assert [bind.pod.uid for bind in stage.hands.binds] == ["uid-a", "another"]
        stage.answer(Fate.GONE, stage.hands.binds[0])
        await stage.settle()
        assert set(stage.scheduler.ledger.pods) == {"another"}


async def test_locks_of_other_schedulers_pods_are_known_to_be_somebodys() -> None:
    stage = Stage()
    theirs = waiting("t")
    theirs["spec"]["schedulerName"] = "hami"
    stage.mirror.hear_pods([Changed(read(theirs)), Changed(read(waiting("ours")))])
    assert stage.mirror.known.may_hold("ml/t", "n")
    assert not stage.mirror.known.may_hold("ml/ours", "n")  # it waits, and nobody else will place it
    assert not stage.mirror.known.may_hold("ml/nobody", "n")
    stage.mirror.hear_pods([Deleted(Ref("ml", "t", "uid-t"), None)])
    assert not stage.mirror.known.may_hold("ml/t", "n")


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        ({"phase": "Failed", "reason": "OutOfcpu", "message": "no"}, True),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, True),
        ({"phase": "Failed", "reason": "Evicted"}, False),
        ({"phase": "Failed"}, False),
        (
            {"phase": "Failed", "reason": "Error", "containerStatuses": [{"state": {"terminated": {"exitCode": 1}}}]},
            False,
        ),
        ({"phase": "Succeeded", "reason": "OutOfcpu"}, False),
    ],
)
async def test_only_pods_that_never_ran_were_refused(status: Object, refused: bool) -> None:
    assert is_refusal(msgspec.convert(status, objects.PodStatus)) is refused


@pytest.mark.parametrize("rewound", [False, True])
async def test_a_list_older_than_an_answer_does_not_free_a_card(rewound: bool) -> None:
    """The list was begun before our write; only a server restored from a backup knows less for good."""
    async with Stage() as stage:
        stage.nodes(gpu_node())
        stage.pods(waiting("a"))
        await stage.settle()
        (bind,) = stage.hands.binds
        stage.answer(Fate.CHANGED, bind, bound("a", bind, version=5))
        await stage.settle()
        stage.driver.hear_pods([Replaced([read(waiting("a", 3)), read(waiting("b", 4))], [], rewound)])
        await stage.settle()
        assert len(stage.hands.binds) == (2 if rewound else 1)
        assert stage.mirror.known.holds("uid-a") is not rewound
