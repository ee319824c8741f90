"""Disruption budgets: which running pods may not be stopped now (kube-scheduler: filterPodsWithPDBViolation)."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.model.pod import Pod
from dovetail.model.rights import Budget


class Budgets:
    def __init__(self) -> None:
        self._of: dict[str, dict[str, Budget]] = {}  # namespace -> name -> budget

    def __len__(self) -> int:
        return len(self._of)

    def set(self, budget: Budget) -> None:
        self._of.setdefault(budget.namespace, {})[budget.name] = budget

    def drop(self, namespace: str, name: str) -> None:
        there = self._of.get(namespace, {})
        there.pop(name, None)
        if not there:
            self._of.pop(namespace, None)

    def broken_by(self, pods: Iterable[Pod]) -> frozenset[str]:
        """UIDs of the pods that break a budget if all are stopped in this order: the first ones use it up.

        A pod that a budget has counted as stopped uses nothing. Pods without labels are in no budget.
        """
        left: dict[tuple[str, str], int] = {}  # of the budgets that select one of these pods
        broken = set()
        for pod in pods:
            for budget in self._of.get(pod.namespace, {}).values() if pod.labels else ():
                selects = budget.selector.labels or budget.selector.expressions
                if not selects or not budget.selector.matches(pod.labels) or pod.name in budget.disrupted:
                    continue
                key = (budget.namespace, budget.name)
                left[key] = left.get(key, budget.allowed) - 1
                if left[key] < 0:
                    broken.add(pod.uid)
        return frozenset(broken)
