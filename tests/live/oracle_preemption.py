"""Full nodes and one pod that outranks others, as API objects drawn from a seed; and kube-scheduler's own criteria.

Each case has its own namespace and its own nodes, which its pods select by a label. So many cases stand side by side in
one cluster, and kube-scheduler decides all of them at one start. No kubelet runs: who was told to end stays there.
The criteria are computed here from the API objects alone, by code that shares nothing with the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import permutations, product
from random import Random
from typing import Any

from tests.live.assigned import quantity

Object = dict[str, Any]
HOST, ZONE, CASE = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/case"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DONGLE = "example.com/dongle"
RANKS = {"r0": 0, "r1": 10, "r2": 100, "r3": 1000, "r4": 5000}
POLITE = "polite"  # a class of the highest rank that never preempts
BEGAN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@dataclass
class PreemptionCase:
    seed: int
    nodes: list[Object]
    running: list[Object]  # with nodeName
    started: dict[str, float]  # name of a running pod -> seconds
    budgets: list[tuple[Object, int]]  # and how many may be stopped
    pod: Object  # that needs a place
    themes: frozenset[str] = frozenset()

    @property
    def namespace(self) -> str:
        return f"case-{self.seed}"


def preemption_case(seed: int) -> PreemptionCase:
    chance = Random(seed)
    themes = frozenset(chance.sample(sorted(THEMES), chance.choice((0, 1, 2, 2, 3))))
    nodes = [_node(chance, seed, n, themes) for n in range(chance.choice((1, 2, 2, 3, 4)))]
    running: list[Object] = []
    started: dict[str, float] = {}
    for node in nodes:
        for _ in range(chance.randint(2, 6)):
            name = f"p{len(running)}"
            made = _pod(chance, seed, name, chance.choice(("r0", "r1", "r1", "r2", "r2", "r3")), themes)
            made["spec"]["nodeName"] = node["metadata"]["name"]
            _keep_ports_apart(made, running)
            running.append(made)
            started[name] = BEGAN + chance.choice((0, 0, 60, 120, 3600, 7200))
    pod = _pod(chance, seed, "preemptor", chance.choice(("r2", "r3", "r3", "r4")), themes, wants=True)
    if chance.random() < 0.06:
        pod["spec"]["priorityClassName"] = POLITE
    budgets = [_budget(chance, seed, n) for n in range(chance.choice((0, 0, 1, 1, 2)))]
    return PreemptionCase(seed, nodes, running, started, budgets, pod, themes)


def _keep_ports_apart(made: Object, running: list[Object]) -> None:
    """Take away a port that another pod of the node has: no two pods run so, and kube-scheduler counts it once."""
    main = made["spec"]["containers"][0]
    taken = [
        one["spec"]["containers"][0].get("ports")
        for one in running
        if one["spec"]["nodeName"] == made["spec"]["nodeName"]
    ]
    if main.get("ports") in taken:
        main.pop("ports", None)


def _node(chance: Random, seed: int, number: int, themes: frozenset[str]) -> Object:
    name = f"c{seed}-n{number}"
    labels = {
        HOST: name,
        ZONE: f"c{seed}-{chance.choice('ab')}",
        CASE: str(seed),
        "disk": chance.choice(("ssd", "hdd")),
    }
    has = {"cpu": chance.choice(("3", "4")), "memory": "8Gi", "pods": chance.choice(("4", "20")), DONGLE: "2"}
    spec: Object = {"taints": []}
    if "taints" in themes and chance.random() < 0.4:
        spec["taints"] = [{"key": "k", "value": "x", "effect": "NoSchedule"}]
    if "cordoned" in themes and chance.random() < 0.3:
        spec["unschedulable"] = True
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": _status(has)}


def _status(has: Object) -> Object:
    return {"capacity": has, "allocatable": has}


def _pod(chance: Random, seed: int, name: str, rank: str, themes: frozenset[str], wants: bool = False) -> Object:
    labels = {"app": chance.choice("pq"), "tier": chance.choice("12")}
    asks = {"cpu": chance.choice(("1500m", "2", "2500m", "3") if wants else ("250m", "500m", "1", "1500m"))}
    if chance.random() < 0.5:
        asks["memory"] = chance.choice(("1Gi", "2Gi", "5Gi"))
    main: Object = {"name": "main", "image": "x", "resources": {"requests": asks}}
    spec: Object = {"containers": [main], "priorityClassName": rank, "nodeSelector": {CASE: str(seed)}}
    spec["terminationGracePeriodSeconds"] = 30
    for theme in sorted(themes):
        if chance.random() < 0.7:
            THEMES[theme](chance, spec, main, wants)
    meta = {"name": name, "namespace": f"case-{seed}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _budget(chance: Random, seed: int, number: int) -> tuple[Object, int]:
    selector = chance.choice(({"app": "p"}, {"app": "q"}, {"tier": "1"}, {"app": "p", "tier": "2"}))
    meta = {"name": f"b{number}", "namespace": f"case-{seed}"}
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta}
    return {**made, "spec": {"minAvailable": 1, "selector": {"matchLabels": selector}}}, chance.choice((0, 0, 1, 2))


# ---- themes -----------------------------------------------------------------------------------------------------


def _ports(chance: Random, spec: Object, main: Object, wants: bool) -> None:
    port = chance.choice((8080, 8080, 9090))
    main["ports"] = [{"containerPort": port, "hostPort": port, "protocol": "TCP"}]


def _dongles(chance: Random, spec: Object, main: Object, wants: bool) -> None:
    resources = main["resources"]
    resources["requests"][DONGLE] = "2" if wants else "1"
    resources["limits"] = {DONGLE: resources["requests"][DONGLE]}


def _term(chance: Random) -> Object:
    return {
        "topologyKey": chance.choice((HOST, HOST, ZONE)),
        "labelSelector": {"matchLabels": {"app": chance.choice("pq")}},
    }


def _anti_affinity(chance: Random, spec: Object, main: Object, wants: bool) -> None:
    if wants or chance.random() < 0.3:
        spec.setdefault("affinity", {})["podAntiAffinity"] = {REQUIRED: [_term(chance)]}


def _affinity(chance: Random, spec: Object, main: Object, wants: bool) -> None:
    if wants:
        spec.setdefault("affinity", {})["podAffinity"] = {REQUIRED: [_term(chance)]}


def _taints(chance: Random, spec: Object, main: Object, wants: bool) -> None:
    if chance.random() < 0.4:
        spec["tolerations"] = [{"key": "k", "operator": "Exists"}]


def _selector(chance: Random, spec: Object, main: Object, wants: bool) -> None:
    if wants:
        spec["nodeSelector"]["disk"] = chance.choice(("ssd", "hdd"))


def _nothing(chance: Random, spec: Object, main: Object, wants: bool) -> None:
    """What is said of nodes is enough."""


THEMES: dict[str, Callable[[Random, Object, Object, bool], None]] = {
    "affinity": _affinity,
    "anti-affinity": _anti_affinity,
    "cordoned": _nothing,
    "dongles": _dongles,
    "ports": _ports,
    "selector": _selector,
    "taints": _taints,
}


# ---- kube-scheduler's criteria ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a scheduler makes of the case's pod."""

    bound: str = ""  # it fits without anybody's end
    node: str = ""  # nominated
    victims: frozenset[str] = field(default_factory=frozenset)

    @property
    def word(self) -> str:
        return "fits" if self.bound else "preempts" if self.node else "waits"


