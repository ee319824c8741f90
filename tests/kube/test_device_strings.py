"""HAMi's device string both ways, and what a running pod holds by it (V13, V27, V29)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.conversion.assigned import AssignmentError, Entry, decode, encode
from dovetail.model.decision import Share
from tests.kube.manifests import ALLOCATED, CORES, GPU, MEM, Object, card, container, node, pod, read, said
from tests.properties import with_examples

UUIDS = st.text("abcdefGPU-0123456789/", min_size=1, max_size=12)
SHARES = st.builds(
    Share,
    container=st.integers(0, 3),
    uuid=UUIDS,
    memory_mib=st.integers(0, 2**31 - 1),
    compute_milli=st.integers(0, 100).map(lambda cores: cores * 10),
)


@given(st.lists(SHARES, max_size=6))
@with_examples(100)
def test_what_is_written_is_read_back(shares: list[Share]) -> None:
    segments = decode(encode(shares, 4, "NVIDIA"))
    back = [Share(i, e.uuid, e.memory_mib, e.cores * 10) for i, entries in enumerate(segments) for e in entries]
    assert len(segments) == 4
    assert back == sorted(shares, key=lambda share: share.container)


def test_v29_two_containers_with_a_card_each() -> None:
    text = "GPU-8d,NVIDIA,500,3:;GPU-eb,NVIDIA,500,3:;"
    assert decode(text) == ((Entry("GPU-8d", "NVIDIA", 500, 3),), (Entry("GPU-eb", "NVIDIA", 500, 3),))
    assert encode([Share(0, "GPU-8d", 500, 30), Share(1, "GPU-eb", 500, 30)], 2, "NVIDIA") == text


def test_v13_positions_are_strict() -> None:
    uuid1 = Share(1, "uuid1", 1000, 300)
    assert encode([uuid1], 3, "NVIDIA") == ";uuid1,NVIDIA,1000,30:;;"
    both = [uuid1, Share(2, "uuid1", 1000, 300)]
    assert encode(both, 3, "NVIDIA") == ";uuid1,NVIDIA,1000,30:;uuid1,NVIDIA,1000,30:;"
    assert [len(segment) for segment in decode(encode(both, 3, "NVIDIA"))] == [0, 1, 1]


@pytest.mark.parametrize(
    "text", ["uuid,type,100:;", "uuid,NVIDIA,x,3:;", "uuid,NVIDIA,1,-3:;", "hello;", "u,NVIDIA,1,9999999999:"]
)
def test_v29_broken_strings_are_errors(text: str) -> None:
    with pytest.raises(AssignmentError):
        decode(text)


def test_empty_containers_of_old_versions_and_after_allocation() -> None:
    assert decode(",,0,0:;GPU-a,NVIDIA,1,2:;") == ((), (Entry("GPU-a", "NVIDIA", 1, 2),))
    assert decode(";") == ((),)
    assert decode("") == ()


def shares(text: str, *containers: Object, **fields: Any) -> tuple[Share, ...] | None:
    source = pod("p", *containers, meta={"annotations": {ALLOCATED: text}}, nodeName="n", **fields)
    (running,) = read(source, node("n", card("GPU0"))).running
    return running.shares


@pytest.mark.parametrize("model", ["NVIDIA", "NVIDIA A100-SXM4-80GB"])
def test_a_running_pod_holds_what_the_annotation_says(model: str) -> None:
    asks = container({GPU: 1, MEM: 500, CORES: 3})
    source = pod("p", asks, meta={"annotations": {ALLOCATED: "GPU0,NVIDIA,500,3:;"}}, nodeName="n")
    (running,) = read(source, node("n", card("GPU0", model))).running
    assert (running.node, running.shares) == ("n", (Share(0, "GPU0", 500, 30),))


def test_segments_that_do_not_match_the_containers_still_add_up() -> None:
    two = "GPU0,NVIDIA,500,3:;GPU1,NVIDIA,500,3:;"
    init, asks = [container(name="a"), container(name="b")], container({GPU: 2, MEM: 500, CORES: 3}, name="x")
    held = shares(two, asks, initContainers=init)  # 2 segments, 3 containers: both on the app container
    assert held == (Share(2, "GPU0", 500, 30), Share(2, "GPU1", 500, 30))
    assert shares(two, asks) == (Share(0, "GPU0", 500, 30), Share(0, "GPU1", 500, 30))


def test_cards_that_were_not_asked_for_are_not_held() -> None:
    assert shares("GPU0,NVIDIA,500,3:;", container(name="x")) == ()


def test_v27_init_containers_that_ended_give_back_what_only_they_held() -> None:
    text = "GPU0,NVIDIA,20000,10:;GPU0,NVIDIA,10000,5:;"
    init = [container({GPU: 1, MEM: 20000, CORES: 10}, name="init")]
    app = container({GPU: 1, MEM: 10000, CORES: 5}, name="app")
    ended = {"initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0}}}]}
    failed = {"initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 1}}}]}
    both = (Share(0, "GPU0", 20000, 100), Share(1, "GPU0", 10000, 50))
    assert shares(text, app, initContainers=init) == both
    assert shares(text, app, initContainers=init, status=failed) == both
    assert shares(text, app, initContainers=init, status=ended) == both[1:]


def part(amount: int, name: str) -> Object:
    """A container that asks for so many MiB and per cent of one card."""
    return container({GPU: 1, MEM: amount, CORES: amount}, name=name)


def test_v27_a_sidecar_keeps_its_card() -> None:
    text = "GPU0,NVIDIA,1,1:;GPU0,NVIDIA,2,2:;GPU0,NVIDIA,3,3:;"
    init = [part(1, "init"), {**part(2, "side"), "restartPolicy": "Always"}]
    ended = {"initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0}}}]}
    held = shares(text, part(3, "app"), initContainers=init, status=ended)
    assert held == (Share(1, "GPU0", 2, 20), Share(2, "GPU0", 3, 30))


def test_a_broken_annotation_leaves_the_cards_unknown_and_says_so() -> None:
    source = pod("p", container({GPU: 1}), meta={"annotations": {ALLOCATED: "GPU0,NVIDIA;"}}, nodeName="n")
    result = read(source, node("n", card("GPU0")))
    assert result.running[0].shares is None
    (warning,) = said(result, "warning", ALLOCATED)
    assert warning.where == "m.json#1 Pod default/p"
