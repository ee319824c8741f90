"""Gangs of every kind and topologies, right and wrong ones, for generated sets of objects."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.kube.manifests import Object

POD_GROUPS = {  # API group -> version
    "scheduling.x-k8s.io": "v1alpha1",
    "scheduling.sigs.k8s.io": "v1alpha1",
    "scheduling.volcano.sh": "v1beta1",
    "scheduling.run.ai": "v2alpha2",
    "scheduling.k8s.io": "v1alpha2",
}
NAMES, LEVELS = ("g0", "g1", "g2"), ("zone", "kubernetes.io/hostname", "nowhere", "not a label")
SIZES = ("1", "2", "2", "3", "0", "x", "99999", "")
TOGETHER = ('["ml/g0", "ml/g1"]', '["ml/g1", "ml/g0"]', '["ml/g0"]', "[]", "x", '["default/g0", "ml/g1"]')
KOORDINATOR = "gang.scheduling.koordinator.sh/"


def _maybe(dice: Random, into: Object, key: str, *values: Any) -> None:
    if dice.random() < 0.4:
        into[key] = dice.choice(values)


def own_rules(dice: Random, notes: Object) -> None:
    for key in ("topology-required", "topology-preferred", "gang-topology-required"):
        if dice.random() < 0.15:
            notes[f"dovetail.dev/{key}"] = dice.choice(LEVELS)
    if dice.random() < 0.1:
        notes["dovetail.dev/topology-spread"] = dice.choice(("zone>=2", "zone<=1, zone>=1", "zone", "zone<=0"))


def join_gang(dice: Random, item: Object) -> None:
    """Make a pod a member of a gang, in any of the ways."""
    meta, name = item["metadata"], dice.choice((*NAMES, "gone"))
    labels, notes = meta.setdefault("labels", {}), meta.setdefault("annotations", {})
    way = dice.choice((_own, _koordinator, _kai, _volcano, _workload, _job_set, _leader_worker_set, _job))
    way(dice, name, item["spec"], labels, notes)
    if dice.random() < 0.3:
        own_rules(dice, notes)
    if dice.random() < 0.2:
        notes["dovetail.dev/gang-role"] = dice.choice(("a", "b"))
        _maybe(dice, notes, "dovetail.dev/gang-role-size", *SIZES)


def _own(dice: Random, name: str, spec: Object, labels: Object, notes: Object) -> None:
    notes["dovetail.dev/gang"] = name
    notes["dovetail.dev/gang-size"] = dice.choice(("1", "2", *SIZES))


def _koordinator(dice: Random, name: str, spec: Object, labels: Object, notes: Object) -> None:
    notes[f"{KOORDINATOR}name"] = name
    _maybe(dice, notes, f"{KOORDINATOR}min-available", *SIZES)
    _maybe(dice, notes, f"{KOORDINATOR}waiting-time", "10s", "1h", "soon")
    _maybe(dice, notes, f"{KOORDINATOR}groups", *TOGETHER)


def _kai(dice: Random, name: str, spec: Object, labels: Object, notes: Object) -> None:
    notes["pod-group-name"] = name
    _maybe(dice, labels, "kai.scheduler/subgroup-name", "a", "b", "top")


def _volcano(dice: Random, name: str, spec: Object, labels: Object, notes: Object) -> None:
    notes["scheduling.k8s.io/group-name"] = name
    _maybe(dice, notes, "volcano.sh/task-spec", "a", "b")


def _workload(dice: Random, name: str, spec: Object, labels: Object, notes: Object) -> None:
    spec["workloadRef"] = {"name": name, "podGroup": dice.choice("ab")}
    _maybe(dice, spec["workloadRef"], "podGroupReplicaKey", "0", "1")


def _job_set(dice: Random, name: str, spec: Object, labels: Object, notes: Object) -> None:
    labels["jobset.sigs.k8s.io/jobset-name"] = name
    labels["jobset.sigs.k8s.io/replicatedjob-name"] = dice.choice("ab")
    _maybe(dice, notes, "dovetail.dev/gang", "true", "True")


def _leader_worker_set(dice: Random, name: str, spec: Object, labels: Object, notes: Object) -> None:
    for key, values in (("name", (name,)), ("group-index", ("0", "1")), ("worker-index", ("0", "1", "2"))):
        labels[f"leaderworkerset.sigs.k8s.io/{key}"] = dice.choice(values)
    _maybe(dice, notes, "leaderworkerset.sigs.k8s.io/size", *SIZES)
    _maybe(dice, notes, "dovetail.dev/gang", "true")


def _job(dice: Random, name: str, spec: Object, labels: Object, notes: Object) -> None:
    labels["batch.kubernetes.io/job-name"] = name
    notes["dovetail.dev/gang"] = "true"
    _maybe(dice, notes, "dovetail.dev/gang-size", *SIZES)


def pod_group_spec(dice: Random, group: str) -> Object:
    least = dice.choice((1, 1, 2, 2, 2, 3, 0, -1, 2**31))
    if group == "scheduling.k8s.io":
        spec: Object = {"schedulingPolicy": dice.choice(({"gang": {"minCount": least}}, {"basic": {}}, {}))}
        _maybe(dice, spec, "schedulingConstraints", *({"topology": [{"key": level}]} for level in LEVELS))
        return spec
    spec = {"minMember": least}
    _maybe(dice, spec, "scheduleTimeoutSeconds", 0, 10, -1)
    if group == "scheduling.volcano.sh":
        _maybe(dice, spec, "minTaskMember", {"a": 1}, {"a": 1, "b": 1}, {"a": -1}, {"a": 9})
        modes = ({"mode": "hard", "highestTierAllowed": 1}, {"mode": "soft"}, {"mode": "hard"})
        _maybe(dice, spec, "networkTopology", *modes)
        _maybe(dice, spec, "queue", "ml", "default")
    if group == "scheduling.run.ai":
        rule = {"requiredTopologyLevel": dice.choice(LEVELS)}
        subs = [
            {"name": "top", "topologyConstraint": rule},
            {"name": "a", "minMember": 1, "parent": "top"},
            {"name": "b"},
        ]
        _maybe(dice, spec, "subGroups", subs, subs[1:], subs[:1])
        _maybe(dice, spec, "topologyConstraint", rule)
    return spec


def pod_group_notes(dice: Random, group: str) -> Object:
    notes: Object = {}
    own_rules(dice, notes)
    if group == "scheduling.sigs.k8s.io":
        _maybe(dice, notes, f"{KOORDINATOR}groups", *TOGETHER)
    return notes


def job_set_spec(dice: Random) -> Object:
    """Suspended, so that only the pods of the set exist."""
    jobs: list[Object] = [
        {
            "name": name,
            "replicas": dice.choice((0, 1, 1)),
            "template": {"spec": {"parallelism": dice.choice((1, 1, 2))}},
        }
        for name in "ab"
    ]
    _maybe(dice, jobs[1], "dependsOn", [{"name": "a", "status": "Ready"}])
    for job in jobs:
        job["template"]["spec"]["template"] = {"spec": {"containers": [{"name": "c"}]}}
    spec: Object = {"suspend": True, "replicatedJobs": jobs}
    _maybe(dice, spec, "startupPolicy", {"startupPolicyOrder": "InOrder"})
    return spec


def workload_spec(dice: Random) -> Object:
    return {"podGroups": [{"name": name, "policy": {"gang": {"minCount": dice.choice((1, 2, -1))}}} for name in "ab"]}


def topology_spec(dice: Random) -> Object:
    return {"levels": [{"nodeLabel": dice.choice(LEVELS)} for _ in range(dice.randint(0, 3))]}


def hyper_node_spec(dice: Random, nodes: list[str]) -> Object:
    ways: list[Object] = [{"exactMatch": {"name": name}} for name in (*nodes, "h0")]
    ways += [{"regexMatch": {"pattern": text}} for text in ("^n", "n[01]$", "(", "(a+)+")]
    ways += [{"labelMatch": {"matchLabels": {"zone": "a"}}}, {}]
    members = [
        {"type": dice.choice(("Node", "Node", "HyperNode")), "selector": dice.choice(ways)}
        for _ in range(dice.randint(0, 3))
    ]
    spec: Object = {"tier": dice.choice((1, 2, 2, 0, 99)), "members": members}
    _maybe(dice, spec, "tierName", "rack")
    return spec
