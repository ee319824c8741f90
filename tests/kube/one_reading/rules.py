"""Rules of pods about nodes and about other pods, for generated sets of objects."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.kube.manifests import Object

ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
NEAR = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}


def placement_rules(dice: Random, spec: Object, nodes: list[str]) -> None:
    """One rule, sometimes two; some of them as no API server would accept them."""
    for _ in range(dice.choice((1, 1, 2))):
        rules = (_selects, _prefers, _tolerates, _requires, _nears, _nears, _avoids, _spreads, _port, _pinned)
        dice.choice(rules)(dice, spec, nodes)


def _selects(dice: Random, spec: Object, nodes: list[str]) -> None:
    spec["nodeSelector"] = {"zone": dice.choice(("a", "b", "c"))}


def _tolerates(dice: Random, spec: Object, nodes: list[str]) -> None:
    spec["tolerations"] = [
        {"key": "gpu", "operator": dice.choice(("Exists", "Exists", "Equal", "Equal", "bogus")), "value": "yes"}
    ]


def _affinity(spec: Object) -> Any:
    return spec.setdefault("affinity", {})


def _requires(dice: Random, spec: Object, nodes: list[str]) -> None:
    row = {**ZONE, "operator": dice.choice(("In", "In", "In", "NotIn", "Exists", "Gt", "bogus"))}
    required = {"nodeSelectorTerms": [{"matchExpressions": [row]}]}
    _affinity(spec)["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}


def _prefers(dice: Random, spec: Object, nodes: list[str]) -> None:
    row = {"weight": dice.choice((1, 10, 100, 100, 0)), "preference": {"matchExpressions": [ZONE]}}
    _affinity(spec)["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [row]}


def _nears(dice: Random, spec: Object, nodes: list[str]) -> None:
    term = {**NEAR, "namespaceSelector": {"matchLabels": {"team": "a"}}} if dice.random() < 0.3 else NEAR
    _affinity(spec)["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _avoids(dice: Random, spec: Object, nodes: list[str]) -> None:
    term = {**NEAR, "topologyKey": dice.choice(("zone", "kubernetes.io/hostname", "kubernetes.io/hostname", ""))}
    _affinity(spec)["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _spreads(dice: Random, spec: Object, nodes: list[str]) -> None:
    whether = dice.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway", "bogus"))
    row = {"maxSkew": dice.choice((1, 1, 1, 2, 0)), "topologyKey": "zone", "whenUnsatisfiable": whether}
    spec["topologySpreadConstraints"] = [row | {"labelSelector": {"matchLabels": {"app": "x"}}}]


def _port(dice: Random, spec: Object, nodes: list[str]) -> None:
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]


def _pinned(dice: Random, spec: Object, nodes: list[str]) -> None:
    row = {"key": "metadata.name", "operator": "In", "values": [dice.choice((*nodes, "gone"))]}
    required = {"nodeSelectorTerms": [{"matchFields": [row]}]}
    _affinity(spec)["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
