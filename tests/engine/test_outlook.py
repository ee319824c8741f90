"""What joint policies expect to come: learned from the pods that came, or told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.engine import outlook as module
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.events import GroupArrived, NodeChanged, PodGone
from dovetail.model.pod import DeviceRules, Pod
from dovetail.model.relations import Preferences
from dovetail.model.rules import AffinityTerm, Requirement
from dovetail.policies.outlook import TOTAL, usable
from tests.builders import ask, card, cluster, group, node, place, pod, use

HALF, WHOLE = ask(1, 4000), ask(1, percent=100, cores=100)


def half(n: int, **facts: object) -> Pod:
    return pod(f"half-{n}", HALF, node_policy="fgd", **facts)  # type: ignore[arg-type]


def whole(n: int, **facts: object) -> Pod:
    return pod(f"whole-{n}", WHOLE, node_policy="fgd", **facts)  # type: ignore[arg-type]


def roomy(**options: Any) -> Scheduler:
    return cluster(node("n", gpus=100, cpu=10**6), **options)


def total(scheduler: Scheduler) -> int:
    """Pods that the tables are made of."""
    return int(scheduler.ledger.rows.outlook[TOTAL])


def expected(scheduler: Scheduler, kind: int = 0) -> tuple[int, int]:
    """How many typical pods ask for half a card of this kind, and how many for a whole one."""
    tables = scheduler.ledger.rows.outlook
    of_a_half = usable(tables, kind, 10**6, np.array([500]), 1) // 500
    return of_a_half, usable(tables, kind, 10**6, np.array([1000]), 1) // 1000 - of_a_half


def test_the_tables_are_made_again_when_the_number_of_pods_has_doubled() -> None:
    scheduler, seen = roomy(), []
    for n in range(20):
        place(scheduler, half(n))
        seen.append(total(scheduler))
    assert seen == [1, 2, 2, 4, 4, 4, 4, *[8] * 8, *[16] * 5]


def test_a_pod_that_finds_no_place_was_asked_for_all_the_same() -> None:
    scheduler = cluster(node("n", gpus=1))
    place(scheduler, whole(0), whole(1), half(0), half(1))
    assert expected(scheduler) == (2, 2)
    for uid in list(scheduler.ledger.pods):
        scheduler.handle(PodGone(1.0, uid))  # whoever waited is tried again, and not counted again
    place(scheduler, half(2), half(3), half(4), half(5))
    assert expected(scheduler) == (6, 2)


def test_a_gang_comes_as_a_whole() -> None:
    scheduler = roomy()
    scheduler.place([group(half(0), half(1), half(2))])
    assert total(scheduler) == 3
    scheduler.place([group(half(3), half(4), half(5), half(6))])
    assert total(scheduler) == 7  # the next look back would have been at 6


def test_what_came_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 2 × 4 pods on, what is known counts half from one look back to the next, four pods later."""
    monkeypatch.setattr(module, "FORGET_FROM", 4)
    scheduler = roomy()
    place(scheduler, *(whole(n) for n in range(8)))
    assert expected(scheduler) == (0, 8)
    seen = []
    for n in range(4):
        place(scheduler, *(half(4 * n + m) for m in range(4)))
        seen.append(expected(scheduler))
    # 8/2 + 0 and 0 + 4; then 4/2 and 4/2 + 4; 2/2 and 6/2 + 4; ⌈1/2⌉ and ⌈7/2⌉ + 4
    assert seen == [(4, 4), (6, 2), (7, 1), (8, 1)]


