"""Kubernetes' relational rules and scores the slow way: loops over nodes and pods, straight from kube-scheduler's Go.

Shares no code with the engine but the values of the model.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from dovetail.model.relations import PodTerm, SpreadConstraint

MIB = 2**20
Labels = Mapping[str, str]


@dataclass
class Scene:
    """Nodes in the order they came, who is where, and what namespaces are called."""

    nodes: Sequence[Node]
    pods: Sequence[tuple[Pod, str]]  # (pod, node)
    namespaces: Mapping[str, Labels] = field(default_factory=dict)

    def on(self, node: Node) -> list[Pod]:
        return [pod for pod, where in self.pods if where == node.name]

    # ---- interpodaffinity ---------------------------------------------------------------------------------------

    def _incoming(self, term: PodTerm, other: Pod) -> bool:
        """A term of the incoming pod, with the namespaces its selector finds merged in (and the selector left in)."""
        names = set(term.namespaces)
        among = term.namespace_selector
        if among is not None:
            names |= {name for name, labels in self.namespaces.items() if among.matches(labels)}
        if other.namespace in names or (among is not None and among.matches({})):
            return term.selector is not None and term.selector.matches(other.labels)
        return False

    def _existing(self, term: PodTerm, incoming: Pod) -> bool:
        labels = self.namespaces.get(incoming.namespace, {})
        among = term.namespace_selector
        if incoming.namespace in term.namespaces or (among is not None and among.matches(labels)):
            return term.selector is not None and term.selector.matches(incoming.labels)
        return False

    def interpod(self, pod: Pod, node: Node) -> Reason:
        affinity, anti, existing = self._pairs(pod)
        terms = pod.relations.affinity
        pods_exist = True
        for term in terms:
            if term.topology_key not in node.labels:
                return Reason.POD_AFFINITY
            if affinity[term.topology_key, node.labels[term.topology_key]] <= 0:
                pods_exist = False
        if not pods_exist and not (not affinity and all(self._incoming(term, pod) for term in terms)):
            return Reason.POD_AFFINITY
        for term in pod.relations.anti_affinity:
            if term.topology_key in node.labels and anti[term.topology_key, node.labels[term.topology_key]] > 0:
                return Reason.POD_ANTI_AFFINITY
        if any(existing[pair] > 0 for pair in node.labels.items()):
            return Reason.OTHERS_ANTI_AFFINITY
        return Reason.OK

    def _pairs(self, pod: Pod) -> tuple[Counter[tuple[str, str]], ...]:
        affinity, anti, existing = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        relations = pod.relations

        def update(counts: Counter[tuple[str, str]], node: Node, key: str) -> None:
            if key in node.labels:
                counts[key, node.labels[key]] += 1

        for node in self.nodes:
            for other in self.on(node):
                if relations.affinity and all(self._incoming(term, other) for term in relations.affinity):
                    for term in relations.affinity:
                        update(affinity, node, term.topology_key)
                for term in relations.anti_affinity:
                    if self._incoming(term, other):
                        update(anti, node, term.topology_key)
                for term in other.relations.anti_affinity:
                    if self._existing(term, pod):
                        update(existing, node, term.topology_key)
        return affinity, anti, existing

    def interpod_scores(self, pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
        topology: defaultdict[str, Counter[str]] = defaultdict(Counter)

        def process(term: PodTerm, weight: int, matches: bool, node: Node) -> None:
            if matches and term.topology_key in node.labels:
                topology[term.topology_key][node.labels[term.topology_key]] += weight

        for node in self.nodes:
            for other in self.on(node):
                for term in pod.relations.preferred_affinity:
                    process(term, term.weight, self._incoming(term, other), node)
                for term in pod.relations.preferred_anti_affinity:
                    process(term, -term.weight, self._incoming(term, other), node)
                for term in other.relations.affinity:
                    process(term, 1, self._existing(term, pod), node)
                for term in other.relations.preferred_affinity:
                    process(term, term.weight, self._existing(term, pod), node)
                for term in other.relations.preferred_anti_affinity:
                    process(term, -term.weight, self._existing(term, pod), node)
        raw = {
            node.name: sum(values[node.labels[key]] for key, values in topology.items() if key in node.labels)
            for node in feasible
        }
        low, high = min(raw.values()), max(raw.values())
        return {name: int(100.0 * ((r - low) / (high - low))) if high > low else 0 for name, r in raw.items()}

    # ---- podtopologyspread --------------------------------------------------------------------------------------

    def _included(self, pod: Pod, constraint: SpreadConstraint, node: Node) -> bool:
        rules = pod.node_rules
        if constraint.honour_affinity:
            if not all(node.labels.get(key) == value for key, value in rules.selector):
                return False
            if rules.affinity is not None and not any(term.matches(node.static) for term in rules.affinity):
                return False
        return not (constraint.honour_taints and rules.untolerated(node.static) is not None)

    def _count(self, pod: Pod, constraint: SpreadConstraint, node: Node) -> int:
        selector = constraint.selector
        if selector is None or not (selector.labels or selector.expressions):
            return 0
        return sum(
            not other.leaving and other.namespace == pod.namespace and selector.matches(other.labels)
            for other in self.on(node)
        )

    def spread(self, pod: Pod, node: Node) -> Reason:
        hard = [constraint for constraint in pod.relations.spread if constraint.hard]
        for constraint in hard:
            matching: dict[str, int] = {}
            for other in self.nodes:
                if any(one.topology_key not in other.labels for one in hard):
                    continue
                if self._included(pod, constraint, other):
                    value = other.labels[constraint.topology_key]
                    matching[value] = matching.get(value, 0) + self._count(pod, constraint, other)
            if constraint.topology_key not in node.labels:
                return Reason.SPREAD_LABEL
            least = 0 if len(matching) < constraint.min_domains else min(matching.values())
            itself = constraint.selector is not None and constraint.selector.matches(pod.labels)
            there = matching.get(node.labels[constraint.topology_key], 0)
            if there + itself - least > constraint.max_skew:
                return Reason.SPREAD
        return Reason.OK

    def spread_scores(self, pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
        soft = [constraint for constraint in pod.relations.spread if not constraint.hard]
        if not soft:
            return {node.name: 0 for node in feasible}

        def labelled(node: Node) -> bool:
            return all(constraint.topology_key in node.labels for constraint in soft)

        raw: dict[str, int] = {}
        for node in filter(labelled, feasible):
            score = 0.0
            for constraint in soft:
                key = constraint.topology_key
                values = {other.labels[key] for other in feasible if labelled(other)}
                if key == "kubernetes.io/hostname":
                    size, count = sum(map(labelled, feasible)), self._count(pod, constraint, node)
                else:
                    size, count = (
                        len(values),
                        sum(
                            self._count(pod, constraint, other)
                            for other in filter(labelled, self.nodes)
                            if other.labels[key] == node.labels[key] and self._included(pod, constraint, other)
                        ),
                    )
                score += float(count) * math.log(size + 2) + float(constraint.max_skew - 1)
            raw[node.name] = math.floor(score) + (score - math.floor(score) >= 0.5)
        high, low = max(raw.values(), default=0), min(raw.values(), default=0)
        normal = {name: 100 * (high + low - r) // high if high else 100 for name, r in raw.items()}
        return {node.name: normal.get(node.name, 0) for node in feasible}

    # ---- nodeports and the scores of nodes themselves -----------------------------------------------------------

    def ports(self, pod: Pod, node: Node) -> Reason:
        used = {(p.ip, p.protocol, p.port) for other in self.on(node) for p in other.relations.ports}
        for want in pod.relations.ports:
            for ip, protocol, port in used:
                same = (protocol, port) == (want.protocol, want.port)
                if same and (want.ip == "0.0.0.0" or ip in ("0.0.0.0", want.ip)):
                    return Reason.HOST_PORT
        return Reason.OK

    def taint_scores(self, pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
        tolerations = [t for t in pod.node_rules.tolerations if t.effect in ("", "PreferNoSchedule")]
        raw = {
            node.name: sum(
                taint.effect == "PreferNoSchedule" and not any(t.tolerates(taint) for t in tolerations)
                for taint in node.taints
            )
            for node in feasible
        }
        high = max(raw.values())
        return {name: 100 - 100 * r // high if high else 100 for name, r in raw.items()}

    def node_scores(self, pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
        terms = pod.preferences.nodes
        raw = {node.name: sum(weight for weight, term in terms if term.matches(node.static)) for node in feasible}
        high = max(raw.values())
        return {name: 100 * r // high if high else 0 for name, r in raw.items()}

    def image_scores(self, pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
        result = {}
        for node in feasible:
            total = 0
            for image in pod.preferences.images:
                holders = [other for other in self.nodes if image in other.images]
                if node in holders:
                    total += int(float(holders[0].images[image]) * (len(holders) / len(self.nodes)))
            most = 1000 * MIB * pod.preferences.containers
            total = 23 * MIB if total < 23 * MIB else min(total, most)
            result[node.name] = 100 * (total - 23 * MIB) // (most - 23 * MIB) if most else 0
        return result

    # ---- together -----------------------------------------------------------------------------------------------

    def refusal(self, pod: Pod, node: Node) -> Reason:
        return self.ports(pod, node) or self.spread(pod, node) or self.interpod(pod, node)

    def points(self, pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
        parts = [
            (3, self.taint_scores(pod, feasible)),
            (2, self.node_scores(pod, feasible)),
            (2, self.spread_scores(pod, feasible)),
            (2, self.interpod_scores(pod, feasible)),
            (1, self.image_scores(pod, feasible)),
        ]
        return {node.name: sum(weight * part[node.name] for weight, part in parts) for node in feasible}
