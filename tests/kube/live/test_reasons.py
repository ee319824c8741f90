"""Why pods wait: the word that tools act on, kept true while the reasons change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.engine.rights.members import Members
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import explain
from dovetail.engine.why.findings import Findings, find
from dovetail.engine.wording import in_one_sentence
from dovetail.kube.api.watch import Changed
from dovetail.kube.conversion.gangs import Gangs
from dovetail.kube.conversion.groups import Standing
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live import reasons
from dovetail.kube.live.known import Known, Stand
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.reasons import Reasons
from dovetail.kube.live.volume_mirror import TYPES, VolumeMirror
from dovetail.model.decision import Decision
from dovetail.model.events import GroupArrived, QuotaChanged, VolumesChanged, Wait
from dovetail.model.pod import Group, Pod, Quota
from dovetail.model.reason import Reason
from tests.builders import ask, card, cluster, node, pod
from tests.kube.live.stage import Stage, gpu_node, waiting
from tests.kube.manifests import Object

LOOK_AGAIN = 31.0  # seconds


def with_claim(name: str, cpu: str = "1") -> Object:
    item = waiting(name)
    item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    item["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    return item


def heard(mirror: VolumeMirror, kind: str, item: Object) -> VolumesChanged:
    event: Any = Changed(msgspec.convert(item, TYPES[kind]))
    told = mirror.hear(kind, [event])
    return VolumesChanged(0.0, told.facts, told.gone)


def the_claim_appears(stage: Stage) -> None:
    volumes = VolumeMirror()
    later = {"metadata": {"name": "fast"}, "provisioner": "x.csi", "volumeBindingMode": "WaitForFirstConsumer"}
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "data", "namespace": "ml", "uid": "c1", "resourceVersion": "5"}, "spec": spec}
    stage.driver.happened([heard(volumes, "StorageClass", later), heard(volumes, "PersistentVolumeClaim", claim)])


def written(stage: Stage) -> None:
    """The API server says of the pods what they were told."""
    for uid, condition in stage.hands.conditions.items():
        stage.mirror.pods[uid].condition = (condition.reason, condition.message)


async def test_a_pod_that_only_its_quota_keeps_waiting_does_not_call_for_nodes() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node("a", 2), gpu_node("b", 2))
        quota = Quota("ml", "team", {}, {"NVIDIA": 1000}, {})
        stage.driver.happened([QuotaChanged(0.0, "ml", "team", quota)])
        stage.pods(waiting("w", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000}))
        await stage.settle()
        reason, message = stage.hands.conditions["uid-w"]
    assert reason == "QuotaExceeded"
    assert message == "namespace quota exceeded: quota team: NVIDIA memory 0 of 1,000 MiB in use."


async def test_a_pod_that_no_node_takes_calls_for_nodes_whatever_its_quota() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node("a", 2))
        quota = Quota("ml", "team", {}, {"NVIDIA": 1000}, {})
        stage.driver.happened([QuotaChanged(0.0, "ml", "team", quota)])
        stage.pods(waiting("w", limits={"nvidia.com/gpu": 3, "nvidia.com/gpumem": 4000}))
        await stage.settle()
        assert stage.hands.conditions["uid-w"].reason == "Unschedulable"


async def test_a_reason_that_is_no_longer_true_is_corrected() -> None:
    """First its claim is missing, then CPU is: only the second calls for nodes."""
    async with Stage() as stage:
        item = gpu_node("a", 1)
        item["status"]["allocatable"]["cpu"] = "1"
        stage.nodes(item)
        stage.pods(with_claim("w", cpu="4"))
        await stage.settle()
        assert stage.hands.conditions["uid-w"].reason == "ClaimMissing"
        written(stage)
        the_claim_appears(stage)
        stage.clock += LOOK_AGAIN
        await stage.settle()
        stage.driver.happened(())
        await stage.settle()
        assert stage.hands.conditions["uid-w"] == (
            "Unschedulable",
            "0/1 nodes are available: CPU short by 3 on 1 node.",
        )


async def test_what_is_still_being_written_is_not_replaced_by_something_else() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node("a", 1))
        claims = waiting("r")
        claims["spec"]["resourceClaims"] = [{"name": "x", "resourceClaimName": "c"}]
        stage.pods(with_claim("w"), claims)
        await stage.settle()
        before = dict(stage.hands.conditions)
        stage.clock += LOOK_AGAIN
        stage.driver.happened(())
        await stage.settle()
        assert stage.hands.conditions == before
    assert [before[uid].reason for uid in ("uid-r", "uid-w")] == ["ResourceClaimsNotSupported", "ClaimMissing"]


async def told(stage: Stage, *items: Object) -> dict[str, str]:
    """What these pods say, by name."""
    stage.pods(*items)
    await stage.settle()
    return {uid.removeprefix("uid-"): condition.message for uid, condition in stage.hands.conditions.items()}


async def test_messages_carry_the_facts_in_the_words_of_explain() -> None:
    """Two nodes with one card of 8,000 MiB each, 5,000 MiB of it in use; 4,024 more are asked for: 1,024 too many."""
    async with Stage() as stage:
        stage.nodes(gpu_node("a", 1), gpu_node("b", 1))
        part = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 5000}
        stage.pods(waiting("x", limits=part), waiting("y", limits=part))
        await stage.settle()
        assert len(stage.hands.binds) == 2
        dongles = waiting("dongles")
        dongles["spec"]["containers"][0]["resources"]["requests"] = {"example.com/dongle": "2"}
        said = await told(
            stage, waiting("w", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4024}), dongles, with_claim("claims")
        )
        wanted = stage.mirror.pods["uid-w"].pod
        explained = in_one_sentence(explain(stage.scheduler, wanted).lacking)
    assert said["w"] == f"0/2 nodes are available: {explained}."
    assert said["w"] == "0/2 nodes are available: GPU memory short by 1,024 MiB on 2 nodes."
    assert said["dongles"] == "0/2 nodes are available: example.com/dongle short by 2 on 2 nodes."
    assert said["claims"] == "claim data does not exist."


async def test_a_quota_is_named_with_its_numbers() -> None:
    async with Stage() as stage:
        stage.nodes(gpu_node("a", 1))
        stage.driver.happened([QuotaChanged(0.0, "ml", "team", Quota("ml", "team", {"pods": 0}))])
        said = await told(stage, waiting("w"))
    assert said == {"w": "quota team: pods requested 1, used 0, limited to 0."}


def asking(mib: int, name: str) -> Object:
    return waiting(name, limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib})


async def test_pods_that_ask_alike_share_one_look_at_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def counted(scheduler: Scheduler, pod: Pod, most: int) -> Findings:
        looks.append(pod.name)
        return find(scheduler, pod, most)

    monkeypatch.setattr(reasons, "find", counted)
    async with Stage() as stage:
        stage.nodes(gpu_node("a", 1))
        said = await told(stage, *(asking(99_000 + n % 2, f"w{n}") for n in range(40)))
    assert len(said) == 40
    assert sorted(looks) == ["w0", "w1"]


async def test_how_much_is_asked_in_one_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty requests, none like another: a turn ends when its part is used up, and the next goes on."""
    monkeypatch.setattr(reasons, "TURN", 100)
    scheduler = cluster(node("n", card("a")))
    told_by = Reasons(scheduler, lambda: 0.0)
    pods = [pod(f"p{n}", ask(1, 9000 + n)) for n in range(20)]
    for one in pods:
        told_by.note(one, Decision(one.uid, None, (), Reason.CARD_MEMORY, 0))
    turns = []
    while told_by.untold:
        turns.append([one.name for one, _ in told_by.some(32)])
    assert [name for turn in turns for name in turn] == [one.name for one in pods]
    assert {len(turn) for turn in turns} == {2}  # one node and a look each: 10 + 40, 100 in two


