"""What the live scheduler says of nodes is what `explain` and `plan` say, in bounded time."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why import findings
from dovetail.engine.why.explain import Look, explain, verdicts
from dovetail.engine.why.findings import find
from dovetail.engine.why.verdict import Verdict, blocking, lacking, nearest
from dovetail.engine.wording import Fact, amount_of, in_one_sentence, together
from dovetail.model.node import CPU, MEMORY, Node, Taint
from dovetail.model.pod import DeviceRules, Pod, Quota
from dovetail.model.reason import CHECK_ORDER, POD_LEVEL_REASONS, Reason
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement
from tests.builders import ask, card, cluster, group, node, place, pod, use
from tests.engine.neighbourhoods import SPACES, some_nodes, some_pod
from tests.engine.pictures import made
from tests.properties import with_examples
from tests.strategies import World, quotas, worlds

GPU_MEMORY_SHORT = "GPU memory short by 1,000 MiB"


def agrees(scheduler: Scheduler, wanted: Pod) -> Reason:
    """Holds the three views against each other; returns the reason of the nearest miss."""
    found, told = find(scheduler, wanted), explain(scheduler, wanted)
    fits = any(one.reason == Reason.OK for one in told.verdicts)
    assert found.fits == fits
    assert found.lacking == (() if fits else told.lacking)
    miss = told.nearest
    if fits or miss is None:
        return Reason.OK
    assert found.nodes == sum(one.nodes for one in found.lacking) == len(told.verdicts)
    assert found.lacking[0].reason == miss.reason == blocking(Reason.NO_NODES, told.verdicts)
    assert miss.fact.what in found.lacking[0].text
    return miss.reason


def test_live_explain_and_plan_name_the_nearest_miss() -> None:
    reached: Counter[Reason] = Counter()

    @with_examples(150)
    @given(worlds(nodes=6, pods=16), st.one_of(st.just(()), quotas))
    def property_holds(world: World, limits: tuple[Quota, ...]) -> None:
        scheduler = made(world.nodes, quotas=limits)
        for waiting in world.groups:
            decisions = scheduler.place([waiting])
            for wanted, decision in zip(waiting.pods, decisions, strict=True):
                if not decision.placed and decision.reason not in POD_LEVEL_REASONS:
                    reached[agrees(scheduler, wanted)] += 1

    property_holds()
    assert len(reached) > 8, reached


def test_rules_about_other_pods_too() -> None:
    reached: Counter[Reason] = Counter()

    @with_examples(80)
    @given(st.integers(0, 10**6))
    def property_holds(seed: int) -> None:
        chance = Random(seed)
        scheduler = made(some_nodes(chance, 4))
        for number in range(10):
            wanted = some_pod(chance, f"p{number}", eager=0.6)
            if not scheduler.place([group(wanted)])[0].placed:
                reached[agrees(scheduler, wanted)] += 1

    property_holds()
    assert SPACES
    assert len(reached) > 3, reached


def near(*short: int) -> tuple[Scheduler, Pod]:
    """One card of 8,000 MiB a node; 4,000 MiB are asked for and so many are missing on each."""
    scheduler = cluster(*(node(f"n{n}", card(f"c{n}")) for n in range(len(short))))
    for n, missing in enumerate(short):
        use(scheduler, f"n{n}", f"c{n}", 1, 4000 + missing, 0)
    return scheduler, pod("p", ask(1, 4000))


def test_nodes_that_lack_the_same_are_told_together() -> None:
    scheduler, wanted = near(2000, 1000, 1000)
    [only] = find(scheduler, wanted).lacking
    assert str(only) == f"{GPU_MEMORY_SHORT} or more on 3 nodes"
    scheduler, wanted = near(1000, 1000)
    assert in_one_sentence(find(scheduler, wanted).lacking) == f"{GPU_MEMORY_SHORT} on 2 nodes"


@pytest.mark.parametrize("looks", [1, 2])
def test_of_many_nodes_the_most_promising_are_looked_at(looks: int) -> None:
    """Twenty states, one or two looks: the nearest miss and the number of nodes are right all the same."""
    scheduler, wanted = near(*range(3000, 1000, -100))
    found = find(scheduler, wanted, looks)
    assert in_one_sentence(found.lacking) == "GPU memory short by 1,100 MiB or more on 20 nodes"
    assert found.cost == 20 * findings.INTERPRETED_COST + looks * findings.LOOK_COST


def test_nodes_in_one_state_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, wanted = near(*[1000] * 30)
    looks: list[str] = []
    ask_node = Look.node

    def counted(self: Look, one: Node, row: int) -> Verdict:
        looks.append(one.name)
        return ask_node(self, one, row)

    monkeypatch.setattr(Look, "node", counted)
    assert str(find(scheduler, wanted).lacking[0]) == f"{GPU_MEMORY_SHORT} on 30 nodes"
    assert looks == ["n0"]


def reason_of(scheduler: Scheduler, wanted: Pod) -> Reason:
    assert place(scheduler, wanted) == [(None, ())]
    return agrees(scheduler, wanted)


def test_near_is_nearer_than_a_rule_and_a_rule_is_nearer_than_far() -> None:
    """A free node that is tainted, beside one that is short by a quarter, or by three quarters, of what is asked."""
    tainted = node("t", card("t"), taints=(Taint("team", "ml", "NoSchedule"),))
    for missing, reason in ((1000, Reason.CARD_MEMORY), (3000, Reason.TAINT)):
        scheduler = cluster(node("n", card("a")), tainted)
        use(scheduler, "n", "a", 1, 4000 + missing, 0)
        assert reason_of(scheduler, pod("p", ask(1, 4000))) == reason


def test_a_rule_is_not_near_where_the_node_has_no_room_either() -> None:
    """Tolerating the taint would not help: that node has no GPU."""
    scheduler = cluster(node("n", card("a")), node("t", taints=(Taint("team", "ml", "NoSchedule"),)))
    use(scheduler, "n", "a", 1, 7000, 0)
    assert reason_of(scheduler, pod("p", ask(1, 4000))) == Reason.CARD_MEMORY  # short by three quarters


def test_of_several_cards_the_one_speaks_on_which_it_depends() -> None:
    """Two cards are asked for; 100, 200 and 3,000 MiB are missing on three: with 200 less, two fit."""
    scheduler = cluster(node("n", card("a"), card("b", index=1), card("c", index=2)))
    for name, missing in (("a", 100), ("b", 200), ("c", 3000)):
        use(scheduler, "n", name, 1, 4000 + missing, 0)
    [verdict] = verdicts(scheduler, pod("p", ask(2, 4000)))
    assert (verdict.sentence, verdict.shortfall) == ("GPU memory short by 200 MiB", 0.05)
    [verdict] = verdicts(scheduler, pod("p", ask(2, 3900)))
    assert verdict.sentence == "1 of 2 GPUs fit, the others: GPU memory short by 100 MiB"


def test_the_commonest_card_does_not_speak_for_the_node() -> None:
    """Three cards of another type and one that lacks 100 MiB."""
    others = [card(f"x{n}", index=n, model="NVIDIA T4") for n in range(3)]
    scheduler = cluster(node("n", *others, card("a", index=3, model="NVIDIA A100")))
    use(scheduler, "n", "a", 1, 4100, 0)
    wanted = pod("p", ask(1, 4000), rules=DeviceRules("NVIDIA", use_types=("A100",)))
    assert reason_of(scheduler, wanted) == Reason.CARD_MEMORY


def test_which_affinity_term_fails_and_what_the_nodes_have() -> None:
    zones: tuple[dict[str, str], ...] = ({"zone": "c"}, {"zone": "d"}, {})
    scheduler = cluster(*(node(f"n{n}", labels=labels) for n, labels in enumerate(zones)))
    strict = AffinityTerm((Requirement("zone", "In", ("a", "b")), Requirement("disk", "Exists")))
    wanted = pod("p", node_rules=NodeRules(affinity=(strict, AffinityTerm((Requirement("zone", "In", ("a",)),)))))
    assert in_one_sentence(find(scheduler, wanted).lacking) == (
        "term 2 of 2 of the required node affinity fails: zone In a (the nodes have zone=c, zone=d, no zone) on 3 nodes"
    )
    assert verdicts(scheduler, wanted)[0].sentence.endswith("zone In a (the node has zone=c)")


def test_a_node_that_does_not_exist() -> None:
    scheduler, wanted = cluster(node("n")), pod("p", node_rules=NodeRules(node_name="ghost"))
    assert in_one_sentence(find(scheduler, wanted).lacking) == "the pod names node ghost, which does not exist"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            pod("p", ask(1, 50_000)),
            "50,000 MiB of one GPU's memory are asked for; the biggest GPU has 24,000 MiB (NVIDIA L4)",
        ),
        (
            pod("p", ask(1, 20_000), rules=DeviceRules("NVIDIA", use_types=("T4",))),
            "20,000 MiB of one GPU's memory are asked for; the biggest GPU of type T4 has 16,000 MiB (NVIDIA T4)",
        ),
        (pod("p", ask(3, 1)), "3 GPUs are asked for by one container; no node has more than 2"),
        (pod("p", cpu=65_500), "65500m CPU are asked for; no node has more than 64"),
    ],
)
def test_what_exceeds_everything_is_said_with_the_biggest(wanted: Pod, said: str) -> None:
    scheduler = cluster(
        node("a", card("a", 24_000, model="NVIDIA L4")),
        node("b", *(card(f"b{n}", 16_000, n, model="NVIDIA T4") for n in range(2))),
    )
    assert explain(scheduler, wanted).beyond == (said,)
    assert explain(scheduler, pod("q", ask(1, 24_000), cpu=65_000)).beyond == (
        "65 CPU are asked for; no node has more than 64",
    )


def test_every_reason_that_a_node_may_give_has_its_place_in_the_order() -> None:
    assert set(CHECK_ORDER) == {reason for reason in Reason if reason not in POD_LEVEL_REASONS and reason != Reason.OK}


def test_nothing_is_near_where_a_node_fits_or_none_was_asked() -> None:
    assert nearest(()) is None
    assert nearest(verdicts(cluster(node("n"), node("m", cpu=1)), pod("p", cpu=1000))) is None
    assert lacking(()) == ()
    assert find(cluster(), pod("p")).nodes == 0


@pytest.mark.parametrize(
    ("name", "amount", "said"),
    [
        (CPU, 500, "500m"),
        (CPU, 2000, "2"),
        (CPU, 2500, "2500m"),
        (MEMORY, 2 * 2**30, "2Gi"),
        (MEMORY, 1536 * 2**20, "1536Mi"),
        (MEMORY, 2 * 10**9, "2G"),
        (MEMORY, 2**20 + 1, "2Mi"),
        (MEMORY, 0, "0"),
        ("example.com/dongle", 1200, "1,200"),
    ],
)
def test_amounts_as_manifests_write_them(name: str, amount: int, said: str) -> None:
    assert amount_of(name, amount) == said


def test_facts_that_differ_are_told_by_the_nearest() -> None:
    fits = [
        Fact("GPU memory short", "by 5 MiB", fitting=2, asked=4),
        Fact("GPU memory short", "by 9 MiB", fitting=1, asked=4),
    ]
    assert together(fits) == "at most 2 of 4 GPUs fit, the others: GPU memory short by 5 MiB or more"
    types = [Fact("GPU type does not match", have=f"NVIDIA {letter}") for letter in "ABCDE"]
    assert together(types) == "GPU type does not match (the nodes have NVIDIA A, NVIDIA B, NVIDIA C, others)"
