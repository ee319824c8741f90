"""Groups for which no eviction helps: a search that has just failed is not repeated for an equal group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.pod import Group, Pod

SEARCH_AGAIN = 1.0  # seconds after which an equal group is searched for again, if searches are limited
MOST_FAILED_SEARCHES = 10_000


class Helpless:
    """Remembers failed searches: at one time, until the ledger or the demand changes; or with `limited` for a second.

    The live scheduler sets `limited`: every change would otherwise repeat the search for each waiting group.
    """

    def __init__(self, ledger: Ledger, demand: Callable[[], int]) -> None:
        """`demand` grows with every change of what queues use or ask for."""
        self._ledger, self._demand = ledger, demand
        self.limited = False
        self._failed: dict[Any, tuple[float, tuple[int, int]]] = {}  # kind of group -> when, and `_mark` then
        self.names: dict[str, None] = {}  # groups that wait, and that no eviction would help
        self._postponed: dict[str, None] = {}  # groups for which no search was made, as an equal one had just failed

    def is_known(self, group: Group, now: float) -> bool:
        found = self._failed.get(_kind(group))
        if found is None:
            return False
        at, mark = found
        lasts = SEARCH_AGAIN if self.limited else 0.0
        known = at <= now <= at + lasts and (self.limited or mark == self._mark)
        if known:
            self._remember(group.name)
            if mark != self._mark and len(self._postponed) < MOST_FAILED_SEARCHES:
                self._postponed[group.name] = None
        return known

    @property
    def _mark(self) -> tuple[int, int]:
        """A value that changes whenever a search may have another result."""
        return self._ledger.generation, self._demand()

    def take_postponed(self) -> list[str]:
        """Groups to be tried again: something has changed since the search that failed."""
        postponed, self._postponed = list(self._postponed), {}
        return postponed

    @property
    def has_postponed(self) -> bool:
        return bool(self._postponed)

    def begin_again(self, names: Iterable[str]) -> None:
        """Forget the failed searches, and keep these names of groups that no eviction would help."""
        self._failed, self._postponed, self.names = {}, {}, dict.fromkeys(names)

    def note(self, group: Group, now: float) -> None:
        if len(self._failed) >= MOST_FAILED_SEARCHES:
            self._failed.clear()
        self._failed[_kind(group)] = (now, self._mark)
        self._remember(group.name)

    def forget(self, name: str) -> None:
        self.names.pop(name, None)

    def _remember(self, name: str) -> None:
        if len(self.names) < MOST_FAILED_SEARCHES:
            self.names[name] = None


def _kind(group: Group) -> Any:
    """Groups of one kind ask for the same with the same rights."""
    return (group.needed, group.minimum, group.roles, group.topology, *(_kind_of_pod(pod) for pod in group.pods))


def _kind_of_pod(pod: Pod) -> Any:
    rules = (pod.containers, pod.device_rules, pod.node_rules, pod.relations, tuple(sorted(pod.labels.items())))
    rank = (pod.priority, pod.preempts, pod.role)
    return (pod.namespace, pod.queue, rank, tuple(sorted(pod.resources.items())), rules)
