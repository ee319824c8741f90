"""Spreading that no pod asked for: whom a pod keeps apart from, and over which hosts and zones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import explain
from dovetail.model.events import GroupArrived, PodObserved, SelectorChanged
from dovetail.model.node import Node
from dovetail.model.pod import CPU_PROFILE, Pod, PreferenceWeights, Profile, RunningPod
from dovetail.model.relations import Preferences, Relations, Selector, SpreadConstraint
from dovetail.model.rules import AffinityTerm, Requirement
from tests.builders import ask, cluster, group, node, pod

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
WEB = Selector((("app", "web"),))
MAKER = "ReplicaSet/default/web"


def zoned(**zones: str) -> Scheduler:
    """zoned(a="east", b="west"): a node per word; "" = without the label."""
    return cluster(*(_node(name, zone) for name, zone in zones.items()))


def _node(name: str, zone: str, gpus: int = 0) -> Node:
    labels = {HOST: name} | ({ZONE: zone} if zone else {})
    return node(name, gpus=gpus, cpu=32_000, labels=labels)


def replica(name: str, profile: Profile = CPU_PROFILE, **facts: object) -> Pod:
    given: dict[str, object] = {"labels": {"app": "web"}, "maker": MAKER, "cpu": 100, **facts}
    return replace(pod(name, **given), profile=profile)  # type: ignore[arg-type]


def select(town: Scheduler, kind: str, name: str, selector: Selector | None, namespace: str = "default") -> None:
    town.handle(SelectorChanged(0.0, kind, namespace, name, selector))


def spread_over(town: Scheduler, pods: list[Pod]) -> Counter[str | None]:
    """Node -> pods, placed one after another."""
    for one in pods:
        town.handle(GroupArrived(0.0, group(one)))
    return Counter(town.ledger.node_of(one.uid) for one in pods)


@pytest.mark.parametrize(("kind", "name"), [("Service", "any"), ("ReplicaSet", "web")])
def test_twelve_pods_over_zones_of_one_and_three_nodes(kind: str, name: str) -> None:
    """kube-scheduler's Multi-AZ specs: 4 in the small zone, 8 in the large one.

    Without spreading, four empty nodes take three each.
    """
    town = zoned(a="east", b="west", c="west", d="west")
    select(town, kind, name, WEB)
    found = spread_over(town, [replica(f"p{n}") for n in range(12)])
    assert (found["a"], found["b"] + found["c"] + found["d"]) == (4, 8)


def test_without_a_selector_nothing_is_spread() -> None:
    town = zoned(a="east", b="west", c="west", d="west")
    assert set(spread_over(town, [replica(f"p{n}", cpu=1000) for n in range(12)]).values()) == {3}


def test_all_selectors_together_say_whom_a_pod_avoids() -> None:
    town = zoned(a="east")
    select(town, "Service", "front", Selector((("app", "web"),)))
    select(town, "Service", "other", Selector((("app", "db"),)))
    select(town, "Service", "elsewhere", Selector((("tier", "1"),)), namespace="prod")
    select(town, "ReplicaSet", "web", Selector((("hash", "1"),), (Requirement("old", "DoesNotExist"),)))
    labelled = replica("p", labels={"app": "web", "hash": "1", "tier": "1"})
    spread = town.related.preferred.default_spread
    wanted = Selector((("app", "web"), ("hash", "1")), (Requirement("old", "DoesNotExist"),))
    assert spread.constraints(labelled) == (
        SpreadConstraint(HOST, 3, False, wanted),
        SpreadConstraint(ZONE, 5, False, wanted),
    )


def test_a_selector_that_goes_is_forgotten() -> None:
    town = zoned(a="east")
    spread = town.related.preferred.default_spread
    for kind, name in (("Service", "s"), ("ReplicaSet", "web")):
        select(town, kind, name, WEB)
        assert spread.constraints(replica("p"))
        select(town, kind, name, None)
        assert not spread.constraints(replica("p"))


def test_own_constraints_take_the_place_of_the_defaults() -> None:
    """Hard ones, too, as with kube-scheduler."""
    town = zoned(a="east")
    select(town, "Service", "s", WEB)
    own = Relations(spread=(SpreadConstraint(HOST, 1, True, WEB),))
    assert town.related.preferred.default_spread.constraints(replica("p", relations=own)) == ()


def test_pods_with_devices_are_packed_unless_their_profile_says_otherwise() -> None:
    town = cluster(_node("a", "east", gpus=4), _node("b", "west", gpus=4))
    select(town, "ReplicaSet", "web", WEB)

    def gpu_pods(prefix: str, profile: Profile) -> list[Pod]:
        return [
            replace(pod(f"{prefix}{n}", ask(1, 100), labels={"app": "web"}, maker=MAKER), profile=profile)
            for n in range(4)
        ]

    assert len(spread_over(town, gpu_pods("packed", Profile()))) == 1
    town = cluster(_node("a", "east", gpus=4), _node("b", "west", gpus=4))
    select(town, "ReplicaSet", "web", WEB)
    assert set(spread_over(town, gpu_pods("spread", Profile(default_spread=True))).values()) == {2}


def test_a_node_without_a_zone_is_spread_over_by_its_name_alone() -> None:
    """Pods on a and b: hosts 1 × log(3 + 2) + 2 = 3.6 each, zones 1 × log(3 + 2) + 4 = 5.6: raw 9. c has no zone and no
    pod: 2. 100 × (9 + 2 − raw) / 9 is 22 of a and b, 100 of c; times 2."""
    town = zoned(a="east", b="west", c="")
    select(town, "Service", "s", WEB)
    for name, where in (("p0", "a"), ("p1", "b")):
        town.handle(PodObserved(0.0, RunningPod(replica(name), where, ())))
    every = np.ones(3, dtype=np.bool_)
    found = town.related.preferred.points(replica("p2"), every, PreferenceWeights(taints=0))
    assert dict(zip("abc", found.tolist(), strict=True)) == {"a": 44, "b": 44, "c": 200}


def test_nodes_with_devices_stay_free_though_spreading_would_use_them() -> None:
    """Two CPU nodes hold six replicas each before the GPU node gets one: 1,200 points against 200."""
    town = cluster(_node("a", "east"), _node("b", "east"), _node("gpu", "west", gpus=4))
    select(town, "Service", "s", WEB)
    found = spread_over(town, [replica(f"p{n}") for n in range(12)])
    assert (found["a"], found["b"], found["gpu"]) == (6, 6, 0)


def test_preferences_and_the_policy_are_added_up_as_kube_scheduler_does() -> None:
    """b is liked (2 × 100) but fuller. kubernetes: a 99 + 75 of an empty node, b 200 more than its own."""
    town = cluster(_node("a", ""), _node("b", ""))
    likes = Preferences(((1, AffinityTerm((Requirement(HOST, "In", ("b",)),))),))
    profile = replace(CPU_PROFILE, node="kubernetes")
    filler = replace(pod("filler", cpu=30_000), profile=profile)
    town.handle(GroupArrived(0.0, group(filler)))
    assert town.ledger.node_of(filler.uid) == "a"
    found = spread_over(town, [replica("p", profile, preferences=likes)])
    assert found == {"b": 1}
    unliked = replace(likes, nodes=((1, AffinityTerm((Requirement(HOST, "In", ("a",)),))),))
    # a is liked: 200 + 3 + 53 of a node with 30,100 of 32,000 CPU in use; b: 99 + 74
    found = spread_over(town, [replica("q", profile, preferences=unliked)])
    assert found == {"a": 1}


def test_the_chosen_node_is_the_best_that_explain_names() -> None:
    """b is twice as large: after the first replica there, spreading decides for a, against one point of resources."""
    large = node("b", cpu=128_000, labels={HOST: "b", ZONE: "west"})
    town = cluster(_node("a", "east"), large)
    select(town, "ReplicaSet", "web", WEB)
    for number in range(4):
        one = replica(f"p{number}", cpu=1000)
        best = explain(town, one).verdicts[0]
        assert spread_over(town, [one]) == {best.node: 1}
    assert town.ledger.node_of("uid-p0") == "b"
    assert town.ledger.node_of("uid-p1") == "a"