def waiting_gang(size: int, minimum: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Reasons, Mirror]:
    """A gang that has arrived in a cluster of one card, and is to be looked at."""
    scheduler, key = cluster(node("n", card("a"))), "PodGroup/ml/g@scheduling.x-k8s.io"
    pods = tuple(replace(pod(f"p{n}", ask(1, 9000)), group=key) for n in range(size))
    mirror = Mirror(PodReader({"dovetail": Settings()}), lambda: 0.0, Gangs("wait"))
    mirror.pods.update({one.uid: Known(one.key, Stand.WAITS, "1", one, None) for one in pods})
    monkeypatch.setattr(mirror.gangs, "standing", lambda api_group: Standing.LISTED)
    told_by = Reasons(scheduler, lambda: 0.0)
    for effect in scheduler.handle(GroupArrived(0.0, Group(key, pods, minimum))):
        assert isinstance(effect, Wait)
        told_by.note(effect.pod, effect.decision)
    return told_by, mirror


@pytest.mark.parametrize("minimum", [1, 40, 41], ids=["singly", "does not fit", "incomplete"])
async def test_the_members_of_a_gang_are_counted_once_a_look(minimum: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted for each member, a gang of 4,000 would block the loop for seconds."""
    told_by, mirror = waiting_gang(40, minimum, monkeypatch)
    counted: list[str] = []
    current = Members.current

    def count(members: Members, group: Group) -> Group:
        counted.append(group.name)
        return current(members, group)

    monkeypatch.setattr(Members, "current", count)
    while told_by.pending:
        told_by.look_at_a_gang(mirror)
        list(told_by.some(32))
    names = [name for name in counted if name.startswith("PodGroup/")]
    assert len(names) == 1


async def test_the_members_of_a_large_gang_are_looked_at_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "TURN", 10)
    told_by, mirror = waiting_gang(25, 26, monkeypatch)
    looked_at, said = [], []
    while told_by.pending:
        before = len(told_by.untold)
        told_by.look_at_a_gang(mirror)
        looked_at.append(len(told_by.untold) - before)
        said += [(one.name, condition.reason) for one, condition in told_by.some(32)]
    assert [count for count in looked_at if count] == [10, 10, 5]
    assert said == [(f"p{n}", "GroupIncomplete") for n in range(25)]


async def test_a_member_that_left_since_its_gang_was_looked_at_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "TURN", 1)
    told_by, mirror = waiting_gang(2, 3, monkeypatch)
    told_by.look_at_a_gang(mirror)
    told_by._scheduler.waiting.drop_pod(list(mirror.pods)[1])
    said = [one.name for one, _ in told_by.some(32)]
    told_by.look_at_a_gang(mirror)
    assert said + [one.name for one, _ in told_by.some(32)] == ["p0"]
    assert not told_by.pending


async def test_placing_a_gang_on_trial_and_asking_the_nodes_use_up_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three members, interpreted: 40 each; then one node and one look: 10 + 40. Nothing is left for the members."""
    trial, asking_nodes = 3 * 40, 10 + 40
    monkeypatch.setattr(reasons, "TURN", trial + asking_nodes)
    told_by, mirror = waiting_gang(3, 3, monkeypatch)
    told_by.look_at_a_gang(mirror)
    assert not told_by.untold
    assert told_by.pending
    list(told_by.some(32))
    told_by.look_at_a_gang(mirror)
    assert [one.name for one, _ in told_by.some(32)] == ["p0", "p1", "p2"]
