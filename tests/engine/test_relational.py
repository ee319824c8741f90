"""Pods beside one another: host ports, topology spread, affinity and anti-affinity, as kube-scheduler has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rules import pod_counts
from dovetail.engine.rules.affinity_spread import Relational
from dovetail.engine.rules.pod_counts import Neighbours, Question, Sought
from dovetail.model.events import NodeChanged, NodeGone, PodGone, PodObserved
from dovetail.model.node import Node, Taint
from dovetail.model.pod import Pod, RunningPod
from dovetail.model.reason import Reason
from dovetail.model.relations import HostPort, PodTerm, Relations, Selector, SpreadConstraint
from dovetail.model.rules import NodeRules, Requirement
from tests.builders import cluster, node, pod
from tests.engine.by_definition import Scene
from tests.engine.neighbourhoods import HOST, SPACES, ZONE, some_node, some_nodes, some_pod

WEB = Selector((("app", "web"),))


class Town:
    """A cluster whose pods are put where the test says."""

    def __init__(self, *nodes: Node) -> None:
        self.scheduler = cluster(*nodes)
        self.ledger: Ledger = self.scheduler.ledger
        self.neighbours = Neighbours(self.ledger)
        self.ledger.witnesses.append(self.neighbours)
        self.relational = Relational(self.ledger, self.neighbours)

    def put(self, where: str, *pods: Pod) -> Town:
        for one in pods:
            self.scheduler.handle(PodObserved(0.0, RunningPod(one, where, ())))
        return self

    def answers(self, one: Pod) -> dict[str, Reason]:
        refusals = self.relational.refusals(one)
        rows = {name: row for name, row in self.ledger.row_of.items() if self.ledger.is_active(row)}
        assert self.relational.concerns(one) or not any(refusals[row] for row in rows.values())
        return {name: Reason(int(refusals[row])) for name, row in sorted(rows.items())}

    def feasible(self, one: Pod) -> str:
        return " ".join(name for name, reason in self.answers(one).items() if not reason)


def town(*zones: str) -> Town:
    """Nodes a, b, c … each in the zone given; "" = in none."""
    names = "abcdefgh"[: len(zones)]
    return Town(
        *(
            node(name, labels={HOST: name, **({ZONE: zone} if zone else {})})
            for name, zone in zip(names, zones, strict=True)
        )
    )


def web(name: str, **relations: object) -> Pod:
    return pod(name, labels={"app": "web"}, relations=Relations(**relations))  # type: ignore[arg-type]


def near(key: str = ZONE, selector: Selector | None = WEB, **more: object) -> PodTerm:
    return PodTerm(key, selector, **{"namespaces": ("default",), **more})  # type: ignore[arg-type]


class TestAffinity:
    def test_goes_where_a_matching_pod_is_under_the_same_value(self) -> None:
        place = town("east", "east", "west", "").put("a", web("first"))
        assert place.feasible(pod("second", relations=Relations(affinity=(near(),)))) == "a b"

    def test_the_first_of_its_kind_may_go_wherever_the_label_is(self) -> None:
        assert town("east", "west", "").feasible(web("first", affinity=(near(),))) == "a b"

    def test_the_first_pod_rule_needs_a_pod_that_matches_itself(self) -> None:
        loner = pod("loner", labels={"app": "other"}, relations=Relations(affinity=(near(),)))
        assert town("east", "west").feasible(loner) == ""

    def test_pods_on_nodes_without_the_label_do_not_count(self) -> None:
        place = town("east", "").put("b", web("elsewhere"))
        assert place.feasible(web("first", affinity=(near(),))) == "a"  # as if it were the first

    def test_one_pod_must_match_all_terms(self) -> None:
        place = town("east", "west").put("a", pod("p", labels={"app": "web"}), pod("q", labels={"tier": "db"}))
        both = (near(), near(selector=Selector((("tier", "db"),))))
        assert place.feasible(pod("picky", relations=Relations(affinity=both))) == ""
        place.put("b", pod("r", labels={"app": "web", "tier": "db"}))
        assert place.feasible(pod("picky", relations=Relations(affinity=both))) == "b"


class TestAntiAffinity:
    def test_keeps_away_from_whom_it_names(self) -> None:
        place = town("east", "east", "west", "").put("a", web("first"))
        assert place.answers(web("second", anti_affinity=(near(),))) == {
            "a": Reason.POD_ANTI_AFFINITY,
            "b": Reason.POD_ANTI_AFFINITY,
            "c": Reason.OK,
            "d": Reason.OK,  # in no zone
        }

    def test_those_who_are_there_keep_others_away(self) -> None:
        place = town("east", "west").put("a", web("hermit", anti_affinity=(near(),)))
        assert place.answers(pod("guest", labels={"app": "web"})) == {"a": Reason.OTHERS_ANTI_AFFINITY, "b": Reason.OK}
        assert not place.relational.concerns(pod("stranger", labels={"app": "db"}))

    def test_pods_that_are_going_still_count(self) -> None:
        place = town("east", "west").put("a", replace(web("going"), leaving=True))
        assert place.feasible(web("second", anti_affinity=(near(),))) == "b"

    def test_whoever_left_is_forgotten(self) -> None:
        place = town("east", "west").put("a", web("hermit", anti_affinity=(near(),)))
        place.scheduler.handle(PodGone(1.0, "uid-hermit"))
        assert not place.relational.concerns(pod("guest", labels={"app": "web"}))


class TestNamespaces:
    def asked(self, among: Selector | None, spaces: tuple[str, ...] = ()) -> str:
        place = town("1", "2", "3")
        for name, labels in SPACES.items():
            place.neighbours.set_namespace(name, labels)
        for where, space in zip("abc", ("blue", "green", "nobody"), strict=True):
            place.put(where, pod(f"in-{space}", namespace=space, labels={"app": "web"}))
        term = PodTerm(ZONE, WEB, spaces, among)
        return place.feasible(pod("asker", namespace="blue", relations=Relations(affinity=(term,))))

    def test_a_list(self) -> None:
        assert self.asked(None, ("green",)) == "b"

    def test_a_selector(self) -> None:
        assert self.asked(Selector((("team", "b"),))) == "a"

    def test_both(self) -> None:
        assert self.asked(Selector((("team", "b"),)), ("nobody",)) == "a c"

    def test_an_empty_selector_is_everybody(self) -> None:
        assert self.asked(Selector()) == "a b c"

    def test_what_is_not_there_matches_everybody_as_in_kube_scheduler(self) -> None:
        """env exists in blue, and yet: the selector is asked again of a namespace without labels."""
        assert self.asked(Selector((), (Requirement("env", "DoesNotExist"),))) == "a b c"

    def test_new_labels_of_a_namespace_count_at_once(self) -> None:
        place = town("1", "2").put("a", pod("p", namespace="green", labels={"app": "web"}))
        asker = pod("q", relations=Relations(affinity=(PodTerm(ZONE, WEB, (), Selector((("team", "g"),))),)))
        assert place.feasible(asker) == ""
        place.neighbours.set_namespace("green", {"team": "g"})
        assert place.feasible(asker) == "a"
        place.neighbours.drop_namespace("green")
        assert place.feasible(asker) == ""


def evenly(key: str = ZONE, skew: int = 1, selector: Selector | None = WEB, **more: object) -> SpreadConstraint:
    return SpreadConstraint(key, skew, True, selector, **more)  # type: ignore[arg-type]


class TestSpread:
    def test_the_arithmetic(self) -> None:
        place = town("east", "east", "west").put("a", web("one")).put("b", web("two")).put("c", web("three"))
        # east has 2, west 1: 2 + 1 - 1 = 2 > 1; 1 + 1 - 1 = 1
        assert place.feasible(web("next", spread=(evenly(),))) == "c"
        assert place.feasible(web("next", spread=(evenly(skew=2),))) == "a b c"

    def test_a_pod_it_does_not_select_adds_nothing(self) -> None:
        place = town("east", "west").put("a", web("one"))
        other = pod("other", labels={"app": "db"}, relations=Relations(spread=(evenly(),)))
        assert place.feasible(other) == "a b"  # 1 + 0 - 0 = 1

    def test_pods_that_are_going_do_not_count(self) -> None:
        place = town("east", "west").put("a", replace(web("going"), leaving=True))
        assert place.feasible(web("next", spread=(evenly(),))) == "a b"

    def test_nodes_without_the_label(self) -> None:
        assert town("east", "").answers(web("next", spread=(evenly(),)))["b"] is Reason.SPREAD_LABEL

    def test_fewer_domains_than_wanted_make_the_least_nothing(self) -> None:
        place = town("east", "west").put("a", web("one")).put("b", web("two"))
        assert place.feasible(web("next", spread=(evenly(),))) == "a b"  # 1 + 1 - 1 = 1
        assert place.feasible(web("next", spread=(evenly(min_domains=3),))) == ""  # 1 + 1 - 0 = 2

    def test_a_selector_for_everybody_counts_nobody(self) -> None:
        place = town("east", "west").put("a", web("one"), web("two"))
        assert place.feasible(web("next", spread=(evenly(selector=Selector()),))) == "a b"  # 0 + 1 - 0 = 1

    @pytest.mark.parametrize(("honour", "left"), [(True, "a b c"), (False, "c")])
    def test_which_nodes_count_by_affinity(self, honour: bool, left: str) -> None:
        nodes = [
            node(n, labels={HOST: n, ZONE: z, "disk": d})
            for n, z, d in (("a", "1", "ssd"), ("b", "2", "ssd"), ("c", "3", "hdd"))
        ]
        place = Town(*nodes).put("a", web("one")).put("b", web("two"))
        asker = replace(
            web("next", spread=(evenly(honour_affinity=honour),)), node_rules=NodeRules(selector=(("disk", "ssd"),))
        )
        assert place.feasible(asker) == left  # the empty zone 3 is the least only where it counts

    @pytest.mark.parametrize(("honour", "left"), [(True, "a b c"), (False, "c")])
    def test_which_nodes_count_by_taints(self, honour: bool, left: str) -> None:
        tainted = node("c", labels={HOST: "c", ZONE: "3"}, taints=(Taint("k", "", "NoSchedule"),))
        place = Town(*(node(n, labels={HOST: n, ZONE: z}) for n, z in (("a", "1"), ("b", "2"))), tainted)
        place.put("a", web("one")).put("b", web("two"))
        assert place.feasible(web("next", spread=(evenly(honour_taints=honour),))) == left


class TestPorts:
    @pytest.mark.parametrize(
        ("taken", "wanted", "free"),
        [
            (HostPort(80), HostPort(80), False),
            (HostPort(80), HostPort(81), True),
            (HostPort(80), HostPort(80, "UDP"), True),
            (HostPort(80, ip="10.0.0.1"), HostPort(80), False),
            (HostPort(80), HostPort(80, ip="10.0.0.1"), False),
            (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.1"), False),
            (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2"), True),
        ],
    )
    def test_conflicts(self, taken: HostPort, wanted: HostPort, free: bool) -> None:
        place = town("", "").put("a", web("first", ports=(taken,)))
        assert place.answers(web("next", ports=(wanted,))) == {
            "a": Reason.OK if free else Reason.HOST_PORT,
            "b": Reason.OK,
        }


class TestWaking:
    def test_who_is_helped(self) -> None:
        place = town("east")
        asks, changed = place.relational.wakes, web("changed")
        assert asks(web("w", affinity=(near(),)), changed)
        assert asks(web("w", anti_affinity=(near(),)), changed)
        assert asks(web("w", spread=(evenly(),)), changed)
        assert asks(pod("w", labels={"app": "web"}), web("changed", anti_affinity=(near(),)))
        stranger = pod("stranger", labels={"app": "db"})
        assert not any(asks(web("w", **{kind: (near(),)}), stranger) for kind in ("affinity", "anti_affinity"))
        assert not asks(web("w", spread=(evenly(),)), stranger)
        assert not asks(stranger, web("changed", anti_affinity=(near(),)))


class TestCost:
    """What a pod costs others: selectors that are checked."""

    def test_a_pod_that_comes_costs_the_same_whatever_others_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        place = town("east").put("a", web("one"))
        asked = [
            Question((Sought(("default",), None, Selector((), (Requirement(f"k{number}", "NotIn", ("x",)),))),))
            for number in range(50)
        ]
        for question in asked:
            place.neighbours.count(question)
        checked = _checks(monkeypatch)
        place.put("a", web("two"), pod("three", labels={"app": "db"}))
        assert checked == []
        assert place.neighbours.count(asked[7]).tolist() == [3]
        assert len(checked) == 2  # only this question, and only the two pods that are new to it

    def test_terms_cost_only_the_namespaces_that_they_mean(self, monkeypatch: pytest.MonkeyPatch) -> None:
        place, empty = town("east", "west"), Selector()
        for number in range(50):
            term = PodTerm(ZONE, Selector((), (Requirement(f"k{number}", "Exists", ()),)), ("blue",))
            place.put("a", pod(f"p{number}", namespace="blue", relations=Relations(anti_affinity=(term,))))
        everybody = PodTerm(ZONE, empty, (), empty)
        place.put("b", pod("hermit", namespace="blue", relations=Relations(anti_affinity=(everybody,))))
        checked = _checks(monkeypatch)
        assert place.feasible(pod("other", namespace="green")) == "a"
        assert set(checked) == {empty}


def _checks(monkeypatch: pytest.MonkeyPatch) -> list[Selector]:
    """The selectors that are held against labels from now on."""
    checked: list[Selector] = []
    matches = Selector.matches

    def noted(selector: Selector, labels: Mapping[str, str]) -> bool:
        checked.append(selector)
        return matches(selector, labels)

    monkeypatch.setattr(Selector, "matches", noted)
    return checked


class TestPlainPods:
    def test_nobody_counts_while_nobody_asks(self) -> None:
        place = town("east", "west").put("a", pod("plain", labels={"app": "web"}))
        assert not place.relational.concerns(pod("other", labels={"app": "web"}))
        assert not place.neighbours.active

    def test_a_transaction_that_is_undone_leaves_no_trace(self) -> None:
        place = town("east", "west")
        asker = web("asker", anti_affinity=(near(),))
        assert place.feasible(asker) == "a b"
        with place.ledger.transaction():
            place.put("a", web("hermit", anti_affinity=(near(),)))
            assert place.feasible(asker) == "b"
        assert place.feasible(asker) == "a b"
        assert not place.relational.concerns(pod("guest", labels={"app": "web"}))


def built(chance: Random, nodes: int, pods: int) -> tuple[Town, Scene]:
    """A town with a past: some nodes changed or went, some pods left, and questions were asked in between."""
    town = Town(*some_nodes(chance, nodes))
    for name, labels in SPACES.items():
        town.neighbours.set_namespace(name, labels)
    there: dict[str, tuple[Pod, str]] = {}
    for number in range(pods):
        one, where = some_pod(chance, f"p{number}"), f"n{chance.randrange(nodes)}"
        town.put(where, one)
        there[one.uid] = one, where
        if chance.random() < 0.3:
            town.relational.refusals(some_pod(chance, "asks"))
        if chance.random() < 0.2:
            gone = chance.choice(sorted(there))
            town.scheduler.handle(PodGone(1.0, gone))
            del there[gone]
        if chance.random() < 0.1:
            town.scheduler.handle(NodeChanged(1.0, some_node(chance, f"n{chance.randrange(nodes)}")))
        if chance.random() < 0.05:
            town.scheduler.handle(NodeGone(1.0, f"n{chance.randrange(nodes)}"))
    ledger = town.ledger
    nodes_now = [known for row, known in enumerate(ledger.nodes) if ledger.is_active(row)]
    return town, Scene(nodes_now, list(there.values()), SPACES)


towns = st.tuples(st.integers(0, 10**6), st.integers(1, 7), st.integers(0, 12))


@given(towns)
def test_refusals_are_those_of_the_definition(world: tuple[int, int, int]) -> None:
    seed, nodes, pods = world
    chance = Random(seed)
    town, scene = built(chance, nodes, pods)
    for number in range(4):
        one = some_pod(chance, f"asks-{number}", eager=0.5)
        assert town.answers(one) == {known.name: scene.refusal(one, known) for known in scene.nodes}


LOGS = [(8_192, 64), (8_192, 0), (9, 64)]  # a long log; counted anew if that is cheaper; changes soon dropped


@pytest.mark.parametrize(("most", "few"), LOGS)
@given(world=towns)
def test_counts_kept_are_counts_made_anew(most: int, few: int, world: tuple[int, int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_counts, "MAX_LOGGED", most)
        patch.setattr(pod_counts, "FEW_CHANGES", few)
        _compare_with_fresh_counts(world)


def _compare_with_fresh_counts(world: tuple[int, int, int]) -> None:
    seed, nodes, pods = world
    chance = Random(seed)
    town, _ = built(chance, nodes, pods)
    fresh = Neighbours(town.ledger)
    for name, labels in SPACES.items():
        fresh.set_namespace(name, labels)
    for number in range(6):
        one = some_pod(chance, f"asks-{number}", eager=0.6)
        for term in (*one.relations.affinity, *one.relations.preferred_affinity):
            question = Question(
                (Sought(term.namespaces, term.namespace_selector, term.selector),), chance.random() < 0.5
            )
            assert np.array_equal(town.neighbours.count(question), fresh.count(question))
        for mine, theirs in ((town.neighbours.against, fresh.against), (town.neighbours.liked, fresh.liked)):
            assert dict(mine.matching(one, {})) == dict(theirs.matching(one, {}))
    for uid in list(town.ledger.pods):
        town.scheduler.handle(PodGone(2.0, uid))
    assert not len(town.neighbours.against)
    assert not town.neighbours.count(Question((Sought(tuple(SPACES), None, Selector()),))).any()
