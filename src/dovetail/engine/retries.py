"""Retries of waiting groups in portions: what changed is noted, and a bounded number of pods is tried at a time.

The live scheduler defers retries, so that one change that could help ten thousand waiting pods of one tenant keeps no
other pod waiting. Within a portion the order is that of the queue; changes that come meanwhile are tried afterwards.
The simulator and plans retry at once (disciplines.py); both end with the same placements where nothing else comes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from dovetail.engine.queue import ALWAYS, WaitingRoom
from dovetail.engine.wake import Wake
from dovetail.model.events import Effect
from dovetail.model.pod import Group

LIST_COST = 4  # of holding one list of requests against a row, in tries
MAX_WAKE_CHECKS = 5_000  # waiting requests × changed pods held against each other; beyond, all of them are tried


class Retries:
    """Requests to be offered room again. `deferred` is set by a driver that calls `Scheduler.retry_some`."""

    def __init__(self, waiting: WaitingRoom, wake: Wake, try_waiting: Callable[[float, Group], list[Effect]]) -> None:
        self._waiting, self._wake, self._try = waiting, wake, try_waiting
        self.deferred = False
        self._rows: dict[int, None] = {}  # rows that changed and were not held against requests yet
        self._left: list[int] = []  # lists of requests that `_seen` is still to be held against
        self._line: list[tuple[Any, int, Hashable]] = []  # a heap of (order of the next group, number, request)
        self._listed: dict[Hashable, bool] = {}  # requests in it -> whether only rows in `_seen` can help
        self._again = False  # another pass over the groups that any change might help
        self._seen: tuple[int, ...] = ()  # rows whose requests are in the line
        self._fitting: dict[int, set[Hashable]] = {}  # list of requests -> those that `_seen` can take now
        self._number = self._restarts = 0
        self._lists = 0  # that `_seen` was, or is to be, held against; 0 = nothing is left to list
        self._credit = 0  # tries that are left of this portion

    def __bool__(self) -> bool:
        return bool(self._rows or self._left or self._lists or self._line or self._again)

    def note_rows(self, rows: Iterable[int]) -> None:
        self._rows.update(dict.fromkeys(rows))

    def note(self, keys: Iterable[Hashable], by_rows: bool = False) -> None:
        """These requests are to be tried, each from its first group on."""
        for key in keys:
            if key is ALWAYS and key in self._listed:
                self._again = True
            elif key not in self._listed:
                self._push(key, by_rows)
            elif not by_rows:
                self._listed[key] = False

    def run(self, at: float, pods: int) -> list[Effect]:
        """Try groups, in order, until so many pods were tried: at least one group."""
        self._credit = pods
        self._hold_rows_against_requests()
        effects: list[Effect] = []
        while self._line and self._credit > 0 and not self._left and not self._lists:
            order, _, key = heappop(self._line)
            by_rows = self._listed.pop(key)
            place = self._waiting.next_in(key, order if key is ALWAYS else None)
            if place is None or (by_rows and key is not ALWAYS and not self._fits(key)):
                continue
            placed = self._try(at, place.group)
            self._credit -= len(place.group.pods)
            effects += placed
            if placed:
                self._fitting.clear()
            alike = key is not ALWAYS and self._waiting.key_of(place.group.name) == key
            if placed or not alike:
                self._push(key, by_rows, place.order)
        if not self._line and self._again:
            self._again = False
            self._push(ALWAYS, False)
        return effects

    def _push(self, key: Hashable, by_rows: bool, after: Any = None) -> None:
        """The next group of the request gets in line; of those that any change might help, the one behind `after`."""
        behind = key is ALWAYS and after is not None
        place = self._waiting.next_in(key, after if behind else None, behind)
        if place is not None:
            self._number += 1
            self._listed[key] = by_rows
            heappush(self._line, (place.order, self._number, key))

    def _hold_rows_against_requests(self) -> None:
        """Nobody is tried before all are known whom the rows could help: the order is that of the queue."""
        wake = self._wake
        if wake.is_outdated and (self._left or self._lists):  # the numbers of lists will be others
            self._rows.update(dict.fromkeys(self._seen))
            self._left, self._lists = [], 0
        if self._rows and not self._left and not self._lists:
            self._seen = tuple(dict.fromkeys((*self._seen, *self._rows))) if self._line else tuple(self._rows)
            self._rows = {}
            self._fitting.clear()
            self._lists = wake.lists(1)
            self._left = list(range(self._lists))
            self.note([ALWAYS] if self._waiting.asks(ALWAYS) else [])
        while self._credit > 0 and (self._left or self._lists):
            if not self._left:
                self._list_more()
                continue
            number = self._left.pop()
            if number < len(wake):
                self.note(self._fit_in(number), by_rows=True)

    def _list_more(self) -> None:
        """Requests that are in no list yet, of thousands that came together. `_lists` is 0 when all are."""
        wake, before = self._wake, self._lists
        if wake.is_complete:
            self._lists = 0
            return
        self._credit -= LIST_COST
        self._lists = wake.lists(1)
        self._left = list(range(before, self._lists))

    def _fit_in(self, number: int) -> set[Hashable]:
        self._credit -= LIST_COST * len(self._seen)
        self._fitting[number] = set(self._wake.fitting_in(number, self._seen))
        return self._fitting[number]

    def _fits(self, key: Hashable) -> bool:
        """Whether the rows can still take the request: those tried before it may have taken the room."""
        wake = self._wake
        number = wake.list_of(key)
        if number is None:
            return True
        if self._restarts != wake.restarts:
            self._restarts = wake.restarts
            self._fitting.clear()
        return key in (self._fitting[number] if number in self._fitting else self._fit_in(number))


def too_many(requests: Sequence[Hashable], changed: Sequence[object]) -> bool:
    return len(requests) * len(changed) > MAX_WAKE_CHECKS
