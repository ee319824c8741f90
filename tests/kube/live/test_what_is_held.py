"""What a pod holds stays held, whatever its annotations and its node's say later (ADR 13)."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from dovetail.kube.conversion.settled import HANDSHAKE
from dovetail.kube.conversion.settling import SETTLE_SECONDS
from dovetail.kube.live.binder import Fate
from tests.kube.live.stage import Stage, gpu_node, waiting
from tests.kube.manifests import ALLOCATED, CORES, GPU, MEM, REGISTER, Object, card, container, node

TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
LABELS = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360", "nvidia.com/gpu.count": "4"}
WHOLE = {GPU: 1, CORES: 100}
LATER = SETTLE_SECONDS + 1


def stock_node(name: str = "n", cards: int = 4, **labels: str) -> Object:
    """With NVIDIA's own plugin and feature discovery: kubelet picks the card."""
    return node(name, labels={**LABELS, **labels}, allocatable={GPU: str(cards)})


def bare_node(name: str = "n", count: int = 4) -> Object:
    return node(name, allocatable={GPU: str(count)})


def with_register(item: Object, cards: list[Object] | None) -> Object:
    """The node with other cards in its register; None = without a register."""
    notes = {key: value for key, value in item["metadata"]["annotations"].items() if key != REGISTER}
    if cards is not None:
        notes[REGISTER] = json.dumps(cards)
    return {**item, "metadata": {**item["metadata"], "annotations": notes}}


def with_count(item: Object, count: int) -> Object:
    allocatable = {**item["status"]["allocatable"], GPU: str(count)}
    return {**item, "status": {**item["status"], "allocatable": allocatable}}


def on(name: str, where: str, record: str = "", version: int = 2, **meta: Any) -> Object:
    """A running pod that wants a whole card."""
    item = waiting(name, version)
    item["spec"]["nodeName"] = where
    item["metadata"] |= {"annotations": {ALLOCATED: record} if record else {}, **meta}
    return item


def whole(uuid: str) -> str:
    return f"{uuid},NVIDIA,15360,100:;"


class Cluster(Stage):
    """A stage that carries out its own binds: a bound pod is observed as the API server would show it."""

    async def settle(self) -> None:
        await super().settle()
        while self.hands.binds:
            bind = self.hands.binds.pop(0)
            kubelet_picks = any("/gpu-" in share.uuid for share in bind.decision.shares)
            record = "" if kubelet_picks else whole(bind.decision.shares[0].uuid)
            self.running[bind.pod.name] = str(bind.decision.node)
            self.pods(on(bind.pod.name, str(bind.decision.node), record))
            await super().settle()

    async def __aenter__(self) -> Cluster:
        await super().__aenter__()
        return self

    def __init__(self) -> None:
        super().__init__()
        self.running: dict[str, str] = {}  # pods that were bound here -> node

    def cards_of(self, name: str) -> list[str]:
        return [share.uuid for share in self.scheduler.ledger.held_shares(f"uid-{name}")]

    def want(self, *names: str) -> None:
        self.pods(*(waiting(name) for name in names))


