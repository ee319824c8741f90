"""PriorityClasses as last reported: what their pods tolerate. The API server itself writes priorities to pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.preemption import tolerance_of
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.model.pod import Tolerance


class PriorityClassMirror:
    def __init__(self, tolerances: dict[str, Tolerance]) -> None:
        """`tolerances`, by the name of the class, is kept up to date here and read by the reader of pods."""
        self._tolerances = tolerances
        self.problems: list[Problem] = []  # not reported yet; the code that reports them empties the list

    def hear(self, batch: Iterable[Event[objects.PriorityClass]]) -> set[str]:
        """Take in what was reported; returns the names of the classes that tolerate something else now."""
        return {name for event in batch for name in self._heard(event)}

    def _heard(self, event: Event[objects.PriorityClass]) -> Iterator[str]:
        if isinstance(event, Replaced):
            there = {one.metadata.name for one in event.items} | {one.ref.name for one in event.unreadable}
            for name in [name for name in self._tolerances if name not in there]:
                yield from self._set(name, None)
            for one in event.items:
                yield from self._read(one)
        elif isinstance(event, Changed):
            yield from self._read(event.object)
        elif isinstance(event, Deleted):
            yield from self._set(event.ref.name, None)
        elif isinstance(event, NotServed):
            for name in list(self._tolerances):
                yield from self._set(name, None)

    def _read(self, source: objects.PriorityClass) -> Iterator[str]:
        problems = Problems()
        tolerance = tolerance_of(source, f"PriorityClass {source.metadata.name}", problems)
        self.problems += problems.found()
        yield from self._set(source.metadata.name, tolerance)

    def _set(self, name: str, tolerance: Tolerance | None) -> Iterator[str]:
        if self._tolerances.get(name) == tolerance:
            return
        if tolerance is None:
            del self._tolerances[name]
        else:
            self._tolerances[name] = tolerance
        yield name
