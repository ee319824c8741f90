"""Points for preferences, as kube-scheduler's score plugins would give them. Taints alone are worth 3 × 100 to all."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.rules.preferences import Preferred
from dovetail.model.node import Node, Taint
from dovetail.model.pod import Pod, PreferenceWeights
from dovetail.model.relations import PodTerm, Preferences, Relations, SpreadConstraint
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement, Toleration
from tests.builders import node, pod
from tests.engine.neighbourhoods import HOST, ZONE, some_pod
from tests.engine.test_relational import WEB, Town, built, near, web

MIB = 2**20
NO_TAINTS = PreferenceWeights(taints=0)


def points(town: Town, one: Pod, names: str = "", weights: PreferenceWeights = NO_TAINTS) -> dict[str, int]:
    """By node; `names`: the feasible ones, all if not said."""
    preferred = Preferred(town.ledger, town.neighbours)
    rows = {name: row for name, row in town.ledger.row_of.items() if town.ledger.is_active(row)}
    chosen = names.split() or list(rows)
    feasible = np.zeros(len(town.ledger.nodes), dtype=np.bool_)
    feasible[[rows[name] for name in chosen]] = True
    found = preferred.points(one, feasible, weights)
    assert not found[~feasible].any()
    told_apart = len({int(found[row]) for row in rows.values() if feasible[row]}) > 1
    assert preferred.concerns(one) or not told_apart
    return {name: int(found[rows[name]]) for name in sorted(chosen)}


def zoned(*zones: str, **facts: object) -> Town:
    names = "abcdefgh"[: len(zones)]
    return Town(*(node(n, labels={HOST: n, ZONE: z}, **facts) for n, z in zip(names, zones, strict=True)))  # type: ignore[arg-type]


class TestNodes:
    def test_taints_that_are_only_disliked(self) -> None:
        one, two = Taint("k", "1", "PreferNoSchedule"), Taint("k", "2", "PreferNoSchedule")
        town = Town(node("a"), node("b", taints=(one,)), node("c", taints=(one, two)))
        everything = PreferenceWeights()
        # 0, 1 and 2 of at most 2: 100, 50 and 0, times 3
        assert points(town, pod("p"), weights=everything) == {"a": 300, "b": 150, "c": 0}
        tolerant = pod("p", node_rules=NodeRules(tolerations=(Toleration("k", "Equal", "1"),)))
        assert points(town, tolerant, weights=everything) == {"a": 300, "b": 300, "c": 0}

    def test_a_taint_that_all_nodes_have_tells_nothing(self) -> None:
        taints = (Taint("k", "", "PreferNoSchedule"),)
        town = Town(node("a", taints=taints), node("b", taints=taints))
        assert not Preferred(town.ledger, town.neighbours).concerns(pod("p"))

    def test_preferred_terms_add_up_their_weights(self) -> None:
        town = zoned("east", "west", "west")
        terms = (
            (60, AffinityTerm((Requirement(ZONE, "In", ("west",)),))),
            (30, AffinityTerm((), (Requirement("metadata.name", "In", ("c",)),))),
        )
        fond = pod("p", preferences=Preferences(terms))
        # 0, 60 and 90 of 90: 0, 66 and 100, times 2
        assert points(town, fond) == {"a": 0, "b": 132, "c": 200}
        assert points(town, fond, "a b") == {"a": 0, "b": 200}  # the highest is that of the feasible

    def test_images(self) -> None:
        town = Town(
            node("a", images={"big:1": 1000 * MIB, "small:1": 10 * MIB}),
            node("b", images={"big:1": 1000 * MIB}),
            node("c", images={"small:1": 10 * MIB}),
            node("d"),
        )
        # two of four nodes have it: 500 MiB count; (500 - 23) / (1000 - 23) = 48.8 %
        assert points(town, pod("p", preferences=Preferences((), ("big:1",), 1))) == {"a": 48, "b": 48, "c": 0, "d": 0}
        # too small to matter
        small = pod("p", preferences=Preferences((), ("small:1",), 1))
        assert points(town, small) == dict.fromkeys("abcd", 0)
        assert not Preferred(town.ledger, town.neighbours).concerns(small)


class TestPods:
    def test_liked_and_disliked(self) -> None:
        town = zoned("1", "2", "3").put("a", web("x"), web("y")).put("b", web("z"))
        likes = PodTerm(ZONE, WEB, ("default",), weight=10)
        # 20, 10 and 0: 100 × (raw - 0) / 20, times 2
        assert points(town, pod("p", relations=Relations(preferred_affinity=(likes,)))) == {"a": 200, "b": 100, "c": 0}
        # -20, -10 and 0: the other way round
        assert points(town, pod("p", relations=Relations(preferred_anti_affinity=(likes,)))) == {
            "a": 0,
            "b": 100,
            "c": 200,
        }

    def test_those_who_are_there_like_and_dislike_too(self) -> None:
        like, dislike = PodTerm(ZONE, WEB, ("default",), weight=3), PodTerm(ZONE, WEB, ("default",), weight=2)
        town = zoned("1", "2", "3", "4")
        town.put("a", pod("x", relations=Relations(preferred_affinity=(like,))))
        town.put("b", pod("y", relations=Relations(preferred_anti_affinity=(dislike,))))
        town.put("c", pod("z", relations=Relations(affinity=(near(),))))  # a required affinity is worth 1
        # 3, -2, 1 and 0 between -2 and 3: 100, 0, 60 and 40, times 2
        assert points(town, web("p")) == {"a": 200, "b": 0, "c": 120, "d": 80}
        assert not Preferred(town.ledger, town.neighbours).concerns(pod("stranger", labels={"app": "db"}))


class TestSpread:
    def test_the_log_weights(self) -> None:
        town = zoned("1", "1", "2").put("a", web("x"), web("y")).put("b", web("z"))
        even = SpreadConstraint(ZONE, 1, False, WEB)
        # zone 1 has 3: 3 × ln(2 + 2) = 4.16 → 4, zone 2 has 0 → 0; 100 × (4 + 0 - raw) / 4, times 2
        assert points(town, web("p", spread=(even,))) == {"a": 0, "b": 0, "c": 200}
        by_host = SpreadConstraint(HOST, 1, False, WEB)
        # 2, 1 and 0, times ln(3 + 2) = 1.61: 3.22 → 3, 1.61 → 2, 0; 100 × (3 + 0 - raw) / 3
        assert points(town, web("p", spread=(by_host,))) == {"a": 0, "b": 66, "c": 200}

    def test_nodes_without_the_label_get_nothing(self) -> None:
        town = Town(node("a", labels={HOST: "a", ZONE: "1"}), node("b", labels={HOST: "b"}))
        assert points(town, web("p", spread=(SpreadConstraint(ZONE, 1, False, WEB),))) == {"a": 200, "b": 0}


towns = st.tuples(st.integers(0, 10**6), st.integers(1, 7), st.integers(0, 12))


@given(towns)
def test_points_are_those_of_the_definition(world: tuple[int, int, int]) -> None:
    seed, nodes, pods = world
    chance = Random(seed)
    town, scene = built(chance, nodes, pods)
    feasible: list[Node] = [one for one in scene.nodes if chance.random() < 0.8]
    if not feasible:
        return
    for number in range(4):
        one = some_pod(chance, f"asks-{number}", eager=0.5)
        names = " ".join(known.name for known in feasible)
        wanted = dict(sorted(scene.points(one, feasible).items()))
        assert points(town, one, names, PreferenceWeights()) == wanted


def test_nobody_is_asked_about_without_reason() -> None:
    town = zoned("1", "2").put("a", web("x"))
    preferred = Preferred(town.ledger, town.neighbours)
    assert not preferred.concerns(replace(web("p"), preferences=Preferences((), ("a:1",), 1)))
    assert not town.neighbours.active