@pytest.mark.asyncio
class TestRegister:
    @pytest.mark.parametrize("gone", [None, [], "garbled"])
    async def test_a_register_that_flickers_gives_no_card_twice(self, gone: Any) -> None:
        """4 cards, 4 whole pods, 4 waiting: none of them may be bound while the register is away or after."""
        async with Cluster() as stage:
            full = gpu_node(cards=4)
            full = with_count(full, 40)
            stage.nodes(full)
            stage.want(*(f"p{n}" for n in range(8)))
            await stage.settle()
            before = {name: stage.cards_of(name) for name in stage.running}
            assert len(before) == 4
            away = with_register(full, gone if gone != "garbled" else None)
            if gone == "garbled":
                away["metadata"]["annotations"][REGISTER] = ""
            for state in (away, full, away, full):
                stage.nodes(state)
                await stage.settle()
                stage.clock += 10
            assert {name: stage.cards_of(name) for name in stage.running} == before
            assert not [line for line in stage.log if "assumed" in line]

    async def test_while_it_is_away_no_pod_is_added_and_the_node_says_why(self) -> None:
        async with Cluster() as stage:
            half = with_count(gpu_node(cards=4), 40)
            stage.nodes(half)
            stage.nodes(with_register(half, None))
            stage.want("p")
            await stage.settle()
            assert stage.running == {}
            assert "the register of its cards is gone" in stage.mirror.nodes["n"].unsettled
            stage.nodes(half)
            await stage.settle()
            assert stage.running == {"p": "n"}

    async def test_a_waiting_pod_soon_says_what_its_node_lacks(self) -> None:
        """Not only at the look every 30 s: the stage's clock moves by 4 s."""
        async with Cluster() as stage:
            full = with_count(gpu_node(cards=1), 10)
            stage.nodes(full)
            stage.want("p", "w")
            await stage.settle()
            assert "GPU memory short" in stage.hands.conditions["uid-w"].message
            stage.nodes(with_register(full, None))
            await stage.settle()
            stage.clock += 4
            for _ in range(3):  # turns of the loop: look, find, tell
                stage.driver.happened(())
                await stage.settle()
            assert "the register of its cards is gone" in stage.hands.conditions["uid-w"].message

    async def test_the_operator_may_say_that_the_node_is_stock_now(self) -> None:
        async with Cluster() as stage:
            half = with_count(gpu_node(cards=4), 4)
            stage.nodes(half)
            stock = with_register(half, None)
            stock["metadata"]["labels"] = {"dovetail.dev/enforcer": "stock"}
            stage.nodes(stock)
            stage.want("p")
            await stage.settle()
            assert stage.running == {"p": "n"}

    async def test_a_node_deleted_without_its_register_comes_back_with_it(self) -> None:
        """p2 and p3 hold the last two cards; the two that come after may have the first two only."""
        async with Cluster() as stage:
            full = with_count(gpu_node(cards=4), 40)
            stage.nodes(full)
            stage.pods(on("p2", "n", whole("GPU-n-2")), on("p3", "n", whole("GPU-n-3")))
            stage.nodes(with_register(full, None))
            await stage.settle()
            stage.node_gone("n")
            await stage.settle()
            stage.nodes(full)
            stage.want("q0", "q1", "q2")
            await stage.settle()
            assert sorted(uuid for name in stage.running for uuid in stage.cards_of(name)) == ["GPU-n-0", "GPU-n-1"]
            assert (stage.cards_of("p2"), stage.cards_of("p3")) == (["GPU-n-2"], ["GPU-n-3"])

    async def test_a_node_whose_count_is_0_takes_no_pod(self) -> None:
        """The plugin's socket died: kubelet would refuse the pod."""
        async with Cluster() as stage:
            stage.nodes(with_count(gpu_node(cards=4), 0))
            stage.want("p")
            await stage.settle()
            assert stage.running == {}
            assert "is 0, but 4 healthy cards are registered" in stage.mirror.nodes["n"].unsettled
            stage.nodes(with_count(gpu_node(cards=4), 40))
            await stage.settle()
            assert stage.running == {"p": "n"}


