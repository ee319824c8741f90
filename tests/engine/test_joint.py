"""Policies that choose node and cards together keep to everything the others keep to, also while they learn."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.kernel.book import note_all_cards
from dovetail.engine.kernel.fit import card_fits, card_refusal
from dovetail.engine.kernel.joint import alike_cards_that_fit, cards_that_fit
from dovetail.engine.kernel.state import STYLE_FIELDS, UNLIMITED
from dovetail.engine.ledger import audit
from dovetail.engine.ledger.intern import NO_OWNER
from dovetail.engine.ledger.stream import Stream
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.decision import Share
from dovetail.model.device import Device
from dovetail.model.node import Node
from dovetail.model.pod import DeviceAsk, DeviceRules, Group, Profile, Quota
from dovetail.policies.rows import ASK_VENDOR, CARD_VENDOR, CARDS, FIRST_ASK
from dovetail.policies.table import NODE_POLICIES
from tests.builders import ask, card, cluster, node, place, pod
from tests.engine.pictures import alone, made, picture, said, told
from tests.engine.test_sameness import by_events
from tests.properties import with_examples
from tests.strategies import CHAINS, JOINT_POLICIES, JOINT_PROFILES, World, quotas, renamed, seeds, some_ask, worlds

MIXED = (*JOINT_PROFILES, *JOINT_PROFILES, Profile("binpack"), Profile("spread-replicas", ("numa", "binpack")))
some = with_examples(100)


@some
@given(worlds(pods=30, profiles=MIXED))
def test_how_pods_are_bundled_does_not_matter_while_the_outlook_learns(world: World) -> None:
    """All in one call, in calls of three groups, one by one, or as events."""
    at_once, in_threes, by_one, by_event = (made(world.nodes) for _ in range(4))
    decisions = said(at_once.place(world.groups))
    threes = [world.groups[n : n + 3] for n in range(0, len(world.groups), 3)]
    assert said([d for part in threes for d in in_threes.place(part)]) == decisions
    assert said([d for group in world.groups for d in by_one.place([group])]) == decisions
    assert said(by_events(by_event, world)) == decisions
    assert picture(at_once) == picture(in_threes) == picture(by_one) == picture(by_event)


@some
@given(worlds(profiles=MIXED), st.integers(1, 5), st.integers(1, 40))
def test_a_stream_may_be_cut_anywhere_while_the_outlook_learns(world: World, copies: int, cut: int) -> None:
    templates = [pod for group in world.groups for pod in group.pods]
    kinds = np.array([n for _ in range(copies) for n in range(len(templates))], dtype=np.int64)
    stream = Stream(templates, kinds, [f"stream-{n}" for n in range(len(kinds))])
    at_once, in_two, as_list = (made(world.nodes) for _ in range(3))
    decisions = said(at_once.place(stream))
    assert said([*in_two.place(stream[:cut]), *in_two.place(stream[cut:])]) == decisions
    assert said(as_list.place(list(stream))) == decisions
    assert picture(at_once) == picture(in_two) == picture(as_list)


@some
@given(worlds(pods=24, profiles=MIXED))
def test_kept_scores_are_fresh_scores(world: World) -> None:
    """Also after pods left, and across changes of the outlook."""
    keeping, forgetting = made(world.nodes), made(world.nodes)
    chance = world.chance
    placed: list[str] = []
    for group in (*world.groups, *world.groups):
        pods = tuple(renamed(pod, f"{pod.name}-{len(placed)}-{chance.random()}") for pod in group.pods)
        one = [replace(group, pods=pods)]
        forgetting.ledger.vectors.forget()
        kept = keeping.place(one)
        assert said(kept) == said(forgetting.place(one))
        placed += [decision.uid for decision in kept if decision.placed]
        if placed and chance.random() < 0.5:
            gone = placed.pop(chance.randrange(len(placed)))
            keeping.ledger.release(gone)
            forgetting.ledger.release(gone)
    assert picture(keeping) == picture(forgetting)
    audit.validate(keeping.ledger)


@some
@given(worlds(profiles=MIXED), st.integers(0, 8))
def test_what_is_tried_and_undone_leaves_no_trace(world: World, stay: int) -> None:
    """Neither in the books nor in what is decided later."""
    tried, untouched = made(world.nodes), made(world.nodes)
    pods = alone(world.groups)
    for scheduler in (tried, untouched):
        scheduler.place(pods[:stay])
    before = picture(tried)
    with tried.ledger.transaction():
        tried.place(world.groups if not stay else pods[stay:])
        for uid in list(tried.ledger.pods)[::2]:
            tried.ledger.release(uid)
    audit.validate(tried.ledger)
    assert picture(tried) == before
    assert said(tried.place(pods[stay:])) == said(untouched.place(pods[stay:]))


@some
@given(worlds(profiles=MIXED), quotas)
def test_nothing_is_over_allocated_and_the_books_balance(world: World, quota: tuple[Quota, ...]) -> None:
    """Also under a quota, with several containers, init containers and NUMA binding."""
    for limits in ((), quota):
        scheduler = made(world.nodes, quotas=limits)
        for group in world.groups:
            scheduler.place([group])
            audit.validate(scheduler.ledger)
        assert audit.over_allocated(scheduler.ledger) == []


@some
@given(worlds(profiles=JOINT_PROFILES), st.sampled_from(CHAINS))
def test_a_gpu_policy_beside_a_joint_one_changes_nothing(world: World, chain: tuple[str, ...]) -> None:
    other = [
        replace(group, pods=tuple(replace(pod, profile=replace(pod.profile, device=chain)) for pod in group.pods))
        for group in world.groups
    ]
    assert said(made(world.nodes).place(world.groups)) == said(made(world.nodes).place(other))


def twins(nodes: tuple[Node, ...]) -> list[Node]:
    """Each node three times, under other names: idle ones of equal hardware are looked at once."""
    return [
        replace(
            one,
            name=f"{one.name}{letter}",
            devices=tuple(msgspec.structs.replace(device, uuid=f"{device.uuid}{letter}") for device in one.devices),
            labels={**one.labels, "kubernetes.io/hostname": f"{one.name}{letter}"},
        )
        for one in nodes
        for letter in "abc"
    ]


@some
@given(worlds(nodes=8, pods=30, profiles=MIXED))
def test_nodes_of_equal_hardware_are_judged_each_by_itself(world: World) -> None:
    """Explanations look at every node; the kernel takes the best of them, the smallest name on ties."""
    several = world._replace(nodes=tuple(twins(world.nodes)))
    scheduler = told(several)
    for group in alone(several.groups):
        (pod,) = group.pods
        sign = -1.0 if NODE_POLICIES[pod.profile.node].lowest_wins else 1.0
        fitting = [v for v in verdicts(scheduler, pod) if v.score is not None]
        (decision,) = scheduler.place([group])
        best = min(fitting, key=lambda v: (-sign * (v.score or 0.0), v.node), default=None)
        assert decision.node == (None if best is None else best.node)


joint = pytest.mark.parametrize("policy", JOINT_POLICIES)


@joint
def test_all_cards_of_a_numa_bound_pod_come_from_one_numa_node(policy: str) -> None:
    cards = [card(f"g{n}", index=n, numa=n % 2) for n in range(4)]
    bound = DeviceRules("NVIDIA", numa_bind=True)
    scheduler = cluster(node("n", *cards))
    ((_, taken),) = place(scheduler, pod("p", ask(2, 6000), node_policy=policy, rules=bound))
    assert set(taken) in ({"g0", "g2"}, {"g1", "g3"})
    ((_, rest),) = place(scheduler, pod("q", ask(2, 6000), node_policy=policy, rules=bound))
    assert {*taken, *rest} == {"g0", "g1", "g2", "g3"}
    assert place(scheduler, pod("r", ask(2, 6000), node_policy=policy, rules=bound)) == [(None, ())]


@joint
def test_containers_of_a_pod_see_what_those_before_them_took(policy: str) -> None:
    """Two containers of 5,000 MiB do not go on one card of 8,000, and a third finds none."""
    scheduler = cluster(node("n", gpus=2))
    two = pod("p", ask(1, 5000), ask(1, 5000), node_policy=policy)
    ((where, taken),) = place(scheduler, two)
    assert (where, set(taken)) == ("n", {"n/0", "n/1"})
    assert place(scheduler, pod("q", ask(1, 3000), ask(1, 3000), ask(1, 3000), node_policy=policy)) == [(None, ())]


@joint
def test_asked_cards_of_an_unknown_size_and_of_several_sizes(policy: str) -> None:
    """Nobody stumbles over cards of 0 MiB, nor over a node with cards of two kinds."""
    mixed = node("m", card("a", model="NVIDIA A100"), card("t", memory=3, index=1, model="NVIDIA T4"))
    scheduler = cluster(mixed, node("z", card("zero", memory=0)))
    pods = [pod(f"p{n}", ask(1, memory), node_policy=policy) for n, memory in enumerate((0, 1, 1, 1, 1, 4000, 0))]
    assert all(where is not None for where, _ in place(scheduler, *pods))
    audit.validate(scheduler.ledger)
    assert audit.over_allocated(scheduler.ledger) == []


@joint
def test_all_memory_of_an_overcommitted_card_that_has_a_tenant(policy: str) -> None:
    """2,000 compute: a tenant with 100 and no memory leaves 1,900 and all 4,000 MiB, though the card is not idle."""
    scheduler = cluster(node("n", card("g", 4000, compute_milli=2000)))
    first = pod("p", DeviceAsk("NVIDIA", 1, 0, None, 100), node_policy=policy)
    second = pod("q", DeviceAsk("NVIDIA", 1, 0, 100, 1000), node_policy=policy)
    decisions = scheduler.place([Group(one.key, (one,)) for one in (first, second)])
    assert [one.shares for one in decisions] == [(Share(0, "g", 0, 100),), (Share(0, "g", 4000, 1000),)]
    ledger = scheduler.ledger
    assert [ledger.shares(ledger.pods[one.uid].slot) for one in (first, second)] == [d.shares for d in decisions]
    assert ledger.rows.held[0, 0].tolist() == [2, 4000, 1100]
    audit.validate(ledger)
    assert audit.over_allocated(ledger) == []


# ---- the short ways to tell which cards fit, against the long one

A100, T4 = ("NVIDIA", "NVIDIA A100", "hami-core"), ("NVIDIA", "NVIDIA T4", "hami-core")
SOME_KINDS = [A100, A100, A100, T4, T4, ("NVIDIA", "NVIDIA T4", "mig"), ("AMD", "AMD MI300X", "hami-core")]
TYPES = (
    None,
    None,
    None,
    DeviceRules("NVIDIA", use_types=("A100",)),
    DeviceRules("NVIDIA", nouse_types=("A100",)),
    DeviceRules("NVIDIA", mode="hami-core"),
)
UUIDS = (
    DeviceRules("NVIDIA", use_uuids=("n/0", "n/2")),
    DeviceRules("NVIDIA", nouse_uuids=("n/0", "n/1")),
    DeviceRules("NVIDIA", use_uuids=("n/1", "n/3"), nouse_uuids=("n/1",)),
)


def some_cards(chance: Random, kinds: list[tuple[str, str, str]]) -> list[Device]:
    """One to four cards of these vendors, models and modes; of any size, and now and then out of use."""
    cards = []
    for n in range(chance.randint(1, 4)):
        vendor, model, mode = chance.choice(kinds)
        memory, compute = chance.choice((0, 3, 4000, 4000, 8000)), chance.choice((0, 1000, 1000, 2000, 2000))
        slots, way = chance.choice((1, 2, 10, 10, 10)), chance.random()
        facts = {"vendor": vendor, "model": model, "mode": mode, "slots": slots, "compute_milli": compute}
        cards.append(card(f"n/{n}", memory, n, healthy=way > 0.05, cordoned=0.05 < way < 0.1, **facts))
    return cards


def worn(chance: Random, cards: list[Device]) -> Scheduler:
    """One node; of each card nothing is held, or something, or all, or more than there is."""
    scheduler = cluster(node("n", *cards))
    rows = scheduler.ledger.rows
    for d, one in enumerate(cards):
        slots, size, total = chance.choice((0, 0, 1, 1, 1, 1, one.slots)), one.memory_mib, one.compute_milli
        if slots:
            memory = chance.choice((0, 0, 0, 1, size // 2, size, size + 1))
            compute = chance.choice((0, 0, 1, 100, 500, total - 1, total, total + 1)) if total else 0
            rows.held[0, d] = slots, memory, compute
    note_all_cards(rows, 0)
    return scheduler


@with_examples(1000)
@given(seeds, st.booleans())
def test_the_short_ways_to_tell_which_cards_fit_say_what_the_long_one_says(seed: int, one_kind: bool) -> None:
    """Any memory and compute held, percentages, overcommit, slots, cards out of use; one kind of card, or several."""
    chance = Random(seed)
    kinds = chance.sample(SOME_KINDS, 1) if one_kind else SOME_KINDS
    scheduler = worn(chance, some_cards(chance, kinds))
    rules = chance.choice(TYPES if one_kind else TYPES + UUIDS)
    s = scheduler.intern.shape(pod("p", some_ask(chance), rules=rules), NO_OWNER)
    rows, wants = scheduler.ledger.rows, scheduler.ledger.state().wants
    a, fit = int(wants.shape[s, FIRST_ASK]), []
    for d in range(rows.fact[0, CARDS]):
        for idle_only in (1, 0):
            code = card_refusal(rows, wants, 0, d, a, rows.held[0], idle_only, UNLIMITED, UNLIMITED)
            assert card_fits(rows, wants, 0, d, a, idle_only) == (code == 0)
        if code == 0 and rows.card[0, d, CARD_VENDOR] == wants.ask[a, ASK_VENDOR]:
            fit.append(d)
    found = np.zeros(4, dtype=np.int64)
    got = cards_that_fit(rows, wants, 0, a, np.zeros(STYLE_FIELDS, dtype=np.int64), found)
    assert found[:got].tolist() == fit
    if one_kind:
        got = alike_cards_that_fit(rows, wants, 0, a, found)
        assert found[:got].tolist() == fit
