"""After a restart only the API server's objects are there: what a tenant wrote over a record counts no further than the
pod asks for, and not at all where the record was sealed (ADR 16). Cards have 8,000 MiB, 100 % and 10 slots."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.api.watch import Replaced
from dovetail.kube.conversion.seals import SEAL, Seals
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.bare import bare_running
from dovetail.kube.live.binding import binding
from dovetail.model.decision import Decision, Share
from dovetail.model.events import NodeChanged, PodObserved, QuotaChanged
from dovetail.model.pod import Quota
from dovetail.model.reason import Reason
from tests.kube.live.stage import Stage, gpu_node, read, waiting
from tests.kube.manifests import ALLOCATED, CORES, GPU, MEM, PCT, Object, node
from tests.kube.manifests import read as read_files

pytestmark = pytest.mark.asyncio
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
KEY = Seals((b"k" * 32,), since=0.0)
WHOLE = {GPU: 1, CORES: 100}
HUGE = 2_147_483_647


def started(seals: Seals = KEY) -> Stage:
    """A scheduler that has just started."""
    return Stage(settings=Settings(seals=seals))


def bound(stage: Stage, name: str, limits: Object, *uuids: str, where: str = "n", **meta: Any) -> Object:
    """A running pod as our own Binding leaves it, with these cards."""
    item = waiting(name, limits=limits)
    pod = stage.mirror.read(read(item))
    (ask,) = pod.containers[0].asks
    memory = ask.memory_mib if ask.memory_percent is None else 8000 * ask.memory_percent // 100
    shares = tuple(Share(0, uuid, memory, ask.compute_milli) for uuid in uuids)
    decision, seals = Decision(pod.uid, where, shares, Reason.OK, 0), stage.mirror._reader._default.seals
    there = stage.mirror.nodes[where]
    body = binding(pod, decision, there, "1", Settings().vendors, 99.0, False, bound_by="kube-system/d", seals=seals)
    item["metadata"] |= {"annotations": dict(body["metadata"]["annotations"]), "resourceVersion": "2", **meta}
    item["spec"]["nodeName"] = where
    return item


def edited(item: Object, **texts: str | None) -> Object:
    """`allocated`, `both`, `seal`: other text; None takes the annotation away."""
    notes = dict(item["metadata"]["annotations"])
    names: dict[str, tuple[str, ...]] = {"allocated": (ALLOCATED,), "both": (ALLOCATED, TO_ALLOCATE), "seal": (SEAL,)}
    for which, text in texts.items():
        for name in names[which]:
            notes.pop(name, None)
            if text is not None:
                notes[name] = text
    return {**item, "metadata": {**item["metadata"], "annotations": notes}}


def held(stage: Stage, name: str) -> list[tuple[str, int, int]]:
    return [(one.uuid, one.memory_mib, one.compute_milli) for one in stage.scheduler.ledger.held_shares(f"uid-{name}")]


def quota_of(stage: Stage, memory: int) -> None:
    quota = Quota("ml", "q", {}, {"NVIDIA": memory}, {})
    stage.driver.happened((QuotaChanged(0.0, "ml", "q", quota),))


def placed(stage: Stage) -> list[str]:
    return [bind.pod.name for bind in stage.hands.binds]


def events(stage: Stage, reason: str) -> list[str]:
    return [note.pod.name for note in stage.hands.notes if note.reason == reason]


def unverified(stage: Stage) -> int:
    return sum(known.unverified for known in stage.mirror.pods.values())


LIES = {
    "0 MiB": "GPU-n-2,NVIDIA,0,0:;",
    "2,147,483,647 MiB": f"GPU-n-2,NVIDIA,{HUGE},100:;",
    "other cores": "GPU-n-2,NVIDIA,8000,1:;",
    "another card": "GPU-n-0,NVIDIA,8000,100:;",
    "a card of another node": "GPU-m-0,NVIDIA,8000,100:;",
    "a card that nobody has": "GPU-none,NVIDIA,8000,100:;",
    "more cards": "GPU-n-0,NVIDIA,8000,100:GPU-n-1,NVIDIA,8000,100:;",
    "no card": ";",
    "another vendor": "GPU-n-2,MLU,8000,100:;",
    "nonsense": "?",
    "nothing": None,
}


@pytest.mark.parametrize("which", ["allocated", "both"])
@pytest.mark.parametrize("lie", LIES)
async def test_where_the_seal_is_left_alone_the_sealed_cards_are_held(lie: str, which: str) -> None:
    """Card 2 of 4 was bound; of two pods that want whole cards none gets it."""
    async with started() as stage:
        stage.nodes(gpu_node("n", cards=4), gpu_node("m", cards=1))
        true = bound(stage, "p", WHOLE, "GPU-n-2")
        stage.pods(edited(true, **{which: LIES[lie]}))
        await stage.settle()
        assert held(stage, "p") == [("GPU-n-2", 8000, 1000)]
        assert events(stage, "RecordChanged") == ["p"]
        assert unverified(stage) == 0
        stage.pods(*(waiting(f"w{n}") for n in range(5)))
        await stage.settle()
        cards = [share.uuid for bind in stage.hands.binds for share in bind.decision.shares]
        assert sorted(cards) == ["GPU-m-0", "GPU-n-0", "GPU-n-1", "GPU-n-3"]


def other_seals(stage: Stage, item: Object) -> dict[str, str | None]:
    neighbour = bound(stage, "q", WHOLE, "GPU-n-3")["metadata"]["annotations"][SEAL]
    elsewhere = bound(stage, "p", WHOLE, "GPU-m-0", where="m")["metadata"]["annotations"][SEAL]
    foreign = Seals((b"x" * 32,)).seal("uid-p", "n", {ALLOCATED: "GPU-n-0,NVIDIA,1,1:;"})
    own: str = item["metadata"]["annotations"][SEAL]
    return {
        "removed": None,
        "blank": "",
        "of another pod": neighbour,
        "of an older bind to another node": elsewhere,
        "of another key": foreign,
        "with other cards": own.replace("GPU-n-2", "GPU-n-0"),
        "cut": own[:-1],
        "nonsense": "v1 \x1b[31m {",
    }


KINDS = ["removed", "blank", "of another pod", "of an older bind to another node", "of another key", "with other cards"]


@pytest.mark.parametrize("kind", [*KINDS, "cut", "nonsense"])
async def test_without_its_seal_no_card_that_could_be_the_pods_is_given_away(kind: str) -> None:
    """Cards 0 and 1 are other pods', by their seals. Card 2 or 3 is p's: neither is given to a pod that wants a whole
    card. A part of what is left of them is: p is charged 100 MiB on either, which leaves 7,900."""
    async with started() as stage:
        stage.nodes(gpu_node("n", cards=4), gpu_node("m", cards=1))
        true = bound(stage, "p", {GPU: 1, MEM: 100, CORES: 10}, "GPU-n-2")
        lying = edited(true, both=f"GPU-n-0,NVIDIA,{HUGE},100:;", seal=other_seals(stage, true)[kind])
        stage.pods(lying, *(bound(stage, f"b{n}", WHOLE, f"GPU-n-{n}") for n in (0, 1)))
        stage.pods(bound(stage, "b4", WHOLE, "GPU-m-0", where="m"))
        await stage.settle()
        assert held(stage, "p") == [("GPU-n-2", 100, 100), ("GPU-n-3", 100, 100)]
        assert held(stage, "b0") == [("GPU-n-0", 8000, 1000)]
        assert (events(stage, "RecordUnverified"), unverified(stage)) == (["p"], 1)
        stage.pods(waiting("whole"))
        await stage.settle()
        assert placed(stage) == []
        stage.pods(waiting("part", limits={GPU: 1, MEM: 7900, CORES: 10}))
        await stage.settle()
        assert placed(stage) == ["part"]
        stage.pod_gone(true)
        await stage.settle()
        assert placed(stage) == ["part", "whole"]
        assert unverified(stage) == 0


@pytest.mark.parametrize("seals", [KEY, Seals()])
@pytest.mark.parametrize("strip", [True, False])
async def test_eight_pods_of_1_mib_that_claim_everything_block_nothing(seals: Seals, strip: bool) -> None:
    """Row 3b. At most 8 × 1 MiB are charged on a card: 7,992 MiB are left for another tenant, on each of 8."""
    async with started(seals) as stage:
        stage.nodes(gpu_node("n", cards=8))
        for n in range(8):
            item = bound(stage, f"p{n}", {GPU: 1, MEM: 1}, f"GPU-n-{n}")
            lie = edited(item, both=f"GPU-n-{n},NVIDIA,{HUGE},100:;")
            stage.pods(edited(lie, seal=None) if strip and seals else lie)
        stage.pods(*(waiting(f"w{n}", limits={GPU: 1, MEM: 7992}) for n in range(8)))
        for _ in range(3):
            await stage.settle()
        assert sorted(placed(stage)) == [f"w{n}" for n in range(8)]


ASKS = {
    "MiB": ({GPU: 1, MEM: 6000, CORES: 50}, 6000, 500),
    "MiB without cores": ({GPU: 1, MEM: 6000}, 6000, 0),
    "per cent": ({GPU: 1, PCT: 75, CORES: 50}, 6000, 500),
    "a whole card": ({GPU: 1}, 8000, 1000),
}


@pytest.mark.parametrize("seals", [KEY, Seals()])
@pytest.mark.parametrize("lie", ["GPU-n-0,NVIDIA,0,0:;", "GPU-n-0,NVIDIA,1,1:;", f"GPU-n-0,NVIDIA,{HUGE},{HUGE}:;"])
@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("node_first", [True, False])
async def test_amounts_are_what_the_pod_asks_for(ask: str, lie: str, seals: Seals, node_first: bool) -> None:
    """Row 3a, with a key and without one: the namespace may have 8,100 MiB, so that no second pod fits."""
    limits, memory, compute = ASKS[ask]
    async with started(seals) as stage:
        other = started(seals)
        other.nodes(gpu_node("n", cards=2))
        item = edited(bound(other, "p", limits, "GPU-n-0"), both=lie)
        quota_of(stage, 8100)
        if node_first:
            stage.nodes(gpu_node("n", cards=2))
        stage.pods(item)
        await stage.settle()
        stage.nodes(gpu_node("n", cards=2))
        stage.pods(waiting("w", limits=limits))
        await stage.settle()
        assert held(stage, "p") == [("GPU-n-0", memory, compute)]
        assert placed(stage) == []


@pytest.mark.parametrize("seals", [KEY, Seals()])
@pytest.mark.parametrize("strip", [True, False])
@pytest.mark.parametrize("lie", LIES)
async def test_no_lie_frees_quota(lie: str, strip: bool, seals: Seals) -> None:
    """The namespace may have 8,000 MiB, which p has by what it asks for."""
    async with started(seals) as stage:
        stage.nodes(gpu_node("n", cards=4), gpu_node("m", cards=1))
        quota_of(stage, 8000)
        item = edited(bound(stage, "p", {GPU: 1}, "GPU-n-2"), both=LIES[lie])
        stage.pods(edited(item, seal=None) if strip and seals else item)
        stage.pods(waiting("w", limits={GPU: 1, MEM: 1}))
        await stage.settle()
        assert placed(stage) == []


async def test_a_pod_that_fails_its_check_is_charged_once_to_its_quota() -> None:
    """It may have any of four cards of 8,000 MiB; its namespace of 16,000 MiB still has 8,000."""
    async with started() as stage:
        stage.nodes(gpu_node("n", cards=4), gpu_node("m", cards=2))
        quota_of(stage, 16_000)
        stage.pods(edited(bound(stage, "p", {GPU: 1}, "GPU-n-2"), seal=None))
        stage.pods(waiting("w", limits={GPU: 1}), waiting("x", limits={GPU: 1}))
        await stage.settle()
        assert placed(stage) == ["w"]


class TestOthersRecords:
    """Records without a seal that were never sealed."""

    async def test_of_another_scheduler_are_believed(self) -> None:
        """HAMi gives 5,000 MiB to pods that state nothing; we would give a whole card."""
        async with started() as stage:
            stage.nodes(gpu_node("n", cards=2))
            item = edited(bound(stage, "p", {GPU: 1}, "GPU-n-1"), both="GPU-n-1,NVIDIA,5000,0:;", seal=None)
            item["spec"]["schedulerName"] = "hami-scheduler"
            stage.pods(item)
            await stage.settle()
            assert held(stage, "p") == [("GPU-n-1", 5000, 0)]
            assert stage.hands.notes == []

    async def test_of_another_scheduler_are_believed_up_to_the_size_of_a_card(self) -> None:
        async with started() as stage:
            stage.nodes(gpu_node("n", cards=2))
            lie = f"GPU-n-1,NVIDIA,{HUGE},{HUGE}:;"
            item = edited(bound(stage, "p", {GPU: 1}, "GPU-n-1"), both=lie, seal=None)
            item["spec"]["schedulerName"] = "hami-scheduler"
            stage.pods(item)
            await stage.settle()
            assert held(stage, "p") == [("GPU-n-1", 8000, 1000)]

    @pytest.mark.parametrize("seal", [None, "v1 AAAAAAAAAAAAAAAAAAAAAA {}"])
    async def test_of_an_older_dovetail_are_believed(self, seal: str | None) -> None:
        """Sealing began at 500 s; p was created at 10 s, q at 900 s."""
        async with started(Seals((b"k" * 32,), since=500.0)) as stage:
            stage.nodes(gpu_node("n", cards=4))
            for name, card, at in (("p", "GPU-n-1", "1970-01-01T00:00:10Z"), ("q", "GPU-n-2", "1970-01-01T00:15:00Z")):
                stage.pods(edited(bound(stage, name, WHOLE, card, creationTimestamp=at), seal=seal))
            await stage.settle()
            assert held(stage, "p") == [("GPU-n-1", 8000, 1000)]
            assert events(stage, "RecordUnverified") == ["q"]

    async def test_a_mark_that_is_removed_changes_nothing(self) -> None:
        """`dovetail.dev/bound-by` is the tenant's to write; spec.schedulerName is not."""
        async with started() as stage:
            stage.nodes(gpu_node("n", cards=2))
            item = edited(bound(stage, "p", WHOLE, "GPU-n-1"), seal=None)
            del item["metadata"]["annotations"]["dovetail.dev/bound-by"]
            stage.pods(item)
            await stage.settle()
            assert events(stage, "RecordUnverified") == ["p"]