@pytest.mark.asyncio
class TestNewNode:
    async def test_a_count_that_comes_before_its_register_is_not_a_number_of_cards(self) -> None:
        """40 slots, of 4 cards: of 12 whole pods 4 are bound, and only once the register is there."""
        async with Cluster() as stage:
            stage.want(*(f"p{n}" for n in range(12)))
            stage.nodes(bare_node(count=40))
            stage.clock += LATER
            await stage.settle()
            assert stage.running == {}
            stage.nodes(with_count(gpu_node(cards=4), 40))
            await stage.settle()
            assert len(stage.running) == 4

    async def test_a_small_count_without_labels_is_believed_after_a_while(self) -> None:
        async with Cluster() as stage:
            stage.nodes(bare_node(count=4))
            stage.want(*(f"p{n}" for n in range(6)))
            await stage.settle()
            assert stage.running == {}
            stage.clock += LATER
            stage.driver.happened(())
            await stage.settle()
            assert len(stage.running) == 4

    async def test_a_node_that_is_older_than_that_is_believed_at_once(self) -> None:
        async with Cluster() as stage:
            old = bare_node(count=4)
            old["metadata"]["creationTimestamp"] = "1970-01-01T00:00:10Z"  # the stage's clock is at 1000 s
            stage.nodes(old)
            stage.want("p")
            await stage.settle()
            assert stage.running == {"p": "n"}

    async def test_time_slicing_labels_that_come_late(self) -> None:
        """Allocatable says 40 and the product that cards are shared: how many there are, only `replicas` says."""
        async with Cluster() as stage:
            stage.want(*(f"p{n}" for n in range(12)))
            labels = {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.memory": "15360"}
            stage.nodes(node("n", labels=labels, allocatable={GPU: "40"}))
            stage.clock += LATER
            await stage.settle()
            assert stage.running == {}
            labels |= {"nvidia.com/gpu.count": "4", "nvidia.com/gpu.replicas": "10"}
            stage.nodes(node("n", labels=labels, allocatable={GPU: "40"}))
            await stage.settle()
            assert len(stage.running) == 4

    @pytest.mark.parametrize("handshake", ["Requesting_2026-01-01 00:00:00", "Reported", "", "anything"])
    async def test_a_handshake_without_a_register_is_waited_for(self, handshake: str) -> None:
        """The same nodes as those on which the lock is taken."""
        async with Cluster() as stage:
            item = bare_node(count=4)
            item["metadata"]["annotations"] = {HANDSHAKE: handshake}
            stage.nodes(item)
            stage.clock += LATER
            stage.want("p")
            await stage.settle()
            assert stage.running == {}
            assert "HAMi's plugin is there" in stage.mirror.nodes["n"].unsettled

    async def test_a_handshake_that_is_marked_as_deleted_is_not_waited_for(self) -> None:
        async with Cluster() as stage:
            item = bare_node(count=4)
            item["metadata"]["annotations"] = {HANDSHAKE: "Deleted_2026-01-01 00:00:00"}
            stage.nodes(item)
            stage.clock += LATER
            stage.want("p")
            await stage.settle()
            assert list(stage.running) == ["p"]


@pytest.mark.asyncio
class TestGuessedCards:
    @pytest.mark.parametrize("fewer", [3, 2, 0])
    async def test_a_stock_node_that_loses_cards_for_a_moment(self, fewer: int) -> None:
        async with Cluster() as stage:
            stage.nodes(stock_node())
            stage.want(*(f"p{n}" for n in range(6)))
            await stage.settle()
            assert len(stage.running) == 4
            for count in (fewer, 4, fewer, 4):
                stage.nodes(stock_node(cards=count))
                await stage.settle()
            assert len(stage.running) == 4

    async def test_a_pod_that_leaves_while_a_card_is_away_makes_no_room(self) -> None:
        """4 pods on 3 cards: once one leaves, 3 pods have 3 cards, and nothing is free."""
        async with Cluster() as stage:
            stage.nodes(stock_node())
            stage.want(*(f"p{n}" for n in range(4)))
            await stage.settle()
            stage.nodes(stock_node(cards=3))
            await stage.settle()
            stage.pod_gone(on("p1", "n"))
            stage.want("late")
            await stage.settle()
            assert "late" not in stage.running
            stage.nodes(stock_node(cards=4))
            await stage.settle()
            assert stage.running["late"] == "n"

    async def test_a_full_stock_node_that_gets_a_register(self) -> None:
        async with Cluster() as stage:
            stage.nodes(stock_node())
            stage.want(*(f"p{n}" for n in range(6)))
            await stage.settle()
            assert len(stage.running) == 4
            full = stock_node(cards=40)
            cards = [card(f"GPU-{n}", index=n) for n in range(4)]
            stage.nodes(with_register(full, cards))
            await stage.settle()
            assert len(stage.running) == 4
            assert sorted(stage.cards_of(name)[0] for name in stage.running) == [f"GPU-{n}" for n in range(4)]

    @pytest.mark.parametrize("arrived", [False, True], ids=["on its way", "has arrived"])
    async def test_a_pod_whose_bind_is_on_its_way_counts_on_the_new_cards(self, arrived: bool) -> None:
        """4 cards, 4 pods whose Bindings name no cards; the register comes before their answers. A 5th must wait."""
        async with Stage() as stage:
            stage.nodes(stock_node())
            stage.pods(*(waiting(f"p{n}") for n in range(5)))
            await stage.settle()
            binds = list(stage.hands.binds)
            assert len(binds) == 4
            stage.nodes(with_register(stock_node(cards=40), [card(f"GPU-{n}", index=n) for n in range(4)]))
            await stage.settle()
            assert len(stage.hands.binds) == 4
            if not arrived:  # looked at just before they are written: they are placed again, with records
                assert all(stage.driver.outcomes.objection(bind, waited=False) for bind in binds)
            for bind in binds:
                if arrived:
                    stage.answer(Fate.BOUND, bind)
                    stage.pods(on(bind.pod.name, "n", ""))
                else:
                    stage.answer(Fate.OUTDATED, bind)
            await stage.settle()
            held = {name: self._cards(stage, name) for name in stage.holders()}
            assert len(held) == 4
            assert sorted(uuid for cards in held.values() for uuid in cards) == [f"GPU-{n}" for n in range(4)]

    @staticmethod
    def _cards(stage: Stage, name: str) -> list[str]:
        return [share.uuid for share in stage.scheduler.ledger.held_shares(f"uid-{name}")]

    async def test_a_card_that_is_unregistered_for_a_moment(self) -> None:
        """Another scheduler's pod without a record has one of two cards; ours has the other."""
        async with Cluster() as stage:
            both = with_count(gpu_node(cards=2), 20)
            stage.nodes(both)
            stage.pods(on("static", "n"))
            stage.want("p", "w")
            await stage.settle()
            assert list(stage.running) == ["p"]
            (mine,) = stage.cards_of("p")
            one = with_register(both, [card(mine)])
            for state in (one, both, one, both):
                stage.nodes(state)
                await stage.settle()
            assert list(stage.running) == ["p"]

    async def test_pods_heard_of_before_their_node(self) -> None:
        """2 of 4 cards are taken by pods that name the node themselves: 2 of 4 waiting pods find a card."""
        async with Cluster() as stage:
            stage.pods(on("s0", "late"), on("s1", "late"))
            stage.want(*(f"w{n}" for n in range(4)))
            await stage.settle()
            stage.nodes(with_count(gpu_node("late", cards=4), 40))
            await stage.settle()
            assert len(stage.running) == 2

    async def test_a_node_that_is_stock_for_a_while(self) -> None:
        """A pod that kubelet gave a card to meanwhile holds one that no record names: 3 records and it fill 4 cards."""
        async with Cluster() as stage:
            full = with_count(gpu_node(cards=4), 40)
            stage.nodes(full)
            records = [on(f"r{n}", "n", whole(f"GPU-n-{n}")) for n in (0, 1, 2)]
            stage.pods(*records)
            stock = {**full, "metadata": {**full["metadata"], "labels": {"dovetail.dev/enforcer": "stock"}}}
            stage.nodes(stock)
            stage.pods({**on("k", "n"), "spec": {**on("k", "n")["spec"], "priority": 10}})
            await stage.settle()
            stage.nodes(full)
            stage.want("w")
            await stage.settle()
            assert stage.running == {}
            assert stage.cards_of("k") == ["GPU-n-3"]

    async def test_a_record_that_comes_later_takes_the_place_of_the_guess(self) -> None:
        async with Cluster() as stage:
            stage.nodes(with_count(gpu_node(cards=2), 20))
            stage.pods(on("p", "n"))
            await stage.settle()
            (guessed,) = stage.cards_of("p")
            (other,) = {"GPU-n-0", "GPU-n-1"} - {guessed}
            stage.pods(on("p", "n", whole(other), version=3))
            await stage.settle()
            assert stage.cards_of("p") == [other]


@pytest.mark.asyncio
class TestRecords:
    @pytest.mark.parametrize(
        "text", ["", "GPU-n-0,NVIDIA,0,0:;", "GPU-n-1,NVIDIA,15360,100:;", "GPU-x,NVIDIA,1,1:;", "?"]
    )
    async def test_what_was_bound_stays_held_whatever_the_record_says_later(self, text: str) -> None:
        async with Cluster() as stage:
            stage.nodes(with_count(gpu_node(cards=1), 10))
            stage.want("p", "w")
            await stage.settle()
            assert stage.running == {"p": "n"}
            stage.pods(on("p", "n", text, version=9))
            await stage.settle()
            assert stage.running == {"p": "n"}
            assert stage.cards_of("p") == ["GPU-n-0"]
            stage.driver.reports.problems()
            assert [line for line in stage.log if "ml/p" in line and "another client changed" in line]
            assert stage.mirror.records_changed == 1

    async def test_a_label_for_hamis_webhook_frees_no_card(self) -> None:
        """The pod asked for memory and compute only; the count is HAMi's default."""
        asks = {MEM: 15360, CORES: 100}
        async with Cluster() as stage:
            stage.nodes(with_count(gpu_node(cards=1), 10))
            item = on("p", "n", whole("GPU-n-0"))
            item["spec"]["containers"] = [container(asks)]
            stage.pods(item)
            stage.want("w")
            item["metadata"] |= {"labels": {"hami.io/webhook": "ignore"}, "resourceVersion": "3"}
            stage.pods(item)
            await stage.settle()
            assert stage.running == {}
        async with Cluster() as restarted:
            restarted.nodes(with_count(gpu_node(cards=1), 10))
            restarted.pods(item)
            restarted.want("w")
            await restarted.settle()
            assert restarted.running == {}

    async def test_after_a_restart_records_that_contradict_each_other_are_both_booked(self) -> None:
        """`…-allocated` was edited to name another card; what was written for the plugin still names the first."""
        edited = on("p", "n", whole("GPU-n-1"))
        edited["metadata"]["annotations"][TO_ALLOCATE] = whole("GPU-n-0")
        async with Cluster() as stage:
            stage.nodes(with_count(gpu_node(cards=3), 30))
            stage.pods(edited)
            stage.want("w", "v")
            await stage.settle()
            assert sorted(stage.cards_of("p")) == ["GPU-n-0", "GPU-n-1"]
            assert [stage.cards_of(name) for name in stage.running] == [["GPU-n-2"]]
            assert [line for line in stage.log if "the cards of both are booked" in line]

    @pytest.mark.parametrize("node_first", [True, False])
    async def test_a_register_that_vanished_before_the_start(self, node_first: bool) -> None:
        """10 slots of one card, which a pod holds: not ten cards, and not one that is free."""
        async with Cluster() as stage:
            gone = bare_node(count=10)
            gone["metadata"]["creationTimestamp"] = "1970-01-01T00:00:10Z"
            if node_first:
                stage.nodes(gone)
            stage.pods(on("p", "n", whole("GPU-n-0")))
            stage.nodes(gone)
            stage.clock += LATER
            stage.want("w")
            await stage.settle()
            assert stage.running == {}
            assert stage.mirror.nodes["n"].unsettled == "its pods hold cards of a register that is gone"
            stage.nodes(with_count(gpu_node(cards=1), 10))
            stage.driver.reports.problems()
            await stage.settle()
            assert stage.running == {}
            assert stage.cards_of("p") == ["GPU-n-0"]
            assert [line for line in stage.log if line.startswith("Node n: takes GPU pods again")]

    async def test_pods_of_a_register_that_is_gone_for_good(self) -> None:
        async with Cluster() as stage:
            stage.nodes(bare_node(count=2))
            stage.pods(on("p", "n", whole("GPU-n-0")))
            stage.clock += LATER
            stage.want("w")
            await stage.settle()
            assert stage.running == {}
            stage.pod_gone(on("p", "n"))
            await stage.settle()
            assert stage.running == {"w": "n"}


@pytest.mark.asyncio
class TestOneCardInTwoPlaces:
    async def test_a_node_under_a_new_name_waits_for_the_pods_of_the_old_one(self) -> None:
        async with Cluster() as stage:
            stage.nodes(with_count(gpu_node("a", cards=1), 10))
            stage.want("p")
            await stage.settle()
            stage.node_gone("a")
            stage.nodes(with_count(node("b", card("GPU-a-0")), 10))
            stage.want("w")
            await stage.settle()
            assert list(stage.running) == ["p"]
            assert stage.mirror.nodes["b"].unsettled == "card GPU-a-0 is held by pods of node a"
            stage.pod_gone(on("p", "a"))
            await stage.settle()
            assert stage.running["w"] == "b"

    async def test_a_pod_of_the_old_node_may_be_reported_last(self) -> None:
        """The watch of pods is behind that of nodes: the node is gone before its pod is known."""
        async with Stage() as stage:
            stage.nodes(with_count(gpu_node("a", cards=1), 10))
            stage.pods(waiting("p"))
            stage.node_gone("a")
            stage.nodes(with_count(node("b", card("GPU-a-0")), 10))
            stage.pods(on("p", "a", whole("GPU-a-0")))
            await stage.settle()
            assert stage.mirror.nodes["b"].unsettled == "card GPU-a-0 is held by pods of node a"

    async def test_two_nodes_that_register_one_card(self) -> None:
        async with Cluster() as stage:
            stage.nodes(with_count(node("a", card("GPU-x")), 10), with_count(node("b", card("GPU-x")), 10))
            assert stage.mirror.nodes["b"].unsettled == "card GPU-x is also registered by node a"
            stage.want("p", "w")
            await stage.settle()
            assert stage.running == {"p": "a"}
            stage.pod_gone(on("p", "a"))
            stage.node_gone("a")
            await stage.settle()
            assert stage.running["w"] in ("a", "b")

    async def test_a_record_alone_blocks_no_other_node(self) -> None:
        """The owner of a pod can write any UUID into it."""
        async with Cluster() as stage:
            stage.nodes(with_count(gpu_node("a", cards=1), 10), with_count(gpu_node("b", cards=1), 10))
            stage.pods(on("evil", "a", whole("GPU-b-0")))
            stage.want("p")
            await stage.settle()
            assert stage.mirror.nodes["b"].unsettled == ""

    @pytest.mark.parametrize("order", list(permutations(("pod", "a", "b"))))
    async def test_the_node_whose_pods_hold_the_card_has_it_in_any_order(self, order: tuple[str, ...]) -> None:
        """A host under a new name, `b`, beside its old Node `a`."""
        said = {
            "pod": lambda stage: stage.pods(on("p", "b", whole("GPU-x"))),
            "a": lambda stage: stage.nodes(with_count(node("a", card("GPU-x")), 10)),
            "b": lambda stage: stage.nodes(with_count(node("b", card("GPU-x")), 10)),
        }
        async with Cluster() as stage:
            for what in order:
                said[what](stage)
                await stage.settle()
            stage.want("w")
            await stage.settle()
            assert stage.mirror.nodes["a"].unsettled == "card GPU-x is held by pods of node b"
            assert stage.running == {}
