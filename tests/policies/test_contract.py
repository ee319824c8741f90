"""What CONTRIBUTING.md says that a policy must keep, for each row of the two tables: a new row is held to all of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.usage import usage
from dovetail.engine.why.explain import Look, verdicts
from dovetail.model.pod import Container, Profile
from dovetail.model.reason import Reason
from dovetail.policies.purposes import CARD_PURPOSES, NODE_PURPOSES, PURPOSES, Purpose
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES
from tests.builders import ask, card, cluster, group, node, pod
from tests.engine.compiled import check_compiled
from tests.engine.pictures import alone, made, picture, said, told
from tests.engine.test_choices import accepts, only_cards
from tests.engine.test_sameness import by_events
from tests.properties import with_examples
from tests.strategies import World, renamed, worlds

EVERY = [(name, "spread") for name in NODE_POLICIES] + [("binpack", name) for name in DEVICE_POLICIES]
checks = pytest.mark.parametrize(("node_policy", "gpu_policy"), EVERY, ids=lambda name: name)
few, fewer = with_examples(30), with_examples(15)
JOINT = [name for name, policy in NODE_POLICIES.items() if policy.offer is not None]
SEPARATE = [name for name in NODE_POLICIES if name not in JOINT]
# A kernel takes seconds to compile: as few pairs as have every policy in one of them.
PAIRS = [
    *zip_longest(SEPARATE, DEVICE_POLICIES, fillvalue="binpack"),
    *((name, "spread") for name in JOINT),
]
POLICIES_PAGE = Path(__file__).parents[2] / "docs" / "policies.md"


def profile(node_policy: str, gpu_policy: str) -> tuple[Profile, ...]:
    return (Profile(node_policy, (gpu_policy,)),)


def test_every_policy_has_its_name_and_a_sentence() -> None:
    for table in (NODE_POLICIES, DEVICE_POLICIES):
        for name, policy in table.items():
            assert policy.name == name
            assert policy.sentence.endswith(".")
            assert 20 <= len(policy.sentence) <= 110


@pytest.mark.parametrize(("table", "purposes"), [(NODE_POLICIES, NODE_PURPOSES), (DEVICE_POLICIES, CARD_PURPOSES)])
def test_every_policy_says_what_it_is_for(table: dict[str, Any], purposes: dict[str, Purpose]) -> None:
    assert table.keys() <= purposes.keys()
    for one in purposes.values():
        assert one.purpose in PURPOSES
        assert all(one)


@pytest.mark.parametrize("name", [*NODE_POLICIES, *DEVICE_POLICIES])
def test_it_is_mentioned_in_the_page_of_policies(name: str) -> None:
    text = POLICIES_PAGE.read_text(encoding="utf-8")
    assert f"| `{name}` |" in text
    assert f"**{name}**" in text


@contextmanager
def read_only(scheduler: Scheduler) -> Iterator[None]:
    """While it lasts, whoever writes to what policies may read fails."""
    state = scheduler.ledger.state()
    arrays: list[Any] = [*state.rows, *state.wants]
    for array in arrays:
        array.flags.writeable = False
    yield
    for array in arrays:
        array.flags.writeable = True


@checks
def test_scores_are_finite_and_looking_changes_nothing(node_policy: str, gpu_policy: str) -> None:
    @few
    @given(worlds(profiles=profile(node_policy, gpu_policy)))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        scheduler.place(world.groups[1:])
        before = picture(scheduler)
        for one in (world.groups[0].pods[0], pod("nothing", node_policy=node_policy, gpu_policy=gpu_policy)):
            seen = verdicts(scheduler, one)
            with read_only(scheduler):
                assert verdicts(scheduler, one) == seen
            for verdict in seen:
                assert (verdict.score is not None) == (verdict.reason == Reason.OK)
                assert verdict.score is None or math.isfinite(verdict.score)
        assert picture(scheduler) == before

    property_holds()


@checks
def test_decisions_repeat_and_ignore_the_order_of_nodes(node_policy: str, gpu_policy: str) -> None:
    @few
    @given(worlds(profiles=profile(node_policy, gpu_policy)))
    def property_holds(world: World) -> None:
        nodes = list(world.nodes)
        first = said(made(nodes).place(world.groups))
        assert said(made(nodes).place(world.groups)) == first
        world.chance.shuffle(nodes)
        assert said(made(nodes).place(world.groups)) == first
        assert said(made(nodes[::-1]).place(world.groups)) == first

    property_holds()


@checks
def test_no_card_is_taken_that_does_not_fit(node_policy: str, gpu_policy: str) -> None:
    @few
    @given(worlds(profiles=profile(node_policy, gpu_policy)))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        for one in alone(world.groups):
            before = {use.node.name: {c.device.uuid: c for c in use.cards} for use in usage(scheduler)}
            (decision,) = scheduler.place([one])
            if decision.node is None or not only_cards(one.pods[0]):
                continue
            (asked,) = (a for container in one.pods[0].containers for a in container.asks)
            cards = [share.uuid for share in decision.shares]
            assert len(set(cards)) == len(cards) == asked.count
            for uuid in cards:
                chosen = before[decision.node][uuid]
                assert accepts(chosen, asked, one.pods[0])
                assert gpu_policy != "mutex" or chosen.slots_used == 0
        audit.validate(scheduler.ledger)
        assert audit.over_allocated(scheduler.ledger) == []

    property_holds()


@checks
def test_kept_scores_are_fresh_scores(node_policy: str, gpu_policy: str) -> None:
    """Pods come, leave and come again; a scheduler that scores every node for each decision decides the same."""

    @fewer
    @given(worlds(profiles=profile(node_policy, gpu_policy)))
    def property_holds(world: World) -> None:
        keeping, forgetting = made(world.nodes), made(world.nodes)
        for n in range(3):
            for one in world.groups:
                again = [replace(one, pods=tuple(renamed(p, f"{p.name}-{n}") for p in one.pods))]
                forgetting.ledger.vectors.forget()
                kept = said(keeping.place(again))
                assert kept == said(forgetting.place(again))
                for uid in [uid for uid, where, _, _ in kept if where is not None and world.chance.random() < 0.5]:
                    keeping.ledger.release(uid)
                    forgetting.ledger.release(uid)
        assert picture(keeping) == picture(forgetting)

    property_holds()


@checks
def test_what_is_placed_and_released_or_undone_leaves_no_trace(node_policy: str, gpu_policy: str) -> None:
    """Neither in the books nor in what is decided afterwards."""

    @fewer
    @given(worlds(profiles=profile(node_policy, gpu_policy)))
    def property_holds(world: World) -> None:
        released, undone, untouched = told(world), made(world.nodes), made(world.nodes)
        empty = picture(released)
        released.ledger.release_all([d.uid for d in released.place(world.groups) if d.placed])
        with undone.ledger.transaction():
            undone.place(world.groups)
        assert picture(released) == picture(undone) == empty
        assert said(released.place(world.groups)) == said(told(world).place(world.groups))
        assert said(undone.place(world.groups)) == said(untouched.place(world.groups))

    property_holds()


@checks
def test_how_pods_are_bundled_does_not_matter(node_policy: str, gpu_policy: str) -> None:
    """All in one call, one by one, or as events; also while the outlook of a joint policy learns."""

    @fewer
    @given(worlds(pods=16, profiles=profile(node_policy, gpu_policy)))
    def property_holds(world: World) -> None:
        at_once, by_one, by_event = (made(world.nodes) for _ in range(3))
        decisions = said(at_once.place(world.groups))
        assert said([decision for one in world.groups for decision in by_one.place([one])]) == decisions
        assert said(by_events(by_event, world)) == decisions

    property_holds()


NORMALISED = [name for name, policy in NODE_POLICIES.items() if policy.normalise is not None]


@pytest.mark.parametrize("name", NORMALISED)
def test_final_scores_are_of_all_nodes_that_fit(name: str) -> None:
    """The best of the final scores is taken, the smallest name on ties. A policy that keeps the order does keep it."""
    policy = NODE_POLICIES[name]
    assert not policy.lowest_wins
    assert policy.offer is None or policy.keeps_order

    @few
    @given(worlds(profiles=profile(name, "spread")))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        scheduler.place(world.groups[1:])
        (one, *_) = alone(world.groups)
        look = Look(scheduler, one.pods[0])
        raw = {v.node: v.score for v in (look.node(look.ledger.nodes[row], row) for row in look.rows())}
        final = {v.node: v.score for v in verdicts(scheduler, one.pods[0]) if v.score is not None}
        if policy.keeps_order:
            ranked = sorted(final, key=lambda node: raw[node] or 0.0)
            assert [final[node] for node in ranked] == sorted(final.values())
        elif final and not scheduler.placer.needs_care(one):
            best = min(node for node in final if final[node] == max(final.values()))
            assert scheduler.place([one])[0].node == best

    property_holds()


@pytest.mark.parametrize("name", NODE_POLICIES)
def test_a_policy_that_needs_measurements_has_a_fallback_that_needs_none(name: str) -> None:
    policy = NODE_POLICIES[name]
    assert bool(policy.needs) == bool(policy.fallback)
    if policy.needs:
        assert policy.reads_signals
        assert not NODE_POLICIES[policy.fallback].needs


def test_every_policy_is_in_a_pair_that_is_compiled() -> None:
    assert {name for name, _ in PAIRS} == set(NODE_POLICIES)
    assert {name for _, name in PAIRS} == set(DEVICE_POLICIES)


@pytest.mark.slow
@pytest.mark.parametrize(("node_policy", "gpu_policy"), PAIRS)
def test_compiled_is_interpreted(node_policy: str, gpu_policy: str, keeps_kernels: bool) -> None:
    assert check_compiled(Profile(node_policy, (gpu_policy,)), keeps_kernels, 40) > 60


@checks
def test_whether_a_pod_fits_is_not_the_node_policys_business(node_policy: str, gpu_policy: str) -> None:
    """On the same ledger every node policy places a pod or none does."""

    @few
    @given(worlds(profiles=profile("first-fit", gpu_policy)))
    def property_holds(world: World) -> None:
        scheduler = made(world.nodes)
        scheduler.place(world.groups[1:])
        (one, *_) = alone(world.groups)
        other = replace(one.pods[0], profile=replace(one.pods[0].profile, node=node_policy))
        with scheduler.ledger.transaction():
            plain = scheduler.place([one])[0].placed
        with scheduler.ledger.transaction():
            assert scheduler.place([replace(one, pods=(other,))])[0].placed == plain

    property_holds()


@checks
def test_no_nodes_no_cards_no_request(node_policy: str, gpu_policy: str) -> None:
    wanted = pod("p", ask(1, 100), node_policy=node_policy, gpu_policy=gpu_policy)
    (decision,) = cluster().place([group(wanted)])
    assert (decision.node, decision.reason) == (None, Reason.NO_NODES)
    bare = cluster(node("bare"))
    (decision,) = bare.place([group(wanted)])
    assert (decision.node, decision.reason) == (None, Reason.UNREGISTERED)
    plain = pod("q", containers=[Container("c")], node_policy=node_policy, gpu_policy=gpu_policy)
    assert bare.place([group(plain)])[0].node == "bare"
    sizeless = cluster(node("n", card("a", 0, slots=1, compute_milli=0)))
    nothing = pod("r", ask(1, 0), node_policy=node_policy, gpu_policy=gpu_policy)
    assert sizeless.place([group(nothing)])[0].node == "n"
