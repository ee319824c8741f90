"""Queue disciplines: whether a group may be placed before a waiting group that is ahead of it in the queue.

`backfill`: every group that fits is placed. `strict`: no group is placed while a group ahead of it waits. Live and
simulated runs use the same two; a `Scheduler` has one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from dovetail.engine.kernel.state import NONE
from dovetail.engine.ledger.decisions import joined
from dovetail.engine.placer import Placer
from dovetail.engine.queue import ALWAYS, IN_ORDER, WaitingRoom, can_be_placed, left_over
from dovetail.engine.retries import Retries
from dovetail.engine.wake import Wake
from dovetail.model.decision import Decision
from dovetail.model.events import Effect
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason


class Queueing(Protocol):
    """What a discipline needs of the scheduler."""

    placer: Placer
    waiting: WaitingRoom
    wake: Wake
    retries: Retries

    def try_waiting(self, at: float, group: Group) -> list[Effect]: ...

    def listen(self) -> None: ...


class Discipline(Protocol):
    def line_of(self, group: Group) -> Hashable:
        """The key of the group's line in the waiting room."""

    def place(self, groups: Sequence[Group]) -> Sequence[Decision]:
        """Decide groups in the order given."""

    def arrive(self, group: Group) -> Sequence[Decision]:
        """Decide one group that has just arrived."""

    def arrived_again(self, at: float) -> Sequence[Effect]:
        """Called after a waiting group has arrived again, with other pods, and was decided."""

    def freed(self, at: float, rows: Sequence[int], related: bool = False) -> Sequence[Effect]:
        """Try waiting groups on what these rows have now. `related`: rules between pods may be satisfied now, too."""

    def offer(self, at: float, keys: Sequence[Hashable]) -> Sequence[Effect]:
        """Try the groups in these lines, in order."""

    def left(self, at: float, row: int) -> Sequence[Effect]:
        """Called after a pod has left the row, or the queue (row NONE)."""

    def rest(self, at: float, group: Group) -> Sequence[Effect]:
        """Called after pods of a waiting group left: the others may be easier to place."""


class Backfill:
    def __init__(self, of: Queueing) -> None:
        self._of = of
        self.place, self.arrive = of.placer.place, of.placer.place_group  # no group waits for another one

    def line_of(self, group: Group) -> Hashable:
        """Lone pods with equal requests share a line. Any change may help a gang or a pod under a quota."""
        placer, pod = self._of.placer, group.pods[0]
        if len(group.pods) > 1 or not group.is_plain:
            return ALWAYS
        if not placer.needs_care(group):
            return self._request(pod)
        queued = placer.queues.active and placer.queues.apply_to(pod)
        if queued or not can_be_placed(group) or placer.quotas.apply_to(pod):
            return ALWAYS
        key = self._request(pod)  # a pod that is special only for its preferences waits like any other
        if placer.related.restricts(pod):
            key = (*key, pod.namespace, tuple(sorted(pod.labels.items())), pod.relations)
            self._of.listen()
        if placer.nominated.row_of(pod.uid) != NONE:
            key = (*key, pod.uid)  # other pods yield to it on its node
        return key

    def _request(self, pod: Pod) -> tuple[Hashable, ...]:
        signature = self._of.placer.requests.signature(pod)
        return (signature.profile, signature.shape, signature.mask)

    def arrived_again(self, at: float) -> Sequence[Effect]:
        return ()

    def freed(self, at: float, rows: Sequence[int], related: bool = False) -> Sequence[Effect]:
        """Try waiting groups on these rows. Any row may help a gang or a pod under a quota.

        The other groups waited because no other row could take them, so they are tried only while these rows can. This
        is wrong for groups with rules about other pods: they are tried anyway.
        """
        if self._of.retries.deferred:
            self._of.retries.note_rows(rows)
            self._of.retries.note(self._of.wake.related() if related else ())
            return ()
        keys = self._of.wake.helped(rows)
        if related:
            return self.offer(at, list(dict.fromkeys((*keys, *self._of.wake.related()))))
        return self._offer(at, keys, rows)

    def offer(self, at: float, keys: Sequence[Hashable]) -> Sequence[Effect]:
        if self._of.retries.deferred:
            self._of.retries.note(keys)
            return ()
        return self._offer(at, keys, ())

    def _offer(self, at: float, keys: Sequence[Hashable], rows: Sequence[int]) -> list[Effect]:
        """Try each line until a group finds no place: the next group asks for the same. `rows`: only these can help.

        Exception: a group that got another line since, because of pods that arrived, does not stop its old line.
        """
        waiting, fitting = self._of.waiting, set(keys)
        lines = [waiting.line(key) for key in keys]
        turns = [(line[0], n, 0) for n, line in enumerate(lines)]
        heapify(turns)
        effects: list[Effect] = []
        while turns:
            place, n, position = heappop(turns)
            if keys[n] is not ALWAYS and keys[n] not in fitting:
                continue
            placed = self._of.try_waiting(at, place.group)
            effects += placed
            if placed and rows:
                fitting = set(self._of.wake.fitting(rows))
            alike = keys[n] is not ALWAYS and waiting.key_of(place.group.name) == keys[n]
            if (placed or not alike) and position + 1 < len(lines[n]):
                heappush(turns, (lines[n][position + 1], n, position + 1))
        return effects

    def left(self, at: float, row: int) -> Sequence[Effect]:
        return self.freed(at, (row,)) if row != NONE else ()

    def rest(self, at: float, group: Group) -> Sequence[Effect]:
        return self._of.try_waiting(at, group)


