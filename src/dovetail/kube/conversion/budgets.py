"""PodDisruptionBudget → the model's Budget: the same function for files and watches.

A file seldom states the status, which a controller computes. It is computed here as that controller does
(Kubernetes' pkg/controller/disruption).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dovetail.kube.conversion.relations import object_selector
from dovetail.kube.conversion.rules import RuleError
from dovetail.kube.files.decode import Objects
from dovetail.kube.objects.bounds import BUDGETS
from dovetail.kube.objects.budgets import IntOrPercent, PodDisruptionBudget
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.pod import Pod
from dovetail.model.rights import Budget

_PERCENT = re.compile(r"([0-9]{1,6})%")


def budget_from(source: PodDisruptionBudget, namespace: str, name: str) -> Budget | None:
    """The budget by its status; None = it selects no pod. Raises RuleError if its selector cannot be read."""
    selector = object_selector(source.spec.selector, "spec.selector")
    if selector is None:
        return None
    if source.status is None:
        return Budget(namespace, name, selector)
    return Budget(
        namespace,
        name,
        selector,
        max(source.status.disruptions_allowed, 0),
        frozenset(source.status.disrupted_pods),
    )


class _Selected(NamedTuple):
    """Pods that a budget selects."""

    expected: int  # with those that wait
    healthy: int  # run and are not ending


def budgets_of(
    found: Objects, running: Iterable[Pod], waiting: Iterable[Pod], problems: Problems
) -> tuple[Budget, ...]:
    """The budgets of files, by namespace and name. Without a status it is computed from the pods of the files."""
    held, pending, made = _by_namespace(running), _by_namespace(waiting), list[Budget]()
    count = Counter[str]()  # namespace -> its budgets
    for item in sorted(found.of("PodDisruptionBudget"), key=lambda one: (one.namespace, one.name)):
        source: PodDisruptionBudget = item.value
        count[item.namespace] += 1
        if count[item.namespace] > BUDGETS.most:
            problems.error(item.where, "", no_room(count[item.namespace]))
            continue
        try:
            budget = budget_from(source, item.namespace, item.name)
        except RuleError as error:
            problems.error(item.where, error.path, f"{error}; the budget is ignored")
            continue
        if budget is None:
            continue
        if source.status is None:
            there, wait = _selected(budget, held[item.namespace]), _selected(budget, pending[item.namespace])
            selected = _Selected(len(there) + len(wait), sum(not pod.leaving for pod in there))
            budget = replace(budget, allowed=_allowed(source, selected, item.where, problems))
        made.append(budget)
    return tuple(made)


def no_room(count: int) -> str:
    """The message about a budget of a namespace that has more than are read."""
    return f"{BUDGETS.exceeded(count)}; this one is left out"


def _by_namespace(pods: Iterable[Pod]) -> defaultdict[str, list[Pod]]:
    found: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        found[pod.namespace].append(pod)
    return found


def _selected(budget: Budget, pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if budget.selector.matches(pod.labels)]


def _allowed(source: PodDisruptionBudget, selected: _Selected, where: str, problems: Problems) -> int:
    """How many of the selected pods may be stopped now."""
    spec, expected = source.spec, selected.expected
    if spec.max_unavailable is not None:
        most = _scaled(spec.max_unavailable, expected, f"{where}", "spec.maxUnavailable", problems)
        desired = max(expected - most, 0) if most is not None else expected
    elif spec.min_available is not None:
        least = _scaled(spec.min_available, expected, f"{where}", "spec.minAvailable", problems)
        desired = least if least is not None else expected
    else:
        desired = 0
    return max(selected.healthy - desired, 0) if expected else 0


def _scaled(value: IntOrPercent, total: int, where: str, field: str, problems: Problems) -> int | None:
    """The number of pods; a percentage of `total` is rounded up. None = it cannot be read."""
    if isinstance(value, int) and value >= 0:
        return value
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        said = printable(str(value), 40)
        problems.error(where, field, f"{said!r} is no number of pods, such as 2 or 50%; no pod may be stopped")
        return None
    return -(-total * int(found[1]) // 100)
