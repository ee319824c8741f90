"""Retries of waiting groups in portions: changes are noted, and a bounded number of pods is tried at a time.

The live scheduler defers retries: one change may help ten thousand waiting pods of one tenant, and other pods must not
wait for them. Within a portion, groups are tried in the order of the queue. Changes that come meanwhile are tried
afterwards. The simulator and plans retry at once (disciplines.py). Both end with the same placements if no other event
comes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from dovetail.engine.queue import ALWAYS, WaitingRoom
from dovetail.engine.wake import Wake
from dovetail.model.events import Effect
from dovetail.model.pod import Group

LIST_COST = 4  # cost of checking one list of requests against a row, in tries
MAX_WAKE_CHECKS = 5_000  # waiting requests × changed pods to check; above this number all requests are tried


class Retries:
    """Requests to be tried again. A driver that calls `Scheduler.retry_some` sets `deferred`."""

    def __init__(self, waiting: WaitingRoom, wake: Wake, try_waiting: Callable[[float, Group], list[Effect]]) -> None:
        self._waiting, self._wake, self._try = waiting, wake, try_waiting
        self.deferred = False
        self._rows: dict[int, None] = {}  # changed rows that were not checked against requests yet
        self._left: list[int] = []  # lists of requests still to be checked against the rows in `_seen`
        self._line: list[tuple[Any, int, Hashable]] = []  # a heap of (order of the next group, number, request)
        self._listed: dict[Hashable, bool] = {}  # requests in `_line` -> whether only rows in `_seen` can help
        self._again = False  # another pass over the groups that any change could help
        self._seen: tuple[int, ...] = ()  # rows whose requests are in the line
        self._fitting: dict[int, set[Hashable]] = {}  # list of requests -> those that `_seen` can take now
        self._number = self._restarts = 0
        self._lists = 0  # lists to be checked against `_seen`, done or not; 0 = nothing is left to list
        self._credit = 0  # tries left in this portion
        self._made: list[Effect] = []  # not returned yet; after an exception, the next portion returns them

    def __bool__(self) -> bool:
        return bool(self._rows or self._left or self._lists or self._line or self._again or self._made)

    def begin_again(self) -> None:
        """Forget what is to be tried: the caller notes all requests that wait. Effects made are still returned."""
        self._rows, self._left, self._line, self._listed, self._fitting = {}, [], [], {}, {}
        self._again, self._seen, self._lists, self._number = False, (), 0, 0

    def note_rows(self, rows: Iterable[int]) -> None:
        self._rows.update(dict.fromkeys(rows))

    def note(self, keys: Iterable[Hashable], by_rows: bool = False) -> None:
        """Note that these requests must be tried, each from its first group on."""
        for key in keys:
            if key is ALWAYS and key in self._listed:
                self._again = True
            elif key not in self._listed:
                self._push(key, by_rows)
            elif not by_rows:
                self._listed[key] = False

    def run(self, at: float, pods: int) -> list[Effect]:
        """Try groups in order until `pods` pods were tried: at least one group."""
        self._credit = pods
        self._hold_rows_against_requests()
        while self._line and self._credit > 0 and not self._left and not self._lists:
            order, _, key = heappop(self._line)
            by_rows = self._listed.pop(key)
            place = self._waiting.next_in(key, order if key is ALWAYS else None)
            if place is None or (by_rows and key is not ALWAYS and not self._fits(key)):
                continue
            placed = self._try(at, place.group)
            self._credit -= len(place.group.pods)
            self._made += placed
            if placed:
                self._fitting.clear()
            alike = key is not ALWAYS and self._waiting.key_of(place.group.name) == key
            if placed or not alike:
                self._push(key, by_rows, place.order)
        if not self._line and self._again:
            self._again = False
            self._push(ALWAYS, False)
        effects, self._made = self._made, []
        return effects

    def _push(self, key: Hashable, by_rows: bool, after: Any = None) -> None:
        """Put the next group of the request in line. For ALWAYS: the next group behind `after`."""
        behind = key is ALWAYS and after is not None
        place = self._waiting.next_in(key, after if behind else None, behind)
        if place is not None:
            self._number += 1
            self._listed[key] = by_rows
            heappush(self._line, (place.order, self._number, key))

    def _hold_rows_against_requests(self) -> None:
        """Find all requests that the changed rows could take.

        Groups are tried only after that: the queue gives the order.
        """
        wake = self._wake
        if wake.is_outdated and (self._left or self._lists):  # the lists will get other numbers
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
        """Build a list of requests that are in no list yet: thousands may come together.

        `_lists` = 0: all are listed.
        """
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
        """Whether the rows can still take the request: groups tried before it may have used the room."""
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
