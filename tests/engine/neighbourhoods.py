"""Small clusters of pods that have much to do with one another, for property tests: few labels, so they collide."""

from __future__ import annotations

from random import Random

from dovetail.model.node import Node, Taint
from dovetail.model.pod import Pod
from dovetail.model.relations import HostPort, PodTerm, Preferences, Relations, Selector, SpreadConstraint
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement, Toleration
from tests import builders

MIB = 2**20
HOST, ZONE, RACK = "kubernetes.io/hostname", "zone", "rack"
SPACES = {"blue": {"team": "b", "env": "prod"}, "green": {"team": "g"}, "bare": {}}  # `nobody` has no namespace object


def some_nodes(chance: Random, count: int) -> list[Node]:
    return [some_node(chance, f"n{number}") for number in range(count)]


def some_node(chance: Random, name: str) -> Node:
    labels = {HOST: name, ZONE: chance.choice("abc"), RACK: chance.choice(["1", "2", "3", "4", ""]), "disk": "ssd"}
    for label in (ZONE, RACK, "disk"):
        if chance.random() < 0.2:
            del labels[label]
    if chance.random() < 0.05:
        del labels[HOST]
    taints = [Taint("k", chance.choice("xy"), effect) for effect in ("NoSchedule", "PreferNoSchedule", "NoExecute")]
    taints += [Taint("old", "", "PreferNoSchedule")]
    images = {f"image-{n}:1": size * MIB for n, size in enumerate((40, 300, 900)) if chance.random() < 0.4}
    own = tuple(taint for taint in taints if chance.random() < 0.25)
    return builders.node(name, labels=labels, taints=own, images=images)


def some_selector(chance: Random) -> Selector | None:
    if chance.random() < 0.08:
        return None
    labels = tuple(sorted({"app": chance.choice("pq")}.items())) if chance.random() < 0.6 else ()
    rows = (
        Requirement("tier", "In", ("1", "2")),
        Requirement("tier", "NotIn", ("1",)),
        Requirement("tier", "Exists"),
        Requirement("app", "DoesNotExist"),
        Requirement("app", "In", ("p",)),
    )
    return Selector(labels, tuple(row for row in rows if chance.random() < 0.15))


def some_term(chance: Random, namespace: str, weight: int = 0) -> PodTerm:
    spaces: tuple[str, ...] = (namespace,)
    among = None
    if chance.random() < 0.3:
        spaces = tuple(name for name in SPACES if chance.random() < 0.3)
        among = chance.choice(
            (
                Selector(),
                Selector((("team", "g"),)),
                Selector((), (Requirement("env", "Exists"),)),
                Selector((), (Requirement("env", "DoesNotExist"),)),
                Selector((), (Requirement("team", "NotIn", ("b",)),)),
            )
        )
    elif chance.random() < 0.2:
        spaces = ("blue", "green")
    return PodTerm(chance.choice((HOST, ZONE, ZONE, RACK)), some_selector(chance), spaces, among, weight)


def some_constraint(chance: Random, hard: bool) -> SpreadConstraint:
    return SpreadConstraint(
        chance.choice((HOST, ZONE, ZONE, RACK)),
        chance.choice((1, 1, 2, 3)),
        hard,
        some_selector(chance),
        chance.choice((1, 1, 1, 3, 5)) if hard else 1,
        chance.random() < 0.7,
        chance.random() < 0.4,
    )


def some_pod(chance: Random, name: str, eager: float = 0.25) -> Pod:
    """`eager`: how likely each sort of rule is."""
    namespace = chance.choice((*SPACES, "blue", "nobody"))
    labels = {
        label: chance.choice(values) for label, values in (("app", "pq"), ("tier", "123")) if chance.random() < 0.8
    }

    def terms(most: int = 2, weighted: bool = False) -> tuple[PodTerm, ...]:
        if chance.random() > eager:
            return ()
        weights = [chance.choice((1, 7, 50, 100)) if weighted else 0 for _ in range(chance.randint(1, most))]
        return tuple(some_term(chance, namespace, weight) for weight in weights)

    spread = tuple(some_constraint(chance, chance.random() < 0.5) for _ in range(3) if chance.random() < eager / 2)
    ports = tuple(
        HostPort(
            chance.choice((80, 81)), chance.choice(("TCP", "UDP")), chance.choice(("0.0.0.0", "10.0.0.1", "10.0.0.2"))
        )
        for _ in range(2)
        if chance.random() < eager / 2
    )
    relations = Relations(terms(), terms(1), terms(2, True), terms(2, True), spread, ports)
    return builders.pod(
        name,
        namespace=namespace,
        labels=labels,
        relations=relations,
        preferences=some_preferences(chance, eager),
        node_rules=some_rules(chance),
        leaving=chance.random() < 0.1,
    )


def some_rules(chance: Random) -> NodeRules:
    affinity = None
    if chance.random() < 0.2:
        affinity = (AffinityTerm((Requirement(ZONE, "In", ("a", "b")),)),)
    tolerations = (
        Toleration("k", "Equal", "x"),
        Toleration("k", "Exists", effect="NoSchedule"),
        Toleration("", "Exists"),
    )
    return NodeRules(
        selector=(("disk", "ssd"),) if chance.random() < 0.2 else (),
        affinity=affinity,
        tolerations=tuple(one for one in tolerations if chance.random() < 0.15),
    )


def some_preferences(chance: Random, eager: float) -> Preferences:
    terms = (
        (40, AffinityTerm((Requirement(ZONE, "In", ("a",)),))),
        (7, AffinityTerm((Requirement("disk", "Exists"),))),
        (100, AffinityTerm((), (Requirement("metadata.name", "In", ("n1",)),))),
        (3, AffinityTerm()),
    )
    images = tuple(f"image-{chance.randint(0, 4)}:1" for _ in range(chance.randint(1, 3)))
    return Preferences(tuple(term for term in terms if chance.random() < eager), images, len(images))