class Strict:
    def __init__(self, of: Queueing) -> None:
        self._of = of

    def line_of(self, group: Group) -> Hashable:
        """One line for all groups that room could help. Other groups do not block the groups behind them."""
        return IN_ORDER if can_be_placed(group) else ALWAYS

    def place(self, groups: Sequence[Group]) -> Sequence[Decision]:
        """Decide groups as if each arrived alone.

        A group that no room could help gets its own reason and blocks no other group.
        """
        placer = self._of.placer
        parts: list[Sequence[Decision]] = []
        late: list[Any] = []  # orders of groups that would wait now
        for group in groups:
            if placer.learns_from((group,)):
                placer.learn((group,), 0)
            front, order = self._of.waiting.front(besides=group.name), self._of.waiting.order_of(group)
            before = min(late[:1] + ([front.order] if front else []), default=order)
            if before < order and can_be_placed(group):
                parts.append([placer.refused(pod, Reason.QUEUE_ORDER) for pod in group.pods])
            else:
                parts.append(placer.place_all((group,)))
            rest = left_over(group, parts[-1])
            if rest is not None and can_be_placed(rest):
                heappush(late, self._of.waiting.order_of(rest))
        return joined(parts)

    def arrive(self, group: Group) -> Sequence[Decision]:
        return self.place((group,))

    def arrived_again(self, at: float) -> Sequence[Effect]:
        return self._advance(at)  # it may have blocked other groups

    def freed(self, at: float, rows: Sequence[int], related: bool = False) -> Sequence[Effect]:
        return self._advance(at)

    def offer(self, at: float, keys: Sequence[Hashable]) -> Sequence[Effect]:
        return self._advance(at) if keys else ()

    def left(self, at: float, row: int) -> Sequence[Effect]:
        return self._advance(at)

    def rest(self, at: float, group: Group) -> Sequence[Effect]:
        return self._advance(at)

    def _advance(self, at: float) -> list[Effect]:
        """Try groups from the front of the line, until one stays there without a place.

        An order may put a group that was tried behind others: then these are tried, each group once.
        """
        effects: list[Effect] = []
        tried: set[str] = set()
        front = self._of.waiting.front()
        while front is not None and front.group.name not in tried:
            tried.add(front.group.name)
            effects += self._of.try_waiting(at, front.group)
            front = self._of.waiting.front()
        return effects


BACKFILL, STRICT = "backfill", "strict"
DISCIPLINES: dict[str, Callable[[Queueing], Discipline]] = {BACKFILL: Backfill, STRICT: Strict}