class TestWhereKubeletPicksTheCard:
    async def test_the_pod_is_sealed_without_cards_and_a_record_that_is_added_does_not_count(self) -> None:
        """The record would make it a node whose register is gone, which takes no pods."""
        async with started() as stage:
            labels = {"dovetail.dev/enforcer": "stock", "nvidia.com/gpu.product": "T4", "nvidia.com/gpu.count": "2"}
            stage.nodes(node("n", labels={**labels, "nvidia.com/gpu.memory": "8000"}, allocatable={GPU: "2"}))
            (first, _) = (device.uuid for device in stage.mirror.nodes["n"].devices)
            item = bound(stage, "p", {GPU: 1}, first)
            assert item["metadata"]["annotations"][SEAL].endswith(" {}")
            assert ALLOCATED not in item["metadata"]["annotations"]
            stage.pods(edited(item, both="GPU-x,NVIDIA,8000,100:;"))
            stage.pods(waiting("w", limits={GPU: 1}), waiting("v", limits={GPU: 1}))
            await stage.settle()
            assert events(stage, "RecordChanged") == ["p"]
            assert len(placed(stage)) == 1


class TestWhileRunning:
    @pytest.mark.parametrize("seals", [KEY, Seals()])
    async def test_a_change_is_one_event_however_often_it_is_changed(self, seals: Seals) -> None:
        """Stated amounts were corrected silently before: that a client wrote 0 MiB was not said anywhere."""
        async with started(seals) as stage:
            stage.nodes(gpu_node("n", cards=1))
            true = bound(stage, "p", {GPU: 1, MEM: 6000, CORES: 50}, "GPU-n-0")
            stage.pods(true)
            for number, text in enumerate(("GPU-n-0,NVIDIA,0,0:;", "GPU-n-0,NVIDIA,1,1:;", None)):
                stage.pods(edited(true, both=text, seal=None))
                await stage.settle()
                assert stage.mirror.records_changed == number + 1
            stage.pods(true)  # put back: nothing to report
            await stage.settle()
            assert held(stage, "p") == [("GPU-n-0", 6000, 500)]
            assert (events(stage, "RecordChanged"), stage.mirror.records_changed) == (["p"], 3)
            assert len([line for line in stage.log if "another client changed" in line]) == 3

    async def test_what_the_device_plugin_does_is_no_change(self) -> None:
        """HAMi's plugin takes out of `…-to-allocate` what it has handed over."""
        async with started() as stage:
            stage.nodes(gpu_node("n", cards=1))
            true = bound(stage, "p", WHOLE, "GPU-n-0")
            stage.pods(true)
            notes = {**true["metadata"]["annotations"], TO_ALLOCATE: ";", "hami.io/bind-phase": "success"}
            stage.pods({**true, "metadata": {**true["metadata"], "annotations": notes}})
            await stage.settle()
            assert (stage.hands.notes, stage.mirror.records_changed) == ([], 0)

    async def test_a_pod_that_names_its_node_itself_holds_back_no_more_than_it_asks_for(self) -> None:
        """No scheduler bound it, so that it needs no seal; its namespace of 8,100 MiB is charged for it."""
        async with started() as stage:
            stage.nodes(gpu_node("n", cards=2))
            stage.driver.happened(stage.mirror.hear_pods([Replaced([], [])]))
            quota_of(stage, 8100)
            stage.pods(edited(bound(stage, "p", {GPU: 1}, "GPU-n-0"), both="GPU-n-0,NVIDIA,1,1:;", seal=None))
            stage.pods(waiting("w", limits={GPU: 1}))
            await stage.settle()
            assert held(stage, "p") == [("GPU-n-0", 8000, 1000)]
            assert (placed(stage), unverified(stage)) == ([], 0)
            quota_of(stage, 16_000)
            await stage.settle()
            assert placed(stage) == ["w"]

    async def test_a_record_that_comes_after_our_bind_does_not_count(self) -> None:
        """Without a key, and though the pod was seen without a record first."""
        async with started(Seals()) as stage:
            stage.nodes(gpu_node("n", cards=2))
            stage.pods(waiting("p"))
            await stage.settle()
            ((card,),) = ([share.uuid for share in bind.decision.shares] for bind in stage.hands.binds)
            (other,) = {"GPU-n-0", "GPU-n-1"} - {card}
            blank = edited(bound(stage, "p", WHOLE, card), both=None)
            stage.pods(blank)
            stage.pods(edited(blank, both=f"{other},NVIDIA,8000,100:;"))
            await stage.settle()
            assert held(stage, "p") == [(card, 8000, 1000)]


