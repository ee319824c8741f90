"""PodDisruptionBudgets as last reported → how many of which pods may be stopped, only where that has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.budgets import budget_from, no_room
from dovetail.kube.conversion.rules import RuleError
from dovetail.kube.live.set_aside import Fault
from dovetail.kube.objects.bounds import BUDGETS
from dovetail.kube.objects.budgets import PodDisruptionBudget
from dovetail.model.events import BudgetChanged
from dovetail.model.rights import Budget

BUDGETS_PATH = "/apis/policy/v1/poddisruptionbudgets"
Name = tuple[str, str]  # namespace, name


class BudgetMirror:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.faults: list[Fault] = []  # objects that could not be read; the code that reports them empties the list
        self._known: dict[Name, Budget] = {}
        self._count: Counter[str] = Counter()  # namespace -> its budgets
        self._full: set[str] = set()  # namespaces with more budgets than are read

    def hear(self, batch: Iterable[Event[PodDisruptionBudget]]) -> list[BudgetChanged]:
        return [change for event in batch for change in self._heard(event)]

    def _heard(self, event: Event[PodDisruptionBudget]) -> Iterator[BudgetChanged]:
        if isinstance(event, Replaced):
            there = {(one.metadata.namespace, one.metadata.name) for one in event.items}
            there |= {(one.ref.namespace, one.ref.name) for one in event.unreadable}
            for name in [name for name in self._known if name not in there]:
                yield from self._set(name, None)
            for item in event.items:
                yield from self._read(item)
        elif isinstance(event, Changed):
            yield from self._read(event.object)
        elif isinstance(event, Deleted):
            yield from self._set((event.ref.namespace, event.ref.name), None)
        elif isinstance(event, NotServed):
            for name in list(self._known):
                yield from self._set(name, None)

    def _read(self, item: PodDisruptionBudget) -> Iterator[BudgetChanged]:
        """Changes by one budget. One that cannot be read keeps its previous form."""
        name = (item.metadata.namespace, item.metadata.name)
        try:
            budget = budget_from(item, *name)
        except Exception as error:
            self.faults.append(Fault("PodDisruptionBudget", "/".join(name), error))
            return
        if budget is None or name in self._known or self._has_room(name):
            yield from self._set(name, budget)

    def _has_room(self, name: Name) -> bool:
        """Whether the namespace has fewer budgets than are read. The first one that is left out is reported."""
        namespace, _ = name
        if self._count[namespace] < BUDGETS.most:
            return True
        if namespace not in self._full:
            self._full.add(namespace)
            error = RuleError("", no_room(BUDGETS.most + 1))
            self.faults.append(Fault("PodDisruptionBudget", "/".join(name), error))
        return False

    def _set(self, name: Name, budget: Budget | None) -> Iterator[BudgetChanged]:
        if self._known.get(name) == budget:
            return
        if budget is None:
            del self._known[name]
            self._count[name[0]] -= 1
            self._full.discard(name[0])
        else:
            self._count[name[0]] += name not in self._known
            self._known[name] = budget
        yield BudgetChanged(self._clock(), *name, budget)
