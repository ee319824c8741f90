"""Nodes, pods and records of gpushare and gpu-manager, as they are read and as a Binding writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dovetail.cli.settings import KNOWN
from dovetail.kube.live.binding import binding
from dovetail.model.decision import Decision, Share
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import DeviceAsk
from dovetail.model.reason import Reason
from tests.kube.manifests import GPU, Object, container, node, only_pod, pod, read, said

MEM, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
CORE, BLOCKS = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
IN_MIB = replace(KNOWN, vendors=KNOWN.vendors.with_gpushare_unit("MiB"))


def share_node(name: str = "n", memory: int = 32_552, count: int = 2, **fields: Any) -> Object:
    return node(name, allocatable={MEM: memory, COUNT: count}, **fields)


def vcuda_node(name: str = "n", cores: int = 200, blocks: int = 8) -> Object:
    return node(name, allocatable={CORE: cores, BLOCKS: blocks})


def only(source: Object) -> Node:
    (found,) = read(source, settings=IN_MIB).nodes
    return found


def test_a_gpushare_node_has_as_many_equal_cards_as_its_plugin_counts() -> None:
    found = only(share_node())
    assert [(card.uuid, card.index, card.memory_mib) for card in found.devices] == [
        ("n/gpushare-0", 0, 16_276),  # 32552 MiB / 2
        ("n/gpushare-1", 1, 16_276),
    ]
    assert (found.enforcer, found.unsettled) == (Enforcer.GPUSHARE, "")


def test_a_gpu_manager_node_has_a_card_for_each_hundred_cores() -> None:
    found = only(vcuda_node())
    assert [(card.uuid, card.memory_mib, card.compute_milli) for card in found.devices] == [
        ("n/vcuda-0", 4 * 256, 1000),  # 8 blocks of 256 MiB / 2
        ("n/vcuda-1", 4 * 256, 1000),
    ]
    assert (found.enforcer, found.unsettled) == (Enforcer.GPU_MANAGER, "")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (share_node(memory=30), "30 for 2 cards, which cannot be MiB; set gpushareMemoryUnit"),
        (share_node(count=0), "is there without aliyun.com/gpu-count"),
        (vcuda_node(cores=90), "is too little for one card"),
        (vcuda_node(blocks=2**50), "is more than any card has"),
        (share_node(memory=2**52), "is more than any card has"),
        (node("n", allocatable={MEM: 32_552, COUNT: 2, GPU: 2}), "two plugins hand out the same cards"),
        (node("n", allocatable={MEM: 32_552, COUNT: 2, CORE: 200, BLOCKS: 8}), "two plugins hand out the same cards"),
        (share_node(capacity={MEM: 65_104, COUNT: 4}), "is 32552 of 65104: a card is not healthy"),
    ],
)
def test_a_node_that_contradicts_itself_takes_no_new_pods(source: Object, why: str) -> None:
    given = read(source, settings=IN_MIB)
    assert why in given.nodes[0].unsettled
    assert any(why in problem.message for problem in said(given, "warning"))


def asks(*containers: Object, **spec: Any) -> list[tuple[DeviceAsk, ...]]:
    return [one.asks for one in only_pod(pod("p", *containers, **spec), settings=IN_MIB).containers]


def test_a_gpushare_pod_gets_one_card_for_all_its_containers() -> None:
    ours = asks(container({MEM: 1000}), container({}), container({MEM: "3k"}))
    assert [[(ask.count, ask.memory_mib, ask.compute_milli) for ask in own] for own in ours] == [[(1, 4000, 0)], [], []]


def test_a_gpushare_pod_counts_in_the_unit_of_the_plugin() -> None:
    in_gib = only_pod(pod("p", container({MEM: 8})), settings=KNOWN)
    assert in_gib.containers[0].asks[0].memory_mib == 8192  # the plugin's default is GiB


def test_parts_of_cards_and_whole_cards_of_gpu_manager() -> None:
    ((part,), (whole,)) = asks(container({CORE: 30, BLOCKS: 3}), container({CORE: 200, BLOCKS: 10}))
    assert (part.count, part.memory_mib, part.memory_percent, part.compute_milli) == (1, 768, None, 300)
    assert (whole.count, whole.memory_mib, whole.memory_percent, whole.compute_milli) == (2, 0, 100, 1000)


@pytest.mark.parametrize(
    ("limits", "field", "why"),
    [
        ({CORE: 150, BLOCKS: 1}, CORE, "neither less than 100 nor a multiple of 100"),
        ({CORE: 50}, BLOCKS, "is missing, and a part of a card needs both"),
        ({BLOCKS: 5}, CORE, "is missing, and a part of a card needs both"),
        ({MEM: "1500m"}, MEM, "is no whole number"),
        ({MEM: -1}, MEM, "is no whole number"),
        ({MEM: "8Gi"}, MEM, "is no whole number"),
    ],
)
def test_requests_that_the_plugin_would_refuse_are_refused_with_the_field(limits: Object, field: str, why: str) -> None:
    given = read(pod("p", container(limits)), settings=IN_MIB)
    (problem,) = said(given, "error", field)
    assert why in problem.message
    refused = given.groups[0].pods[0]
    assert refused.refusal is not None
    assert refused.refusal.reason is Reason.INVALID_REQUEST


def test_init_containers_get_no_card_from_these_plugins() -> None:
    for limits in ({MEM: 1000}, {CORE: 100}):
        given = read(pod("p", container({}), initContainers=[container(limits, name="init")]), settings=IN_MIB)
        assert "init container" in said(given, "error")[0].message


def test_pods_get_the_policies_of_the_system_that_they_are_written_for() -> None:
    shared = only_pod(pod("p", container({MEM: 1000})), settings=IN_MIB).profile
    assert (shared.node, shared.device) == ("binpack", ("gpushare",))
    ours = only_pod(pod("p", container({CORE: 100})), settings=IN_MIB).profile
    assert (ours.node, ours.device) == ("vcuda", ("vcuda",))
    notes = {"dovetail.dev/node-policy": "spread", "dovetail.dev/gpu-policy": "binpack"}
    stated = only_pod(pod("p", container({MEM: 1000}), meta={"annotations": notes}), settings=IN_MIB).profile
    assert (stated.node, stated.device) == ("spread", ("binpack",))


@pytest.mark.parametrize(
    ("notes", "node_policy"),
    [({"dovetail.dev/gpu-policy": "binpack"}, "vcuda"), ({"dovetail.dev/node-policy": "fgd"}, "vcuda")],
)
def test_a_choice_that_gpu_manager_would_refuse_is_not_made(notes: Object, node_policy: str) -> None:
    given = read(pod("p", container({CORE: 50, BLOCKS: 2}), meta={"annotations": notes}), settings=IN_MIB)
    profile = given.groups[0].pods[0].profile
    assert (profile.node, profile.device) == (node_policy, ("vcuda",))
    assert "gpu-manager refuses a card" in said(given, "warning", next(iter(notes)))[0].message


def annotations_of(source: Object, where: Object, *shares: tuple[int, int]) -> dict[str, str]:
    """What a Binding writes for (container, card) pairs."""
    given = read(where, source, settings=IN_MIB)
    ours, target = given.groups[0].pods[0], given.nodes[0]
    amounts = [next(a for a in ours.containers[c].asks) for c, _ in shares]
    made = tuple(
        Share(c, target.devices[d].uuid, ask.memory_mib or target.devices[d].memory_mib, ask.compute_milli)
        for (c, d), ask in zip(shares, amounts, strict=True)
    )
    decision = Decision(ours.uid, "n", made, Reason.OK, 0)
    body = binding(ours, decision, target, "1", IN_MIB.vendors, 12.5, False)
    written: dict[str, str] = body["metadata"]["annotations"]
    assert "labels" not in body["metadata"]  # HAMi's
    assert not any(name.startswith("hami.io/") for name in written)
    return written


def test_a_binding_says_what_gpushares_plugin_reads() -> None:
    two = pod("p", container({MEM: 1000}), container({MEM: 3000}))
    assert annotations_of(two, share_node(), (0, 1)) == {
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "4000",
        "ALIYUN_COM_GPU_MEM_DEV": "16276",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "12500000000",
        "dovetail.dev/gpushare-devices": "n/gpushare-1,gpushare,4000,0:;;",
    }


def test_a_binding_says_what_gpu_manager_reads() -> None:
    source = pod(
        "p", container({}), container({CORE: 200}), container({CORE: 30, BLOCKS: 2}), initContainers=[container()]
    )
    written = annotations_of(source, vcuda_node(cores=400, blocks=16), (2, 3), (2, 0), (3, 2))
    assert written == {
        "tencent.com/predicate-gpu-idx-1": "0,3",  # containers are counted without init containers
        "tencent.com/predicate-gpu-idx-2": "2",
        "tencent.com/predicate-time": "12500000000",
        "tencent.com/predicate-node": "n",
        "tencent.com/gpu-assigned": "false",
        "dovetail.dev/vcuda-devices": ";;n/vcuda-3,vcuda,1024,100:n/vcuda-0,vcuda,1024,100:;n/vcuda-2,vcuda,512,30:;",
    }


def held(where: Object, *sources: Object) -> list[Any]:
    return [one.shares for one in read(where, *sources, settings=IN_MIB).running]


def test_pods_that_the_other_scheduler_placed_are_read_from_its_annotations() -> None:
    shared = pod("a", container({MEM: 4069}), meta={"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "1"}}, nodeName="n")
    assert held(share_node(), shared) == [(Share(0, "n/gpushare-1", 4069, 0),)]
    notes = {"tencent.com/predicate-gpu-idx-0": "1", "tencent.com/predicate-gpu-idx-1": "0"}
    ours = pod("b", container({CORE: 10, BLOCKS: 1}), container({CORE: 100}), meta={"annotations": notes}, nodeName="n")
    ((first, second),) = held(vcuda_node(), ours)
    assert first == Share(0, "n/vcuda-1", 256, 100)
    assert (second.container, second.uuid, second.compute_milli) == (1, "n/vcuda-0", 1000)


@pytest.mark.parametrize("text", ["-1", "x", "", "99999", "1,x", "0," * 100_000])
def test_an_index_that_is_none_leaves_the_card_unknown(text: str) -> None:
    shared = pod("a", container({MEM: 4069}), meta={"annotations": {"ALIYUN_COM_GPU_MEM_IDX": text}}, nodeName="n")
    assert held(share_node(), shared) == [None]


def test_what_gpu_manager_gave_counts_before_our_record() -> None:
    notes = {"tencent.com/predicate-gpu-idx-0": "1", "dovetail.dev/vcuda-devices": "n/vcuda-0,vcuda,1024,100:;"}
    for assigned, card in (("false", "n/vcuda-0"), ("true", "n/vcuda-1")):
        ours = {**notes, "tencent.com/gpu-assigned": assigned}
        ((share,),) = held(vcuda_node(), pod("a", container({CORE: 100}), meta={"annotations": ours}, nodeName="n"))
        assert share.uuid == card


def test_our_record_counts_before_the_plugins_annotations() -> None:
    notes = {"ALIYUN_COM_GPU_MEM_IDX": "1", "dovetail.dev/gpushare-devices": "n/gpushare-0,gpushare,4069,0:;"}
    shared = pod("a", container({MEM: 4069}), meta={"annotations": notes}, nodeName="n")
    assert held(share_node(), shared) == [(Share(0, "n/gpushare-0", 4069, 0),)]
