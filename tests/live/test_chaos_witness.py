"""The chaos run's witness sees what it is for: each test is one fault, told as the API server would tell it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from tests.live.assigned import ALLOCATED
from tests.live.chaos.machines import Machine
from tests.live.chaos.run import FAULTS, _family
from tests.live.chaos.witness import GRACE, LAG, Witness
from tools.controlplane.client import Access, Client, Object
from tools.controlplane.objects import GPU, GPU_MEMORY, gpu_limits, node, pod

HAMI, STOCK = Machine("h", "hami", 2), Machine("s", "stock", 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("tests.live.chaos.witness.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def witness(clock: list[float], tmp_path: object) -> Witness:
    """It knows a HAMi node and a stock node of two cards each since a minute."""
    made = Witness(Client(Access(1, None, tmp_path)), {"h": HAMI, "s": STOCK})  # type: ignore[arg-type]
    for machine in (HAMI, STOCK):
        made._hear("Node", machine.node(), gone=False)
    clock[0] += 60
    return made


NUMBERS = count()


def bound(where: str, record: str = "", uid: str = "", **spec: object) -> Object:
    """A pod for a whole GPU that has its node."""
    item = pod(f"p{next(NUMBERS)}", gpu_limits(1), nodeName=where, **spec)  # type: ignore[arg-type]
    item["metadata"]["uid"] = uid or item["metadata"]["name"]
    item["metadata"]["annotations"] = {ALLOCATED: record} if record else {}
    return {**item, "status": {"phase": "Running"}}


def whole(index: int) -> str:
    return f"GPU-h-{index},NVIDIA,15360,100:;"


def told(witness: Witness, *items: Object) -> list[str]:
    for item in items:
        witness._hear("Pod", item, gone=False)
    witness._doubted = [replace(new, at=new.at - 2 * LAG) for new in witness._doubted]  # the LAG has passed
    return witness.drain()


def test_pods_that_fit_are_no_findings(witness: Witness) -> None:
    assert told(witness, bound("h", whole(0)), bound("h", whole(1)), bound("s"), bound("s")) == []
    assert witness.free_cards({}) == []


def test_a_card_given_twice(witness: Witness) -> None:
    first, second = bound("h", whole(0)), bound("h", whole(0))
    assert told(witness, first) == []
    assert any("GPU-h-0 is given whole and shared" in what for what in told(witness, second))


def test_what_was_bound_is_held_whatever_is_written_later(witness: Witness) -> None:
    first = bound("h", whole(0))
    edited = {**first, "metadata": {**first["metadata"], "annotations": {ALLOCATED: "GPU-h-0,NVIDIA,1,0:;"}}}
    assert told(witness, first, edited) == []
    assert told(witness, bound("h", whole(0)))
    assert witness.free_cards({}) == ["GPU-h-1"]


def test_a_label_of_a_running_pod_does_not_free_its_card(witness: Witness) -> None:
    """Of a pod that carries it before it is bound, a part of a card without a number is no request."""
    first = bound("s")
    first["spec"]["containers"][0]["resources"]["limits"] = {GPU_MEMORY: "15360"}
    labelled = {**first, "metadata": {**first["metadata"], "labels": {"hami.io/webhook": "ignore"}}}
    assert told(witness, first, labelled, bound("s")) == []
    assert told(witness, bound("s"))
    other = {**labelled, "metadata": {**labelled["metadata"], "uid": "another"}}
    assert told(witness, other) == []


def test_a_pod_that_is_gone_holds_nothing(witness: Witness) -> None:
    first = bound("h", whole(0))
    told(witness, first)
    witness._hear("Pod", first, gone=True)
    assert told(witness, bound("h", whole(0))) == []


def test_more_whole_gpus_than_a_stock_node_has(witness: Witness) -> None:
    assert told(witness, bound("s"), bound("s")) == []
    assert any("3 whole GPUs" in what for what in told(witness, bound("s")))


def test_pods_without_records_beside_pods_with_records(witness: Witness) -> None:
    assert told(witness, bound("h", whole(0)), bound("h", schedulerName="other")) == []
    assert any("2 GPUs written down on 2 cards" in what for what in told(witness, bound("h", whole(1))))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": {"unschedulable": True}}, "cordoned or tainted"),
        ({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}, "cordoned or tainted"),
        ({"status": {"allocatable": {GPU: "0"}}}, f"no {GPU} allocatable"),
        ({"metadata": {"name": "h", "annotations": {}}}, "was not offered there"),
    ],
)
def test_a_node_that_takes_no_pods(witness: Witness, clock: list[float], change: Object, said: str) -> None:
    """A placement within GRACE after the change is no finding, a later one is."""
    witness._hear("Node", {**HAMI.node(), **change}, gone=False)
    clock[0] += GRACE / 2
    assert told(witness, bound("h", whole(0))) == []
    clock[0] += GRACE
    assert any(said in what for what in told(witness, bound("h", whole(1))))


def test_news_of_a_node_may_come_after_those_of_a_pod(witness: Witness, clock: list[float]) -> None:
    witness._hear("Node", {**HAMI.node(), "spec": {"unschedulable": True}}, gone=False)
    clock[0] += 2 * GRACE
    witness._hear("Pod", bound("h", whole(0)), gone=False)
    witness._hear("Node", HAMI.node(), gone=False)
    clock[0] += 2 * LAG
    assert witness.drain() == []


def test_a_pod_on_a_card_that_has_shrunk(witness: Witness, clock: list[float]) -> None:
    small = HAMI.register()
    small[0]["devmem"] = 4000
    witness._hear("Node", node("h", gpus=small), gone=False)
    clock[0] += 2 * GRACE
    assert any("15360 MiB are in use, and it has 4000" in what for what in told(witness, bound("h", whole(0))))
    assert told(witness, bound("h", whole(1))) == []


def test_a_pod_without_a_record_on_a_hami_node(witness: Witness) -> None:
    assert told(witness, bound("h")) == [
        f"placement: default/p{next(NUMBERS) - 1} on h: asks for GPUs and has none written down"
    ]


def test_a_pod_bound_twice(witness: Witness) -> None:
    told(witness, bound("h", whole(0), uid="one"))
    witness._hear("Pod", bound("h", whole(0), uid="one"), gone=True)
    assert any("was bound to h and to s" in what for what in told(witness, bound("s", uid="one")))


def test_members_of_a_gang_are_counted(witness: Witness) -> None:
    member = bound("h", whole(0))
    member["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
    told(witness, member)
    assert {gang: len(uids) for gang, uids in witness.bound_of_gang.items()} == {"default/g": 1}


def test_a_free_card_is_one_that_a_waiting_pod_may_have(witness: Witness) -> None:
    told(witness, bound("h", whole(0)))
    assert witness.free_cards({}) == ["GPU-h-1"]
    assert witness.free_cards({"kind": "lock"}) == []
    witness._hear("Node", node("h", gpus=HAMI.register(), unschedulable=True), gone=False)
    assert witness.free_cards({}) == []


def test_a_seed_gives_the_same_faults_and_every_family_in_each_round() -> None:
    names = list(FAULTS)
    first = [_family(7, step, names) for step in range(2 * len(names))]
    assert first == [_family(7, step, names) for step in range(2 * len(names))]
    assert sorted(first[: len(names)]) == sorted(first[len(names) :]) == sorted(names)
    assert first[: len(names)] != first[len(names) :]
