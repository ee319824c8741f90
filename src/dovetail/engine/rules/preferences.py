"""Kubernetes' preferences as points: the weighted sum of kube-scheduler 1.36's score plugins.

Each part is normalised over the feasible nodes with Go's arithmetic: integers truncate, floats are IEEE doubles.
Default spreading (engine/rules/default_spread.py) counts if the profile says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable

import numpy as np

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rules.affinity_spread import included, per_domain, spread_count
from dovetail.engine.rules.affinity_terms import Spots
from dovetail.engine.rules.default_spread import HOSTNAME, DefaultSpread
from dovetail.engine.rules.node_columns import Flags
from dovetail.engine.rules.pod_counts import Neighbours, Question, sought_by
from dovetail.model.node import Node
from dovetail.model.pod import PREFERENCE_WEIGHTS, Pod, PreferenceWeights
from dovetail.model.relations import NO_PREFERENCES, NO_RELATIONS, PodTerm, SpreadConstraint
from dovetail.policies.rows import Ints

HIGHEST = 100  # fwk.MaxNodeScore
HARD_AFFINITY = 1  # hardPodAffinityWeight: the weight of a required affinity of a pod on a node
SMALLEST_IMAGE, LARGEST_IMAGE = 23 << 20, 1000 << 20  # imagelocality: per pod, per container


class Preferred:
    """Scores nodes for a pod by the preferences of pods and nodes."""

    def __init__(self, ledger: Ledger, neighbours: Neighbours) -> None:
        self._ledger, self._neighbours = ledger, neighbours
        self.default_spread = DefaultSpread()
        self._facts = neighbours.facts
        self._uneven: dict[Hashable, bool] = {}  # what it depends on -> whether nodes differ
        self._seen = -1

    def concerns(self, pod: Pod) -> bool:
        """Whether `points` could differ between two nodes."""
        relations, preferences, neighbours = pod.relations, pod.preferences, self._neighbours
        if preferences is not NO_PREFERENCES and preferences.nodes:
            return True
        if relations is not NO_RELATIONS and (
            relations.preferred_affinity
            or relations.preferred_anti_affinity
            or any(not constraint.hard for constraint in relations.spread)
        ):
            return True
        if pod.profile.default_spread and self.default_spread.constraints(pod):
            return True
        if len(neighbours.together) or len(neighbours.liked) or len(neighbours.disliked):
            labels = neighbours.labels_of(pod.namespace)
            if any(terms.mean(pod, labels) for terms in (neighbours.together, neighbours.liked, neighbours.disliked)):
                return True
        facts = self._facts
        facts.refresh()
        return bool(facts.avoided and self._taints_differ(pod)) or bool(
            facts.images and preferences.images and self._images_differ(pod)
        )

    def points(self, pod: Pod, feasible: Flags, weights: PreferenceWeights = PREFERENCE_WEIGHTS) -> Ints:
        """By row Σ weight × score; 0 if the node is not feasible."""
        self._facts.refresh()
        total: Ints = np.zeros(len(self._ledger.nodes), dtype=np.int64)
        if feasible.any():
            for weight, part in (
                (weights.taints, self._taints),
                (weights.node_affinity, self._nodes),
                (weights.spread, self._spread),
                (weights.pod_affinity, self._pods),
                (weights.images, self._images),
            ):
                if weight:
                    total += weight * part(pod, feasible)
        return np.where(feasible, total, 0)

    # ---- taints and labels of nodes -----------------------------------------------------------------------------

    def _taints(self, pod: Pod, feasible: Flags) -> Ints:
        """tainttoleration: fewer PreferNoSchedule taints that are not tolerated are better."""
        if not self._facts.avoided:
            return np.full(len(feasible), HIGHEST)
        return HIGHEST - _of_highest(self._facts.disliked(pod.node_rules.tolerations), feasible)

    def _nodes(self, pod: Pod, feasible: Flags) -> Ints:
        """nodeaffinity: the sum of the weights of matching preferred terms."""
        terms = pod.preferences.nodes

        def weight(node: Node) -> int:
            return sum(weight for weight, term in terms if term.matches(node.static))

        if not terms:
            return np.zeros(len(feasible), dtype=np.int64)
        return _of_highest(self._facts.of(("preferred", terms), weight, np.int64), feasible)

    # ---- pods beside one another --------------------------------------------------------------------------------

    def _pods(self, pod: Pod, feasible: Flags) -> Ints:
        """interpodaffinity/scoring.go: terms of this pod about others, and of other pods about this one."""
        relations, neighbours = pod.relations, self._neighbours
        raw: Ints = np.zeros(len(feasible), dtype=np.int64)
        for sign, terms in ((1, relations.preferred_affinity), (-1, relations.preferred_anti_affinity)):
            for term in terms:
                found = neighbours.count(Question((sought_by(term),)))
                values, size = self._facts.domains(term.topology_key)
                raw += sign * term.weight * per_domain(values, size, found)[values]
        raw += self._drawn(pod)
        lowest, highest = int(raw[feasible].min()), int(raw[feasible].max())
        if lowest == highest:
            return np.zeros(len(feasible), dtype=np.int64)
        return (float(HIGHEST) * ((raw - lowest) / float(highest - lowest))).astype(np.int64)

    def _drawn(self, pod: Pod) -> Ints:
        """By row the points from terms of other pods about this one."""
        neighbours, labels = self._neighbours, self._neighbours.labels_of(pod.namespace)
        raw: Ints = np.zeros(len(self._ledger.nodes), dtype=np.int64)
        by_label: defaultdict[str, list[tuple[int, Spots]]] = defaultdict(list)
        for terms, worth in ((neighbours.together, _hard), (neighbours.liked, _like), (neighbours.disliked, _dislike)):
            if len(terms):
                for term, spots in terms.matching(pod, labels):
                    by_label[term.topology_key].append((worth(term), spots))
        for label, found in by_label.items():
            here = np.zeros_like(raw)
            for weight, spots in found:
                here[list(spots)] += weight * np.fromiter(spots.values(), np.int64, len(spots))
            values, size = self._facts.domains(label)
            raw += per_domain(values, size, here)[values]
        return raw

    # ---- spreading ----------------------------------------------------------------------------------------------

    def _spread(self, pod: Pod, feasible: Flags) -> Ints:
        """podtopologyspread/scoring.go: fewer selected pods in the node's domains are better."""
        own = [constraint for constraint in pod.relations.spread if not constraint.hard]
        soft = own or self.default_spread.constraints(pod)
        score: Ints = np.zeros(len(feasible), dtype=np.int64)
        if not soft:
            return score
        labelled = self._facts.active
        if own:  # default constraints need not all labels: a node is scored by those it has
            labelled = np.logical_and.reduce([self._facts.domains(one.topology_key)[0] > 0 for one in soft])
        scored = feasible & labelled
        if not scored.any():
            return score
        raw = np.zeros(len(feasible))
        for constraint in soft:
            counts, domains = self._crowding(pod, constraint, labelled, scored)
            crowding = counts * math.log(domains + 2) + (constraint.max_skew - 1)
            raw += np.where(self._facts.domains(constraint.topology_key)[0] > 0, crowding, 0.0)
        rounded = np.floor(raw) + (raw - np.floor(raw) >= 0.5)  # math.Round of a number that is not negative
        found = rounded.astype(np.int64)[scored]
        highest, lowest = int(found.max()), int(found.min())
        score[scored] = HIGHEST * (highest + lowest - found) // highest if highest else HIGHEST
        return score

    def _crowding(self, pod: Pod, constraint: SpreadConstraint, labelled: Flags, scored: Flags) -> tuple[Ints, int]:
        """By row the number of pods in its domain; and the number of domains. Every host counts, labelled or not."""
        counts = spread_count(self._neighbours, pod, constraint)
        if constraint.topology_key == HOSTNAME:
            return counts, int(np.count_nonzero(scored))
        values, size = self._facts.domains(constraint.topology_key)
        counted = labelled & included(self._facts, pod, constraint)
        matching = per_domain(values, size, np.where(counted, counts, 0))
        return matching[values], int(np.count_nonzero(np.bincount(values[scored])))

    # ---- images -------------------------------------------------------------------------------------------------

    def _images(self, pod: Pod, _feasible: Flags) -> Ints:
        """imagelocality: bytes of the pod's images that the node has, scaled by how many nodes have them."""
        facts, preferences = self._facts, pod.preferences
        found: Ints = np.zeros(len(self._ledger.nodes), dtype=np.int64)
        if facts.images.keys().isdisjoint(preferences.images):
            return found
        nodes = int(np.count_nonzero(facts.active))
        for name in preferences.images:
            image = facts.images.get(name)
            if image is not None:
                found[list(image.rows)] += int(float(image.size) * (float(len(image.rows)) / float(nodes)))
        most = LARGEST_IMAGE * preferences.containers
        if most <= SMALLEST_IMAGE:
            return np.zeros_like(found)
        return HIGHEST * (np.clip(found, SMALLEST_IMAGE, most) - SMALLEST_IMAGE) // (most - SMALLEST_IMAGE)

    # ---- whether nodes differ at all ----------------------------------------------------------------------------

    def _taints_differ(self, pod: Pod) -> bool:
        tolerations = pod.node_rules.tolerations
        key = ("taints", tolerations)
        known = self._known().get(key)
        if known is None:
            known = self._uneven[key] = self._tells_apart(self._facts.disliked(tolerations))
        return known

    def _images_differ(self, pod: Pod) -> bool:
        key = ("images", pod.preferences.images, pod.preferences.containers)
        known = self._known().get(key)
        if known is None:
            known = self._uneven[key] = self._tells_apart(self._images(pod, self._facts.active))
        return known

    def _known(self) -> dict[Hashable, bool]:
        """The known answers, valid until a node changes."""
        if self._seen != self._facts.changes:
            self._uneven.clear()
            self._seen = self._facts.changes
        return self._uneven

    def _tells_apart(self, scores: Ints) -> bool:
        there = scores[self._facts.active]
        return len(there) > 0 and bool(there.min() != there.max())


def _of_highest(scores: Ints, feasible: Flags) -> Ints:
    """DefaultNormalizeScore: in hundredths of the highest score."""
    highest = int(scores[feasible].max())
    return HIGHEST * scores // highest if highest else np.zeros_like(scores)


def _hard(_term: PodTerm) -> int:
    return HARD_AFFINITY


def _like(term: PodTerm) -> int:
    return term.weight


def _dislike(term: PodTerm) -> int:
    return -term.weight