def test_however_many_different_requests_come_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 4: of 1,000 different ones 2 × 4 are counted, and 4 more until the next look back."""
    monkeypatch.setattr(module, "MOST_SHAPES", 4)
    scheduler, most = roomy(), 0
    for n in range(1_000):
        place(scheduler, pod(f"p-{n}", ask(1, 1 + n), node_policy="fgd"))
        most = max(most, len(scheduler.outlook.shapes))
    assert most <= 3 * 4
    place(scheduler, *(half(n) for n in range(8)))
    assert expected(scheduler)[0] > 0  # a request that comes again and again is known soon


def test_what_runs_when_the_first_joint_pod_comes_is_known() -> None:
    scheduler = roomy()
    for n in range(5):
        use(scheduler, "n", f"n/{n}", 1, 4000, 0)
    place(scheduler, whole(0))
    assert expected(scheduler) == (5, 1)
    place(scheduler, *(whole(n) for n in range(1, 6)))
    assert expected(scheduler) == (5, 1)  # until there are twice as many
    place(scheduler, whole(6))
    assert expected(scheduler) == (5, 7)


def test_pods_of_other_policies_count_from_the_first_joint_one_on() -> None:
    """Before, nothing is counted: whoever does not use joint policies does not pay for them."""
    scheduler = roomy()
    others = [pod(f"other-{n}", HALF) for n in range(8)]
    place(scheduler, *others[:4])
    assert not scheduler.outlook.learning
    assert len(scheduler.ledger.rows.outlook) == 1
    scheduler.ledger.release(others[0].uid)
    place(scheduler, whole(0))
    assert expected(scheduler) == (3, 1)
    place(scheduler, *others[4:], whole(1))  # the look back is at the last of the four
    assert expected(scheduler) == (7, 1)


def test_learning_starts_at_the_first_joint_pod_of_a_call_too() -> None:
    """Three of another policy come before it, and one of them finds no place: two run."""
    others = [pod(f"other-{n}", WHOLE) for n in range(3)]
    at_once, one_by_one = cluster(node("n", gpus=2)), cluster(node("n", gpus=2))
    place(at_once, *others, half(0))
    for one in (*others, half(0)):
        place(one_by_one, one)
    assert expected(at_once) == expected(one_by_one) == (1, 2)


def test_a_workload_that_is_told_is_kept() -> None:
    scheduler = roomy()
    scheduler.outlook.expect([(half(0), 30), (pod("cpu", cpu=1000), 10), (whole(0), 60)])
    place(scheduler, *(whole(n) for n in range(1, 20)))
    assert (total(scheduler), expected(scheduler)) == (100, (30, 60))
    assert not scheduler.outlook.learning
    scheduler.outlook.expect([(half(0), 1)])
    place(scheduler, whole(99))
    assert (total(scheduler), expected(scheduler)) == (1, (1, 0))


def test_a_workload_can_be_told_after_some_was_learned() -> None:
    scheduler = roomy()
    place(scheduler, *(whole(n) for n in range(4)))
    scheduler.outlook.expect([(half(0), 7)])
    place(scheduler, *(whole(n) for n in range(4, 20)))
    assert expected(scheduler) == (7, 0)


def test_what_is_told_is_not_cut_and_what_is_learned_is() -> None:
    """39 halves and one whole: 39 of 40 are more than 95 %."""
    told, learned = roomy(), roomy()
    told.outlook.expect([(half(0), 39), (whole(0), 1)])
    place(told, half(1))
    assert expected(told) == (39, 1)
    for n in range(39):
        use(learned, "n", f"n/{n}", 1, 4000, 0)
    place(learned, whole(0))
    assert (total(learned), expected(learned)) == (39, (39, 0))


def test_looking_is_not_coming() -> None:
    scheduler = roomy()
    place(scheduler, half(0), half(1))
    for n in range(9):
        verdicts(scheduler, whole(n))
    place(scheduler, half(2))
    assert expected(scheduler) == (2, 0)
    place(scheduler, half(3))
    assert expected(scheduler) == (4, 0)


def test_what_is_tried_and_undone_never_came() -> None:
    scheduler = roomy()
    with scheduler.ledger.transaction():
        place(scheduler, *(whole(n) for n in range(9)))
    assert not scheduler.outlook.learning
    place(scheduler, half(0))
    with scheduler.ledger.transaction():
        place(scheduler, *(whole(n) for n in range(9)))
        with scheduler.ledger.transaction() as inner:
            place(scheduler, whole(9))
            inner.commit()
        scheduler.outlook.expect([(whole(0), 1)])
    place(scheduler, half(1))
    assert expected(scheduler) == (2, 0)
    with scheduler.ledger.transaction() as kept:
        place(scheduler, whole(0), whole(1))
        kept.commit()
    assert expected(scheduler) == (2, 2)


def test_a_new_kind_of_card_changes_the_tables_and_not_what_was_learned() -> None:
    """A half card of 8,000 MiB is a whole one of 4,000."""
    scheduler = roomy()
    place(scheduler, half(0), half(1), half(2))
    small = [card(f"s/{n}", memory=4000, index=n, model="NVIDIA T4") for n in range(2)]
    scheduler.handle(NodeChanged(0.0, node("s", *small)))
    place(scheduler, half(3), half(4))
    assert (expected(scheduler), expected(scheduler, kind=1)) == ((4, 0), (0, 4))


def test_parts_are_of_the_card_they_are_asked_of() -> None:
    """By memory, by compute, by per cent: the larger part of the two, for each kind that is accepted."""
    double = card("d", memory=16_000, model="NVIDIA A100", compute_milli=2000)
    scheduler = cluster(node("a", card("s", model="NVIDIA T4")), node("b", double))
    only_a100 = DeviceRules("NVIDIA", use_types=("A100",))
    asks = {
        "quarter of the large": (ask(1, 4000), (500, 250)),
        "by compute": (ask(1, 100, cores=80), (800, 400)),
        "by per cent": (ask(1, percent=30), (300, 300)),
        "nothing in particular": (ask(1), (1, 1)),
        "more than there is": (ask(1, 9000), (1000, 563)),
    }
    for name, (asked, parts) in asks.items():
        scheduler.outlook.expect([(pod(name, asked), 1)])
        assert smallest_parts(scheduler) == parts, name
    scheduler.outlook.expect([(pod("picky", ask(1, 4000), rules=only_a100), 1)])
    assert smallest_parts(scheduler) == (None, 250)


def smallest_parts(scheduler: Scheduler) -> tuple[int | None, int | None]:
    """Per kind, how much must be left of a card so that the expected pod can use it."""
    scheduler.outlook.prepare()
    tables = scheduler.ledger.rows.outlook
    found = []
    for kind in range(2):
        enough = [n for n in range(1, 1001) if usable(tables, kind, 10**6, np.array([n]), 1)]
        found.append(enough[0] if enough else None)
    return found[0], found[1]


@pytest.mark.parametrize("order", [("NVIDIA T4", "NVIDIA A100"), ("NVIDIA A100", "NVIDIA T4")])
def test_ties_at_the_cut_go_by_name_not_by_who_was_seen_first(order: tuple[str, str]) -> None:
    """19 of 21 and one each for one model only: 20 are enough, and of the two the larger name stays."""
    nodes = [node(model[-2:], *(card(f"{model}/{n}", index=n, model=model) for n in range(30))) for model in order]
    scheduler = cluster(*nodes)
    for n in range(18):
        use(scheduler, "T4", f"NVIDIA T4/{n}", 1, 4000, 0)
    for model in order:
        rules = DeviceRules("NVIDIA", use_types=(model,))
        place(scheduler, pod(f"only-{model[-2:]}", HALF, rules=rules))
    place(scheduler, half(0))
    kind = {model: scheduler.intern.kind(card("x", model=model)) for model in order}
    assert total(scheduler) == 20
    assert expected(scheduler, kind["NVIDIA T4"]) == (20, 0)
    assert expected(scheduler, kind["NVIDIA A100"]) == (19, 0)


def test_events_and_calls_teach_the_same() -> None:
    by_event, by_call = roomy(), roomy()
    pods = [one for n in range(6) for one in (half(n), whole(n))]
    for one in pods:
        by_event.handle(GroupArrived(0.0, group(one)))
    place(by_call, *pods)
    assert expected(by_event) == expected(by_call) == (4, 4)


@pytest.mark.parametrize("policy", ["fgd", "snug"])
def test_the_first_pod_with_a_joint_policy_may_have_preferences(policy: str) -> None:
    """Its nodes are surveyed before it is placed: the tables that the policy reads must be there by then."""
    east, west = (node(name, gpus=1, labels={"zone": name}) for name in ("east", "west"))
    fond = Preferences(((50, AffinityTerm((Requirement("zone", "In", ("west",)),))),))
    scheduler = cluster(east, west)
    assert place(scheduler, pod("p", HALF, node_policy=policy, preferences=fond)) == [("west", ("west/0",))]
