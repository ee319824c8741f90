"""Kubernetes' rules between pods: host ports, topology spread, affinity and anti-affinity.

The semantics are those of kube-scheduler 1.36 (pkg/scheduler/framework/plugins: nodeports, podtopologyspread and
interpodaffinity), for all rows at once. Nodes that are gone, and the pods on them, are not counted.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rules.affinity_terms import means
from dovetail.engine.rules.node_columns import Flags, NodeFacts
from dovetail.engine.rules.pod_counts import Neighbours, Question, Sought, sought_by
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from dovetail.model.relations import NO_RELATIONS, PodTerm, SpreadConstraint
from dovetail.policies.rows import Bytes, Ints


class Relational:
    """Which nodes a pod may use beside the pods that are already there."""

    def __init__(self, ledger: Ledger, neighbours: Neighbours) -> None:
        self._ledger, self._neighbours = ledger, neighbours
        self._facts = neighbours.facts

    def concerns(self, pod: Pod) -> bool:
        """Whether `refusals` could refuse a node.

        Most pods have no such rules, and no other pod has rules against them.
        """
        relations = pod.relations
        if relations is not NO_RELATIONS and (
            relations.affinity
            or relations.anti_affinity
            or relations.ports
            or any(constraint.hard for constraint in relations.spread)
        ):
            return True
        against = self._neighbours.against
        return len(against) > 0 and against.mean(pod, self._neighbours.labels_of(pod.namespace))

    def refusals(self, pod: Pod) -> Bytes:
        """By row 0, or the first reason against the node, in kube-scheduler's order of plugins."""
        self._facts.refresh()
        refused: Bytes = np.zeros(len(self._ledger.nodes), dtype=np.uint8)
        relations = pod.relations
        for port in relations.ports:
            refused[list(self._neighbours.ports_in_use(port))] = Reason.HOST_PORT
        hard = [constraint for constraint in relations.spread if constraint.hard]
        if hard:
            self._spread(pod, hard, refused)
        if relations.affinity:
            _refuse(refused, ~self._together(pod, relations.affinity), Reason.POD_AFFINITY)
        if relations.anti_affinity:
            _refuse(refused, self._beside(relations.anti_affinity), Reason.POD_ANTI_AFFINITY)
        if len(self._neighbours.against):
            _refuse(refused, self._unwanted(pod), Reason.OTHERS_ANTI_AFFINITY)
        return refused

    def wakes(self, waiting: Pod, changed: Pod) -> bool:
        """Whether an arriving, leaving or changing pod could help a waiting pod, on any node.

        Host ports are not checked here: they concern only one row.
        """
        relations, find = waiting.relations, self._neighbours.finds
        if relations is not NO_RELATIONS:
            place = changed.namespace, changed.labels
            if relations.affinity and find(map(sought_by, relations.affinity), *place):
                return True
            if any(find((sought_by(term),), *place) for term in relations.anti_affinity):
                return True
            if changed.namespace == waiting.namespace and any(
                constraint.hard and constraint.selector is not None and constraint.selector.matches(changed.labels)
                for constraint in relations.spread
            ):
                return True
        labels = self._neighbours.labels_of(waiting.namespace)
        return any(means(term, waiting, labels) for term in changed.relations.anti_affinity)

    def _spread(self, pod: Pod, hard: list[SpreadConstraint], refused: Bytes) -> None:
        """Refuse rows as podtopologyspread/filtering.go does.

        Required: matching pods in the domain + the pod itself − the minimum over domains ≤ maxSkew.
        """
        domains = [self._facts.domains(constraint.topology_key) for constraint in hard]
        labelled = np.logical_and.reduce([values > 0 for values, _ in domains])
        for constraint, (values, size) in zip(hard, domains, strict=True):
            counted = labelled & included(self._facts, pod, constraint)
            matching = per_domain(values, size, np.where(counted, spread_count(self._neighbours, pod, constraint), 0))
            exists = np.bincount(values[counted], minlength=size) > 0
            enough = int(np.count_nonzero(exists)) >= max(constraint.min_domains, 1)
            least = matching[exists].min() if enough else 0
            itself = constraint.selector is not None and constraint.selector.matches(pod.labels)
            _refuse(refused, values == 0, Reason.SPREAD_LABEL)
            _refuse(refused, matching[values] + int(itself) - least > constraint.max_skew, Reason.SPREAD)

    def _together(self, pod: Pod, terms: tuple[PodTerm, ...]) -> Flags:
        """Nodes with every term's label, whose domains contain pods that match all terms.

        The first of several pods with affinity to each other may go to any labelled node: no pod matches yet, but it
        matches itself.
        """
        sought = tuple(map(sought_by, terms))
        found = self._neighbours.count(Question(sought))
        labelled = np.ones(len(found), dtype=np.bool_)
        near, nobody = labelled.copy(), True
        for values, size in (self._facts.domains(key) for key in dict.fromkeys(term.topology_key for term in terms)):
            there = per_domain(values, size, found)
            labelled &= values > 0
            near &= there[values] > 0
            nobody = nobody and not there.any()
        if nobody and self._neighbours.finds(sought, pod.namespace, pod.labels):
            return labelled
        return labelled & near

    def _beside(self, terms: tuple[PodTerm, ...]) -> Flags:
        """Nodes that share a term's label value with a matching pod."""
        beside = np.zeros(len(self._ledger.nodes), dtype=np.bool_)
        for term in terms:
            found = self._neighbours.count(Question((sought_by(term),)))
            values, size = self._facts.domains(term.topology_key)
            beside |= per_domain(values, size, found)[values] > 0
        return beside

    def _unwanted(self, pod: Pod) -> Flags:
        """Nodes in the domain of a pod whose anti-affinity matches this pod."""
        unwanted = np.zeros(len(self._ledger.nodes), dtype=np.bool_)
        rows: defaultdict[str, list[int]] = defaultdict(list)  # label -> rows of pods with a term about it
        for term, spots in self._neighbours.against.matching(pod, self._neighbours.labels_of(pod.namespace)):
            rows[term.topology_key] += spots
        for key, found in rows.items():
            values, size = self._facts.domains(key)
            taken = np.zeros(size, dtype=np.bool_)
            taken[values[found]] = True
            taken[0] = False
            unwanted |= taken[values]
        return unwanted


def per_domain(values: Ints, size: int, counts: Ints) -> Ints:
    """Sums by value of a label. Nodes without the label, numbered 0, are not counted."""
    sums = np.bincount(values, counts, minlength=size).astype(np.int64)  # floats are exact up to 2**53
    sums[0] = 0
    return sums


def included(facts: NodeFacts, pod: Pod, constraint: SpreadConstraint) -> Flags:
    """Nodes whose pods a constraint counts (nodeAffinityPolicy, nodeTaintsPolicy)."""
    counted = facts.selected(pod.node_rules) if constraint.honour_affinity else facts.active
    return counted & facts.endured(pod.node_rules) if constraint.honour_taints else counted


def spread_count(neighbours: Neighbours, pod: Pod, constraint: SpreadConstraint) -> Ints:
    """By row the pods that a constraint counts: in the pod's namespace, without pods that are being deleted.

    A selector that matches everything counts no pod (countPodsMatchSelector), although the pod itself matches it.
    """
    selector = constraint.selector
    if selector is not None and not selector.labels and not selector.expressions:
        selector = None
    return neighbours.count(Question((Sought((pod.namespace,), None, selector),), leaving_too=False))


def _refuse(refused: Bytes, where: Flags, reason: Reason) -> None:
    """Set the reason for these rows. A row that is already refused keeps its reason."""
    refused[where & (refused == 0)] = reason