def criteria(case: PreemptionCase, outcome: Outcome) -> tuple[float, ...]:
    """By what kube-scheduler compares nodes (pickOneNodeForPreemption): the smallest is the best."""
    victims = [pod for pod in case.running if pod["metadata"]["name"] in outcome.victims]
    violations = len(_violating(case, outcome.node) & outcome.victims)
    ranks = [_rank(pod) for pod in victims]
    highest = max(ranks)
    earliest = min(case.started[pod["metadata"]["name"]] for pod in victims if _rank(pod) == highest)
    return (violations, highest, sum(rank + 2**31 for rank in ranks), len(ranks), -earliest)


def _violating(case: PreemptionCase, node: str) -> set[str]:
    """Of the pods that could yield on the node, those whose end breaks a budget (filterPodsWithPDBViolation)."""
    asking = _rank(case.pod)
    there = [pod for pod in case.running if pod["spec"]["nodeName"] == node and _rank(pod) < asking]
    there.sort(key=lambda pod: (-_rank(pod), case.started[pod["metadata"]["name"]]))
    return _breaking(case, there)


def _breaking(case: PreemptionCase, there: list[Object]) -> set[str]:
    """Of these pods, those whose end breaks a budget if all end in this order."""
    left = [allowed for _, allowed in case.budgets]
    found = set()
    for pod in there:
        for number, (budget, _) in enumerate(case.budgets):
            if budget["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items():
                left[number] -= 1
                if left[number] < 0:
                    found.add(pod["metadata"]["name"])
    return found


def _rank(pod: Object) -> int:
    return {**RANKS, POLITE: max(RANKS.values())}[pod["spec"]["priorityClassName"]]


def is_tie(case: PreemptionCase, ours: Outcome, theirs: Outcome) -> bool:
    """Whether the two differ only where kube-scheduler decides by the order of a map or of an unstable sort."""
    if not ours.node or not theirs.node:
        return False
    return criteria(case, ours) == criteria(case, theirs)


def is_other_order(case: PreemptionCase, ours: Outcome, theirs: Outcome) -> bool:
    """Whether kube-scheduler could have chosen ours on the same node, had it given back equal pods in another order.

    It gives pods back by priority and start, with a sort that is not stable. Of two pods that are equal by both, the
    first may leave room for fewer others than the second would: case 1081 has two outcomes, and kube-scheduler chose
    each of them once. Rules between pods are not computed here, so cases with them are not excused.
    """
    if not theirs.node or ours.node != theirs.node or case.themes & {"affinity", "anti-affinity"}:
        return False
    return {ours.victims, theirs.victims} <= _reachable(case, theirs.node)


def _reachable(case: PreemptionCase, node: str) -> set[frozenset[str]]:
    """The victims on the node by SelectVictimsOnNode, for each order of equal pods."""
    asking, alloc = (
        _rank(case.pod),
        next(n for n in case.nodes if n["metadata"]["name"] == node)["status"]["allocatable"],
    )
    here = [pod for pod in case.running if pod["spec"]["nodeName"] == node]
    stay = [pod for pod in here if _rank(pod) >= asking]
    equals: dict[tuple[int, float], list[Object]] = {}
    for pod in here:
        if _rank(pod) < asking:
            equals.setdefault((-_rank(pod), case.started[pod["metadata"]["name"]]), []).append(pod)
    found = set()
    for orders in product(*(permutations(equals[key]) for key in sorted(equals))):
        order = [pod for some in orders for pod in some]
        violating = _breaking(case, order)
        kept, victims = list(stay), set()
        for pod in sorted(order, key=lambda one: one["metadata"]["name"] not in violating):
            if _fits(case.pod, [*kept, pod], alloc):
                kept.append(pod)
            else:
                victims.add(pod["metadata"]["name"])
        found.add(frozenset(victims))
    return found


def _fits(asking: Object, there: list[Object], alloc: Object) -> bool:
    """Whether the node has room for the pod beside these: what it asks for, a pod slot, and its host port."""
    wants = asking["spec"]["containers"][0]
    for name, amount in wants["resources"]["requests"].items():
        held = sum(quantity(one["spec"]["containers"][0]["resources"]["requests"].get(name, "0")) for one in there)
        if held + quantity(amount) > quantity(alloc[name]) + 1e-9:
            return False
    taken = [one["spec"]["containers"][0].get("ports") for one in there]
    return len(there) < int(alloc["pods"]) and ("ports" not in wants or wants["ports"] not in taken)


def all_objects(cases: Iterable[PreemptionCase]) -> Sequence[Object]:
    """Namespaces, nodes, running pods and budgets; the pods that need a place come later."""
    made: list[Object] = []
    for case in cases:
        made.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}})
        made += case.nodes
    return made
