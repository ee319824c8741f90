"""Kubernetes' default spreading: pods of one Service or controller are spread although they have no constraint.

kube-scheduler's system defaults (podtopologyspread/plugin.go, helper/spread.go): hosts with maxSkew 3 and zones with
maxSkew 5, both preferences. A profile switches it on. Pods with their own spread constraints never get it.
"""

from __future__ import annotations

from collections import defaultdict

from dovetail.engine.ledger.remembered import Remembered
from dovetail.engine.rules.affinity_terms import Labels, Shelves
from dovetail.model.pod import Pod
from dovetail.model.relations import Selector, SpreadConstraint

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DEFAULT_SKEWS = ((HOSTNAME, 3), (ZONE, 5))  # node label, maxSkew
SERVICE = "Service"
MAX_KEPT_CONSTRAINTS = 10_000
MAX_CONSTRAINT_BYTES = 16 << 20  # of the pods' labels and these constraints

Constraints = tuple[SpreadConstraint, ...]


class _Services:
    """The selectors of one namespace's Services."""

    def __init__(self) -> None:
        self.of: dict[str, Selector] = {}  # name of the Service -> its selector
        self._shelves: Shelves[str] = Shelves()

    def set(self, name: str, selector: Selector | None) -> None:
        known = self.of.pop(name, None)
        if known is not None:
            self._shelves.remove(known, name)
        if selector is not None:
            self.of[name] = selector
            self._shelves.put(selector, name)

    def matching(self, labels: Labels) -> list[Selector]:
        found = (self.of[name] for name in self._shelves.under(labels))
        return [selector for selector in found if selector.matches(labels)]


class DefaultSpread:
    """The pods that a pod is spread against, by the selectors of Services and controllers."""

    def __init__(self) -> None:
        self._services: defaultdict[str, _Services] = defaultdict(_Services)  # namespace -> its Services
        self._makers: dict[str, Selector] = {}  # "ReplicaSet/namespace/name" -> its selector
        # what they depend on -> constraints
        self._kept: Remembered[tuple[object, ...], Constraints] = Remembered(MAX_KEPT_CONSTRAINTS, MAX_CONSTRAINT_BYTES)

    def set_selector(self, kind: str, namespace: str, name: str, selector: Selector | None) -> None:
        """Store a selector. None: the object is gone, or selects no pods."""
        self._kept.clear()
        if kind != SERVICE:
            key = f"{kind}/{namespace}/{name}"
            self._makers.pop(key, None)
            if selector is not None:
                self._makers[key] = selector
            return
        services = self._services[namespace]
        services.set(name, selector)
        if not services.of:
            del self._services[namespace]

    def constraints(self, pod: Pod) -> Constraints:
        """The constraints by which kube-scheduler would spread the pod; () = none."""
        if not pod.profile.default_spread or pod.relations.spread:
            return ()
        if pod.namespace not in self._services and pod.maker not in self._makers:
            return ()
        key = (pod.namespace, pod.maker, frozenset(pod.labels.items()))
        kept = self._kept.get(key)
        if kept is None:
            made = self._made(pod)
            kept = self._kept.remember(key, made, (key, made))
        return kept

    def _made(self, pod: Pod) -> Constraints:
        services = self._services.get(pod.namespace)
        found = services.matching(pod.labels) if services is not None else []
        maker = self._makers.get(pod.maker)
        found += [maker] if maker is not None else []
        labels = {pair for selector in found for pair in selector.labels}
        rows = dict.fromkeys(row for selector in found for row in selector.expressions)
        if not labels and not rows:
            return ()
        selector = Selector(tuple(sorted(labels)), tuple(rows))
        return tuple(SpreadConstraint(label, skew, False, selector) for label, skew in DEFAULT_SKEWS)
