"""What the live scheduler keeps is bounded by bytes and released, whatever clients and nodes send."""

from __future__ import annotations

import gc
import itertools
import json
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from dovetail.engine.kernel import build
from dovetail.engine.ledger import audit, intern, node_rows, remembered, requests
from dovetail.engine.ledger.node_rows import MOST_COLUMNS
from dovetail.engine.ledger.remembered import size_of
from dovetail.engine.rules import default_spread, node_columns, pod_counts
from dovetail.engine.scheduler import Scheduler
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live import reader as live_reader
from dovetail.kube.live.kept import OVERHEAD, Kept
from dovetail.kube.live.reader import MOST_TEMPLATE_BYTES, PodReader
from dovetail.kube.objects import core as objects
from dovetail.model import device
from dovetail.model.decision import Share
from dovetail.model.events import GroupArrived, NodeChanged, PodGone, PodObserved, SelectorChanged
from dovetail.model.node import Node
from dovetail.model.pod import Container, DeviceRules, Pod, Profile, RunningPod
from dovetail.model.relations import PodTerm, Relations, Selector, SpreadConstraint
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement
from tests.builders import ask, group
from tests.builders import card as model_card
from tests.builders import node as model_node
from tests.builders import pod as model_pod
from tests.kube.manifests import GPU, Object, card, container, node, pod

MIB = 1 << 20


def reader() -> PodReader:
    return PodReader({"dovetail": Settings()})


def source(annotations: dict[str, str], name: str = "p") -> objects.Pod:
    item = pod(name, container({GPU: "1"}), meta={"uid": name, "namespace": "d", "annotations": annotations})
    return msgspec.convert(item, objects.Pod)


def test_the_least_recently_used_make_way() -> None:
    value = "x" * 1000
    each = size_of(value) + OVERHEAD
    kept = Kept[str](32 * each, lambda: 100)
    for number in range(32):
        kept.put(b"%d" % number, value)
    assert (len(kept), kept.bytes) == (32, 32 * each)
    assert kept.get(b"0") == value  # used: 1 goes first
    kept.put(b"new", value * 2)
    assert [kept.get(key) is None for key in (b"0", b"1", b"2", b"3", b"new")] == [False, True, True, False, False]
    kept.put(b"new", value)
    assert (kept.get(b"new"), kept.bytes) == (value, 31 * each)  # 0, 3 … 31 and this one
    kept.put(b"large", value * 3)  # more than a sixteenth of the room
    assert kept.get(b"large") is None


def test_a_cache_holds_more_where_more_pods_exist() -> None:
    pods = 40
    kept = Kept[str](MIB, lambda: pods)
    for number in range(100):
        kept.put(b"%d" % number, "x")
    assert len(kept) == 40
    pods = 30
    kept.put(b"new", "x")
    assert (len(kept), kept.get(b"70"), kept.get(b"71")) == (30, None, "x")


def test_the_size_of_a_value_is_that_of_everything_in_it() -> None:
    """Classes and enumerations are there once, whatever is kept."""
    assert sys.getsizeof("ab") <= size_of("ab") <= sys.getsizeof("ab") + 16
    names = tuple(f"name-{number}" for number in range(100))
    whole = sys.getsizeof((0, 0)) + sys.getsizeof(names) + sum(map(sys.getsizeof, names))
    assert whole <= size_of((names, names)) <= whole + 16 * 100
    assert size_of(model_pod("p", ask())) < 20_000


def few_annotations(number: int) -> Object:
    return annotated({"nvidia.com/use-gputype": f"A{number}", "nvidia.com/use-gpuuuid": f"GPU-{number}"})


def many_short_values(number: int) -> Object:
    """4,000 values of three characters, of which each is an object of 60 bytes."""
    values = [f"{number % 10}{n:02x}" for n in range(4_000)]
    rule = {"matchExpressions": [{"key": f"k{number}", "operator": "NotIn", "values": values}]}
    term = {"topologyKey": "zone", "labelSelector": rule}
    required = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {**annotated({}), "spec": {"containers": [container({GPU: "1"})], "affinity": required}}


def many_problems(number: int) -> Object:
    """50 containers with 10 requests each that have no limit. Each is a message of 200 characters."""
    requests = {"requests": {f"x.io/{number}-{n}": "1" for n in range(10)}}
    made = [{"name": f"c{n}", "image": "i", "resources": requests} for n in range(50)]
    return {**annotated({}), "spec": {"containers": made}}


def annotated(annotations: dict[str, str]) -> Object:
    return pod("p", container({GPU: "1"}), meta={"uid": "p", "namespace": "d", "annotations": annotations})


