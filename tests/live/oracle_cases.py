"""Small clusters and pods to be placed on them, as API objects, drawn from a seed: few labels, so that rules collide.

A case is about a few themes; each pod takes up most of them. What a theme needs of nodes and of pods that run already
stands beside what it asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

Object = dict[str, Any]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
SPACES = {"blue": {"team": "b", "env": "prod"}, "green": {"team": "g"}, "bare": {}}
DONGLE = "example.com/dongle"
HEAVY = "heavy"  # a RuntimeClass with overhead
FINALIZER = "example.com/wait"
GATE = {"name": "example.com/wait"}
BETWEEN_PODS = ("anti-affinity", "ports", "spread", "volumes", "resources")
RANKS = {"low": 10, "mid": 100, "high": 1000}  # PriorityClasses; who has none has 0
MIB = 2**20
IMAGES = {"app/small:1": 40 * MIB, "app/large:1": 700 * MIB, "app/huge:latest": 2500 * MIB}
# claim of namespace blue -> zones of the volume it is bound to; those of zone "label" are told by the volume's label
CLAIMS = {"in-a": "a", "in-b": "b", "label-a": "label", "alone": ""}


@dataclass
class Case:
    seed: int
    themes: tuple[str, ...]
    nodes: list[Object]
    running: list[Object]  # with nodeName
    pods: list[Object]  # one after the other
    resized: dict[str, Object] = field(default_factory=dict)  # name of a running pod -> its status
    leaving: list[str] = field(default_factory=list)  # running pods to be deleted that stay for a finalizer
    leaves_early: float = 0.0  # how likely one of the pods is gone before the next comes
    nominated: list[tuple[Object, str]] = field(default_factory=list)  # pods that wait, and the node kept for each
    own: dict[str, str] = field(default_factory=dict)  # name of one of `pods` that is nominated itself -> its node
    renominated: float = 0.0  # how likely one of these gets another node, or none, before the next pod comes


def case(seed: int) -> Case:
    chance = Random(seed)
    themes = tuple(chance.sample(sorted(THEMES), chance.choice((1, 2, 2, 3, 4))))
    if chance.random() < 0.35:  # a rule that meets all the others, above all those about other pods
        themes = tuple(dict.fromkeys((*themes, "nominated", chance.choice(("affinity", "affinity", *BETWEEN_PODS)))))
    names = [f"c{seed}-n{number}" for number in range(chance.randint(3, 7))]
    made = Case(seed, themes, [_node(chance, name, themes) for name in names], [], [])
    for number in range(chance.randint(2, 8) if "spread" in themes else chance.randint(0, 5)):
        pod = _pod(chance, f"c{seed}-r{number}", themes, names)
        pod["spec"]["nodeName"] = chance.choice(names)
        pod["spec"].pop("schedulingGates", None)
        made.running.append(pod)
        name = pod["metadata"]["name"]
        if "resize" in themes and chance.random() < 0.8:
            made.resized[name] = _resized(chance)
        elif chance.random() < (0.5 if "leaving" in themes else 0.05):
            pod["metadata"]["finalizers"] = [FINALIZER]
            made.leaving.append(name)
    made.pods = [_pod(chance, f"c{seed}-p{number}", themes, names) for number in range(chance.randint(3, 6))]
    made.leaves_early = 0.3
    if "nominated" in themes:
        made.nominated = [_nominated(chance, f"c{seed}-w{n}", themes, names) for n in range(chance.randint(1, 4))]
        made.own = {pod["metadata"]["name"]: chance.choice(names) for pod in made.pods if chance.random() < 0.2}
        made.renominated = 0.3
    return made


# ---- nodes ------------------------------------------------------------------------------------------------------


def _node(chance: Random, name: str, themes: tuple[str, ...]) -> Object:
    labels = {HOST: name, ZONE: chance.choice("aabc"), "rack": chance.choice(["1", "2", "3", ""]), "disk": "ssd"}
    labels["gen"] = chance.choice(["1", "3", "5", "1_0", "1.0", "new", "007"])
    for label in (ZONE, "rack", "disk", "gen"):
        if chance.random() < 0.2:
            del labels[label]
    if chance.random() < 0.04:
        del labels[HOST]
    tight = "resources" in themes or "resize" in themes or "whole-pod" in themes or "overhead" in themes
    tight = tight or "nominated" in themes
    has = {"cpu": chance.choice(("2", "3", "4")) if tight else "64", "memory": "8Gi", "pods": "110"}
    has["ephemeral-storage"] = "4Gi"
    if tight and chance.random() < 0.5:
        has |= {DONGLE: chance.choice("12"), "pods": chance.choice("234")}
    spec: Object = {}
    if "cordoned" in themes and chance.random() < 0.4:
        spec["unschedulable"] = True
    spec["taints"] = _taints(chance, themes)
    images = [
        {"names": [image, f"{image.partition(':')[0]}@sha256:{'0' * 64}"], "sizeBytes": size}
        for image, size in IMAGES.items()
        if "images" in themes and chance.random() < 0.5
    ]
    status = {"capacity": has, "allocatable": has, "images": images}
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}


def _taints(chance: Random, themes: tuple[str, ...]) -> list[Object]:
    rows = []
    if "taints" in themes or "spread" in themes or "soft-spread" in themes:
        rows += [("k", "x", "NoSchedule"), ("k", "", "NoExecute"), ("other", "y", "NoSchedule")]
    if "soft-taints" in themes:
        rows += [("k", "x", "PreferNoSchedule"), ("old", "", "PreferNoSchedule"), ("slow", "1", "PreferNoSchedule")]
    likely = 0.25 if "taints" in themes or "soft-taints" in themes else 0.12
    return [{"key": k, "value": v, "effect": e} for k, v, e in rows if chance.random() < likely]


# ---- pods -------------------------------------------------------------------------------------------------------


def _pod(chance: Random, name: str, themes: tuple[str, ...], nodes: list[str]) -> Object:
    labels = {label: chance.choice(of) for label, of in (("app", "pq"), ("tier", "12")) if chance.random() < 0.85}
    spaces = ("blue", "blue", "green", "bare") if "spread" not in themes else ("blue", "blue", "blue", "green")
    meta = {"name": name, "namespace": chance.choice(spaces), "labels": labels}
    main: Object = {"name": "main", "image": "app/none:1"}
    spec: Object = {"containers": [main], "terminationGracePeriodSeconds": 30}
    for theme in sorted(themes, key=lambda theme: theme == "whole-pod"):  # which takes the place of other requests
        if chance.random() < 0.75:
            THEMES[theme](chance, spec, meta, nodes)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _nominated(chance: Random, name: str, themes: tuple[str, ...], nodes: list[str]) -> tuple[Object, str]:
    """A gate keeps it waiting, whatever happens; kube-scheduler holds the node for it all the same."""
    pod = _pod(chance, name, themes, nodes)
    pod["spec"]["schedulingGates"] = [GATE]
    return pod, chance.choice(nodes) if chance.random() < 0.95 else "gone"


def _selector(chance: Random) -> Object | None:
    if chance.random() < 0.06:
        return None
    made: Object = {}
    if chance.random() < 0.65:
        made["matchLabels"] = {"app": chance.choice("pq")}
    rows = (
        {"key": "tier", "operator": "In", "values": ["1"]},
        {"key": "tier", "operator": "NotIn", "values": ["1"]},
        {"key": "tier", "operator": "Exists"},
        {"key": "app", "operator": "DoesNotExist"},
    )
    made["matchExpressions"] = [row for row in rows if chance.random() < 0.12]
    return made


def _term(chance: Random) -> Object:
    term: Object = {"topologyKey": chance.choice((HOST, ZONE, ZONE, "rack")), "labelSelector": _selector(chance)}
    if term["labelSelector"] is not None and chance.random() < 0.15:
        used = str(term["labelSelector"])
        term[chance.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["tier"] if "tier" not in used else []
    if chance.random() < 0.3:
        term["namespaces"] = [space for space in SPACES if chance.random() < 0.3]
        term["namespaceSelector"] = chance.choice(
            (
                {},
                {"matchLabels": {"team": "g"}},
                {"matchExpressions": [{"key": "env", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]},
                {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]},
            )
        )
    elif chance.random() < 0.2:
        term["namespaces"] = ["blue", "green"]
    return term


def _affinity(spec: Object, kind: str) -> Object:
    found: Object = spec.setdefault("affinity", {}).setdefault(kind, {})
    return found


def _node_rows(chance: Random) -> list[Object]:
    rows = (
        {"key": ZONE, "operator": "In", "values": ["a", "b"]},
        {"key": ZONE, "operator": "NotIn", "values": ["a"]},
        {"key": "disk", "operator": "Exists"},
        {"key": "rack", "operator": "DoesNotExist"},
        {"key": "gen", "operator": "Gt", "values": ["2"]},
        {"key": "gen", "operator": "Lt", "values": ["3"]},
    )
    return chance.sample(rows, chance.choice((1, 1, 2)))


def _node_term(chance: Random, nodes: list[str], fields: float) -> Object:
    term: Object = {}
    if chance.random() < fields:
        operator = chance.choice(("In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [chance.choice(nodes)]}]
    if not term or chance.random() < 0.3:
        term["matchExpressions"] = _node_rows(chance)
    return term


# ---- themes -----------------------------------------------------------------------------------------------------


def _selects(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    spec["nodeSelector"] = chance.choice(({"disk": "ssd"}, {ZONE: "a"}, {"rack": ""}))


def _node_affinity(chance: Random, spec: Object, _meta: Object, nodes: list[str]) -> None:
    terms = [_node_term(chance, nodes, 0.0) for _ in range(chance.choice((1, 1, 2)))]
    _affinity(spec, "nodeAffinity")[REQUIRED] = {"nodeSelectorTerms": terms}


def _fields(chance: Random, spec: Object, _meta: Object, nodes: list[str]) -> None:
    terms = [_node_term(chance, nodes, 0.9) for _ in range(chance.choice((1, 2)))]
    _affinity(spec, "nodeAffinity")[REQUIRED] = {"nodeSelectorTerms": terms}


def _tolerates(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    rows = (
        {"key": "k", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
        {"key": "k", "operator": "Exists"},
        {"key": "other", "operator": "Equal", "value": "y"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"operator": "Exists"},
        {"key": "old", "operator": "Exists", "effect": "PreferNoSchedule"},
        {"key": "slow", "value": "1"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    )
    spec["tolerations"] = [row for row in rows if chance.random() < 0.2]


def _ports(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    ports = {
        (chance.choice((8080, 8081)), chance.choice(("TCP", "UDP")), chance.choice(("", "127.0.0.1", "10.1.1.1"))): None
        for _ in range(chance.choice((1, 1, 2)))
    }
    rows = [{"containerPort": p, "hostPort": p, "protocol": how, "hostIP": ip} for p, how, ip in ports]
    if chance.random() < 0.2:
        sidecar = {"name": "side", "image": "app/none:1", "restartPolicy": "Always", "ports": rows}
        spec.setdefault("initContainers", []).append(sidecar)
    else:
        spec["containers"][0]["ports"] = rows
        if chance.random() < 0.2:
            spec["hostNetwork"] = True


def _asks(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    requests = {"cpu": chance.choice(("300m", "1", "1500m")), "memory": chance.choice(("1Gi", "5Gi"))}
    if chance.random() < 0.25:
        requests[DONGLE] = "1"
    if chance.random() < 0.4:
        requests["ephemeral-storage"] = "2500Mi"
    limits = {DONGLE: "1"} if DONGLE in requests else {}
    spec["containers"][0]["resources"] = {"requests": requests, "limits": limits}
    for kind, likely in (("init", 0.3), ("sidecar", 0.3)):
        if chance.random() < likely:
            container: Object = {"name": kind, "image": "app/none:1"}
            container["resources"] = {"requests": {"cpu": chance.choice(("500m", "2"))}}
            if kind == "sidecar":
                container["restartPolicy"] = "Always"
            spec.setdefault("initContainers", []).append(container)
            chance.shuffle(spec["initContainers"])


def _overhead(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    spec["runtimeClassName"] = HEAVY
    spec["containers"][0].setdefault("resources", {"requests": {"cpu": chance.choice(("500m", "1"))}})


def _whole_pod(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container.pop("resources", None)
    spec["containers"].append({"name": "second", "image": "app/none:1"})
    if chance.random() < 0.5:
        spec["containers"][0]["resources"] = {"requests": {"cpu": "200m"}}
    spec["resources"] = {"requests": {"cpu": chance.choice(("1", "2")), "memory": "2Gi"}}


def _resize(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    spec["containers"][0].setdefault("resources", {"requests": {"cpu": chance.choice(("500m", "1"))}})


def _resized(chance: Random) -> Object:
    given = {"cpu": chance.choice(("250m", "1", "2"))}
    main = {
        "name": "main",
        "image": "app/none:1",
        "imageID": "x",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {}},
        "resources": {"requests": given},
        "allocatedResources": {"cpu": chance.choice(("250m", "1500m"))},
    }
    reason = chance.choice(("", "", "Deferred", "Infeasible"))
    pending = {"type": "PodResizePending", "status": "True", "reason": reason, "message": ""}
    return {"phase": "Running", "containerStatuses": [main], "conditions": [pending] if reason else []}


def _together(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    _affinity(spec, "podAffinity")[REQUIRED] = [_term(chance) for _ in range(chance.choice((1, 1, 2)))]


def _apart(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    _affinity(spec, "podAntiAffinity")[REQUIRED] = [_term(chance) for _ in range(chance.choice((1, 1, 2)))]


def _likes(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    for kind in ("podAffinity", "podAntiAffinity"):
        if chance.random() < 0.6:
            weights = [chance.choice((1, 10, 33, 100)) for _ in range(chance.choice((1, 2)))]
            _affinity(spec, kind)[PREFERRED] = [{"weight": w, "podAffinityTerm": _term(chance)} for w in weights]


def _prefers(chance: Random, spec: Object, _meta: Object, nodes: list[str]) -> None:
    weights = [chance.choice((1, 10, 33, 100)) for _ in range(chance.choice((1, 2, 3)))]
    rows = [{"weight": w, "preference": _node_term(chance, nodes, 0.2)} for w in weights]
    _affinity(spec, "nodeAffinity")[PREFERRED] = rows


def _constraint(chance: Random, key: str, hard: bool) -> Object:
    made: Object = {"topologyKey": key, "maxSkew": chance.choice((1, 1, 2)), "labelSelector": _selector(chance)}
    made["whenUnsatisfiable"] = "DoNotSchedule" if hard else "ScheduleAnyway"
    if hard and chance.random() < 0.3:
        made["minDomains"] = chance.choice((2, 3, 4))
    if chance.random() < 0.4:
        made["nodeAffinityPolicy"] = chance.choice(("Honor", "Ignore"))
    if chance.random() < 0.5:
        made["nodeTaintsPolicy"] = chance.choice(("Honor", "Honor", "Ignore"))
    if made["labelSelector"] is not None and "tier" not in str(made["labelSelector"]) and chance.random() < 0.2:
        made["matchLabelKeys"] = ["tier"]
    return made


def _spread(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    keys = chance.sample((HOST, ZONE, "rack"), chance.choice((1, 1, 2)))
    spec.setdefault("topologySpreadConstraints", []).extend(_constraint(chance, key, True) for key in keys)


def _soft_spread(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    keys = chance.sample((HOST, ZONE, "rack"), chance.choice((1, 2)))
    spec.setdefault("topologySpreadConstraints", []).extend(_constraint(chance, key, False) for key in keys)


def _images(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    names = [name.removesuffix(":latest") for name in IMAGES]
    spec["containers"][0]["image"] = chance.choice(names)
    if chance.random() < 0.4:
        spec["containers"].append({"name": "another", "image": chance.choice(names)})


def _gates(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    if chance.random() < 0.4:
        spec["schedulingGates"] = [GATE]


def _volumes(chance: Random, spec: Object, meta: Object, _nodes: list[str]) -> None:
    meta["namespace"] = "blue"
    claim = chance.choice((*CLAIMS, *CLAIMS, "missing"))
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]


def _ranks(chance: Random, spec: Object, _meta: Object, _nodes: list[str]) -> None:
    spec["priorityClassName"] = chance.choice(sorted(RANKS))
    spec["containers"][0].setdefault("resources", {"requests": {"cpu": chance.choice(("500m", "1", "1500m"))}})


def _nothing(_chance: Random, _spec: Object, _meta: Object, _nodes: list[str]) -> None:
    """The theme is about nodes, or about pods that run already."""


THEMES: dict[str, Callable[[Random, Object, Object, list[str]], None]] = {
    "selector": _selects,
    "node-affinity": _node_affinity,
    "fields": _fields,
    "taints": _tolerates,
    "cordoned": _tolerates,
    "ports": _ports,
    "resources": _asks,
    "overhead": _overhead,
    "whole-pod": _whole_pod,
    "resize": _resize,
    "affinity": _together,
    "anti-affinity": _apart,
    "spread": _spread,
    "leaving": _nothing,
    "gates": _gates,
    "volumes": _volumes,
    "soft-taints": _tolerates,
    "preferred-nodes": _prefers,
    "preferred-pods": _likes,
    "soft-spread": _soft_spread,
    "images": _images,
    "nominated": _ranks,
}