async def test_a_pod_that_cannot_be_read_is_charged_whole_cards_whatever_its_record_says() -> None:
    """Of such a pod only the number of its cards is known."""
    stage = started()
    stage.nodes(gpu_node("n", cards=2))
    item = edited(bound(stage, "p", {GPU: 1, MEM: 100}, "GPU-n-1"), both="GPU-n-1,NVIDIA,0,0:;")
    stage.scheduler.handle(NodeChanged(0.0, stage.mirror.nodes["n"]))
    stage.scheduler.handle(PodObserved(0.0, bare_running(read(item), None)))
    assert held(stage, "p") == [("GPU-n-1", 8000, 1000)]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("strip", [True, False])
async def test_files_and_the_live_scheduler_read_the_same(lie: str, strip: bool) -> None:
    stage = started()
    there = gpu_node("n", cards=4)
    stage.nodes(there)
    item = edited(bound(stage, "p", WHOLE, "GPU-n-2"), both=LIES[lie])
    item = {"apiVersion": "v1", "kind": "Pod", **(edited(item, seal=None) if strip else item)}
    stage.pods(item)
    (running,) = read_files(there, item, settings=Settings(seals=KEY)).running
    known = stage.mirror.pods["uid-p"].running
    assert known is not None
    assert (running.shares, running.trust) == (known.shares, known.trust)