@pytest.mark.parametrize(("made", "times"), [(few_annotations, 3_000), (many_short_values, 60), (many_problems, 60)])
def test_templates_that_all_differ_take_the_memory_that_is_stated(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[int], Object], times: int
) -> None:
    """The length of a template's source was counted: 32 MiB of templates could take 150 MiB, or 1 GiB."""
    most = 8 * MIB
    monkeypatch.setattr(live_reader, "MOST_TEMPLATE_BYTES", most)
    read = reader()
    sources = [msgspec.convert(made(number), objects.Pod) for number in range(times)]
    read.pod(sources[0])
    tracemalloc.start()
    for item in sources:
        read.pod(item)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(read._templates) > 10
    assert read._templates.bytes > most // 2
    assert taken < most


def test_replicas_share_what_is_read_of_them() -> None:
    read = reader()
    first, second = (read.pod(source({"nvidia.com/use-gputype": "A100"}, name)).pod for name in ("a", "b"))
    assert first.containers is second.containers
    other = read.pod(source({"nvidia.com/use-gputype": "H100"})).pod
    assert other.device_rules != first.device_rules


def test_patches_of_a_large_annotation_are_not_kept() -> None:
    """100 × 240 kB were 24 MB of keys alone, and what was read of them as much."""
    read, most = reader(), 0
    read.pod(source({"hami.io/note": "x"}))
    tracemalloc.start()
    for number in range(50):
        for key in ("hami.io/note", "nvidia.com/use-gputype"):
            read.pod(source({key: f"{number}," + "x" * 240_000}))
        most = max(most, tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert most < 8 * MIB
    assert read._templates.bytes <= MOST_TEMPLATE_BYTES


def test_interpreted_kernels_of_ever_new_chains_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten GPU policies make 5,860 chains, with each node policy: 20 kB a pair were kept for good."""
    monkeypatch.setattr(build, "MAX_INTERPRETED", 8)
    names = ("binpack", "spread", "mutex", "numa", "topology-aware", "first-fit")
    pairs = [Profile("binpack", chain) for chain in itertools.permutations(names, 3)]
    interpreter, first = build.Builder(compiled=False), pairs[0]
    kept = interpreter.kernel(first)
    most = 0
    for profile in pairs:
        interpreter.lens(profile)
        assert interpreter.kernel(profile) is interpreter.kernel(profile)
        most = max(most, len(interpreter._made) + len(interpreter._before))
    assert len(pairs) == 120
    assert len(interpreter.kernels) <= 8
    assert most <= 2 * 8 * 20  # functions of a pair; all 120 pairs have 900
    again = interpreter.kernel(first)
    assert again is not kept
    assert np.array_equal(again.style, kept.style)


def registering(number: int, name: str = "bad") -> Object:
    return node(name, *(card(f"GPU-{number}-{n}", f"NVIDIA M{number}-{n}") for n in range(256)))


def renewed(number: int, cards: int = 64) -> Node:
    """A node with cards that were never there, each of a model of its own."""
    made = (model_card(f"GPU-{number}-{n}", index=n, model=f"NVIDIA M{number}-{n}") for n in range(cards))
    return model_node("bad", *made)


def test_a_node_that_registers_ever_new_cards() -> None:
    """Each time its UUIDs, its models and its half MiB of hardware were kept. Tables reach their size in 64 events."""
    scheduler = Scheduler(mode="interpreted")
    scheduler.handle(NodeChanged(0.0, model_node("wide", gpus=256)))
    tracemalloc.start()
    for number in range(200):
        scheduler.handle(NodeChanged(0.0, renewed(number)))
        if number == 130:
            before = tracemalloc.get_traced_memory()[0]
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after < before + MIB  # it was 0.6 MiB a time: 42 MiB
    assert len(scheduler.intern.kinds) <= 64 * 65 + 1  # what 64 events bring, and what is there
    audit.validate(scheduler.ledger)


def test_many_models_are_not_many_kinds() -> None:
    """All of one model are read; of 256 models those of the first 16."""
    read = reader()
    assert len(read.node(msgspec.convert(registering(0), objects.Node))[0].node.devices) == 16
    same = node("good", *(card(f"GPU-{n}") for n in range(256)))
    assert len(read.node(msgspec.convert(same, objects.Node))[0].node.devices) == 256


def test_long_lists_of_types_are_split_once_and_not_for_each_kind_of_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 types against 16,000 kinds took more than 150 s: 16 million times two regular expressions."""
    splits: list[str] = []
    tokens = device.type_tokens

    def counted(text: str) -> tuple[str, ...]:
        splits.append(text)
        return tokens(text)

    monkeypatch.setattr(device, "type_tokens", counted)
    scheduler = Scheduler(mode="interpreted")
    for number in range(4):
        scheduler.handle(NodeChanged(0.0, renewed(number)))
    for number in range(3):
        rules = DeviceRules("NVIDIA", use_types=tuple(f"X{number}-{n}" for n in range(1_000)))
        scheduler.handle(GroupArrived(0.0, group(model_pod(f"p{number}", ask(), rules=rules))))
    scheduler.handle(NodeChanged(0.0, renewed(5)))
    assert len(scheduler.waiting) == 3
    assert len(splits) <= 3 * 1_000 + 5 * 64  # each entry and each model once


def test_cards_that_only_pods_speak_of_have_a_bound() -> None:
    """Each is a column of every node: 20 × 250 UUIDs of pods that somebody put on the node are not 5,000 columns."""
    scheduler = Scheduler(mode="interpreted")
    scheduler.handle(NodeChanged(0.0, model_node("a", gpus=8)))
    for number in range(20):
        claims = model_pod(f"p{number}", ask(250, 1))
        shares = tuple(Share(0, f"GPU-{number}-{n}", 1, 0) for n in range(250))
        scheduler.handle(PodObserved(0.0, RunningPod(claims, "a", shares)))
    assert scheduler.ledger.rows.card.shape[1] <= MOST_COLUMNS
    audit.validate(scheduler.ledger)
    for number in range(20):
        scheduler.handle(PodGone(0.0, f"uid-p{number}"))
    audit.validate(scheduler.ledger)


def test_pair_scores_take_room_where_nodes_state_them() -> None:
    """256 × 256 scores of 8 bytes were half a MiB for every node of the cluster."""
    scheduler = Scheduler(mode="interpreted")
    for number in range(3):
        scheduler.handle(NodeChanged(0.0, model_node(f"n{number}", gpus=2, links=((0, 5), (5, 0)))))
    scheduler.handle(NodeChanged(0.0, model_node("wide", gpus=256)))
    assert scheduler.ledger.rows.link.shape[1:] == (2, 2)


def test_questions_about_other_pods_make_way_and_are_answered_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each term that a tenant thinks up is a question. All were kept on a small cluster."""
    monkeypatch.setattr(pod_counts, "MAX_CENSUSES", 16)
    scheduler = Scheduler(mode="interpreted")
    scheduler.handle(NodeChanged(0.0, model_node("a", gpus=8)))
    for number in range(3):
        scheduler.handle(PodObserved(0.0, RunningPod(model_pod(f"p{number}"), "a", ())))
    neighbours = scheduler.related.neighbours
    for number in range(200):
        others = Selector((), (Requirement(f"key-{number}", "NotIn", ("x",)),))
        question = pod_counts.Question((pod_counts.Sought((model_pod("p").namespace,), None, others),))
        assert neighbours.count(question).tolist() == [3]
    assert len(neighbours._censuses) == 16


def test_questions_that_no_pod_asks_any_more_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many changes, an answer is counted anew anyway. 512 of them were kept, however few pods there were."""
    monkeypatch.setattr(pod_counts, "MAX_LOGGED", 40)
    scheduler = Scheduler(mode="interpreted")
    scheduler.handle(NodeChanged(0.0, model_node("a", gpus=8)))
    neighbours = scheduler.related.neighbours

    def ask_about(key: str) -> int:
        others = Selector((), (Requirement(key, "NotIn", ("x",)),))
        question = pod_counts.Question((pod_counts.Sought((model_pod("p").namespace,), None, others),))
        return int(neighbours.count(question).sum())

    for number in range(100):
        assert ask_about(f"key-{number}") == 0
    assert len(neighbours._censuses) == 100
    for number in range(50):
        scheduler.handle(PodObserved(0.0, RunningPod(model_pod(f"p{number}"), "a", ())))
    assert ask_about("key-0") == 50
    assert ask_about("new") == 50
    assert len(neighbours._censuses) == 2


@pytest.mark.parametrize("pods", [10, 300])
def test_requests_are_remembered_for_twice_as_many_pods_as_exist(monkeypatch: pytest.MonkeyPatch, pods: int) -> None:
    """20,000 were remembered on any cluster: a small one filled these tables over hours with pods that are gone."""
    monkeypatch.setattr(remembered, "LEAST_REMEMBERED", 100)
    scheduler = Scheduler(mode="interpreted")
    scheduler.handle(NodeChanged(0.0, model_node("a", gpus=8)))
    for number in range(pods):
        scheduler.handle(PodObserved(0.0, RunningPod(model_pod(f"p{number}"), "a", ())))
    for number in range(1_500):
        arrives = replace(model_pod(f"n{number}"), containers=(Container(f"c{number}"),))  # a template, no shape
        scheduler.handle(GroupArrived(0.0, group(arrives)))
        scheduler.handle(PodGone(0.0, arrives.uid))
    for kept in (scheduler.requests._signatures, scheduler.intern.templates):
        assert 100 + 2 * pods - 64 <= len(kept) <= 100 + 2 * pods + 64  # they are looked at after 64 events


def test_uuids_that_a_pod_named_go_with_the_pod_though_its_request_is_remembered() -> None:
    """`snug` counts requests. 4,096 of them with 256 UUIDs each were a million names."""
    scheduler = Scheduler(mode="interpreted")
    scheduler.handle(NodeChanged(0.0, model_node("a", gpus=8)))
    for number in range(300):
        rules = DeviceRules("NVIDIA", nouse_uuids=tuple(f"GPU-{number}-{n}" for n in range(50)))
        asking = model_pod(f"p{number}", ask(1, 100), rules=rules, node_policy="snug")
        scheduler.handle(GroupArrived(0.0, group(asking)))
        scheduler.handle(PodGone(0.0, asking.uid))
    assert len(scheduler.outlook.shapes) == 1
    assert len(scheduler.intern.uuids) <= 2 * 64 * 50 + 16  # what 64 events bring, twice, and the cards


VALUES = 1_000


def many_containers(number: int) -> Pod:
    """All have the same shape: only the names of the containers differ."""
    return replace(model_pod("p"), containers=tuple(Container(f"c-{number}-{n}") for n in range(VALUES)))


def many_values_of_nodes(number: int) -> Pod:
    rule = Requirement("zone", "NotIn", tuple(f"{number}-{n}" for n in range(VALUES)))
    return replace(model_pod("p"), node_rules=NodeRules(affinity=(AffinityTerm((rule,)),)))


def many_values_of_pods(number: int) -> Pod:
    others = Selector((), (Requirement("app", "NotIn", tuple(f"{number}-{n}" for n in range(VALUES))),))
    return replace(model_pod("p"), relations=Relations(anti_affinity=(PodTerm("zone", others, ("default",)),)))


def spread_over_chosen_nodes(number: int) -> Pod:
    constraint = SpreadConstraint("zone", 1, True, Selector())
    return replace(many_values_of_nodes(number), relations=Relations(spread=(constraint,)))


def many_labels_of_a_service(number: int) -> Pod:
    labels = {"app": "web"} | {f"l-{number}-{n}": "x" for n in range(VALUES)}
    return replace(model_pod("p"), labels=labels, profile=Profile(default_spread=True))


@pytest.mark.parametrize(
    "made",
    [
        many_containers,
        many_values_of_nodes,
        many_values_of_pods,
        spread_over_chosen_nodes,
        many_labels_of_a_service,
    ],
)
def test_large_requests_of_pods_that_are_gone_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[int], Pod]
) -> None:
    """Caches of the engine had limits on entries: 20,000 requests with 256 containers each took more than 1 GiB."""
    for module, limit in (
        (intern, "MOST_REMEMBERED_BYTES"),
        (requests, "MOST_REMEMBERED_BYTES"),
        (node_rows, "SWEEP_RULES_FROM"),
        (pod_counts, "MOST_BYTES"),
        (node_columns, "MAX_NODE_FACT_BYTES"),
        (default_spread, "MAX_CONSTRAINT_BYTES"),
    ):
        monkeypatch.setattr(module, limit, MIB // 2)
    scheduler = Scheduler(mode="interpreted")
    scheduler.handle(NodeChanged(0.0, model_node("a", gpus=8, labels={"zone": "x"})))
    scheduler.handle(SelectorChanged(0.0, "Service", "default", "web", Selector((("app", "web"),))))

    def come_and_go(first: int, last: int) -> None:
        for number in range(first, last):
            arrives = replace(made(number), name=f"p{number}", uid=f"u{number}", namespace="default")
            scheduler.handle(GroupArrived(0.0, group(arrives)))
            scheduler.handle(PodGone(0.0, arrives.uid))

    come_and_go(0, 2)
    tracemalloc.start()
    come_and_go(2, 300)  # 70 kB each and more: 20 MiB
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 6 * MIB  # what 64 events bring, until unused rules are looked for, and half a MiB for each cache
    audit.validate(scheduler.ledger)


def test_json_of_a_register_is_small_enough() -> None:
    assert len(json.dumps(registering(0))) < 262_144  # so that the tests above are about cards, not about length
