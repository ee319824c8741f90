"""Other Dovetails on the cluster: found by their Leases, and refused where they could place on the same nodes.

Two schedulers that do not see each other's reservations can give the same card to two pods. Of two Dovetails with
overlapping nodes, the one that acquired its Lease first continues. Equal times are decided by the Lease's name, so that
both agree (ADR 15).

Any tenant that may write a Lease can write one that looks like a Dovetail's. Only Leases in the namespace of our own
Lease, and in the configured namespaces, can stop us. Others only cause a warning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Forbidden, Unavailable
from dovetail.kube.api.retry import REAL, World
from dovetail.kube.api.typed import UNREADABLE
from dovetail.kube.live.election import Terms, either
from dovetail.kube.live.lease import ROOT, Lease, LeaseList, Marks
from dovetail.kube.log import ERROR, WARNING, Log
from dovetail.kube.objects.problems import printable

LONG_DEAD = 60.0  # seconds since its last renewal after which a Lease seen for the first time counts as dead
LONGEST_LEASE_SECONDS = 600.0  # seconds, the maximum of --lease-seconds: a longer duration is not trusted
MOST_MARKS = 100  # of each kind that the log names
REMIND = 300.0  # seconds between two reports that other Dovetails' Leases cannot be read
Selector = tuple[tuple[str, str], ...]
FIX = "Run one of them, or give each its own nodes: --node-selector KEY=VALUE with the same key and different values"


_LEASES = msgspec.json.Decoder(LeaseList)


class Overlap(Exception):
    """Another Dovetail acquired its Lease for the same nodes earlier."""


@dataclass(slots=True)
class _SeenLease:
    """A Lease, with times of our own clock."""

    lease: Lease
    changed: float  # when a renewal was last seen
    holder_since: float  # when its holder was first seen
    renewed: bool = False  # a renewal was seen: its holder is alive, or was then


class Peers:
    """Finds other Dovetails. `await until_alone()` before the first decision, then run `watch()` in a task."""

    def __init__(
        self,
        api: Api,
        own: Callable[[], Lease],
        *,
        terms: Terms,
        now: Callable[[], float],
        log: Log,
        namespaces: tuple[str, ...] = (),
        world: World = REAL,
    ) -> None:
        """`own` is our Lease as last written; `now` is the time in the clock of Leases.

        `namespaces`: those, beside that of our own Lease, whose Leases are trusted.
        """
        self._api, self._own, self._terms, self._now, self._log, self._world = api, own, terms, now, log, world
        self._namespaces = namespaces
        self._seen: dict[str, _SeenLease] = {}
        self._reported: set[str] = set()
        self._marks: set[str] = set()  # bound-by values of other Dovetails, seen on pods
        self._apart: frozenset[str] = frozenset()  # Leases of Dovetails with separate nodes
        self._noticed = asyncio.Event()
        self._warned: set[str] = set()  # Leases in other namespaces that were logged
        self.elsewhere = 0  # Leases in other namespaces that claim our nodes
        self.refused = ""  # why other Dovetails' Leases cannot be read; "" = they can
        self._refused_at = 0.0  # when that was last reported

    async def until_alone(self, say: Callable[[str], None]) -> None:
        """Wait until no other Dovetail has an earlier Lease, and every later one has had time to stop."""
        told = ""
        while True:
            try:
                rivals = await self._look(newest=True)
                if not any(self._is_in_the_way(rival) for rival in rivals):
                    return
                text = self._refusal(rivals)
            except ApiError as error:
                text = f"looking for other Dovetails: {error.message}"
            if text != told:
                self._log(text, ERROR)
                say(text)
                told = text
            await self._world.sleep(self._terms.duration / 5)

    async def watch(self) -> None:
        """Watch until another Dovetail is found to have the earlier Lease; then raise Overlap.

        A Lease that newly appears does not end a working scheduler: its Dovetail may be dead, and the Lease unreadable
        until now. The next check shows whether it is renewed.
        """
        while True:
            await either(self._noticed, self._terms.duration / 3)
            self._noticed.clear()
            try:
                rivals = await self._look()
            except ApiError:
                continue  # if the API server is unreachable, our own Lease expires
            if any(rival.renewed and _claim(rival.lease) < _claim(self._own()) for rival in rivals):
                raise Overlap(self._refusal(rivals))
            for rival in rivals:
                self._report(f"{_title(rival.lease)} has the same nodes and must wait for this one. {FIX}.")

    def notice(self, mark: str, pod: str) -> None:
        """Check Leases at once: a pod carries the bound-by annotation of another Dovetail.

        The annotation is not proof: any client that may patch pods can write it. The check is made once for each value,
        and not for Dovetails with separate nodes.
        """
        if mark in self._apart or mark in self._marks or len(self._marks) >= MOST_MARKS:
            return
        self._marks.add(mark)
        self._noticed.set()
        self._log(f"pod {pod} was bound by another Dovetail, of Lease {printable(mark, 300)}", WARNING, pod=pod)

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._log(text, WARNING)

    def _is_in_the_way(self, rival: _SeenLease) -> bool:
        """Whether the rival's Lease is earlier than ours, or its holder may not have seen ours yet."""
        patience = 2 / 3 * max(self._terms.duration, _duration(rival.lease))
        return _claim(rival.lease) < _claim(self._own()) or self._world.now() - rival.holder_since < patience

    def _refusal(self, rivals: list[_SeenLease]) -> str:
        others = ", ".join(_title(rival.lease) for rival in rivals)
        return f"not scheduling: {others} has the same nodes as this one, of {_title(self._own())}. {FIX}"

    async def _look(self, newest: bool = False) -> list[_SeenLease]:
        """Trusted Leases of live Dovetails that may place on our nodes."""
        mine = self._own()
        there, complete = await self._list({} if newest else {"resourceVersion": "0"})
        now = self._world.now()
        found = {} if complete else dict(self._seen)  # keep Leases that cannot be read for a while
        for lease in there:
            key = lease.key
            if key == mine.key or not lease.spec.holder_identity:
                found.pop(key, None)
                continue
            found[key] = self._as_seen(lease, self._seen.get(key), now)
        self._seen = found
        ours = mine.marks().selector
        self._apart = frozenset(key for key, seen in found.items() if disjoint(ours, seen.lease.marks().selector))
        live = [seen for seen in found.values() if now - seen.changed < _duration(seen.lease)]
        rivals = [seen for seen in live if seen.lease.key not in self._apart]
        self._warn_of([seen.lease for seen in rivals if not self._is_believed(seen.lease)])
        return [seen for seen in rivals if self._is_believed(seen.lease)]

    def _as_seen(self, lease: Lease, before: _SeenLease | None, now: float) -> _SeenLease:
        if before is None:
            return _SeenLease(lease, now - _duration(lease) if self._is_long_dead(lease) else now, now)
        changed = before.lease.spec != lease.spec
        same_holder = _claim(before.lease) == _claim(lease)
        return _SeenLease(
            lease,
            now if changed else before.changed,
            before.holder_since if same_holder else now,
            before.renewed or changed,
        )

    def _believed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self._own().metadata.namespace, *self._namespaces)))

    def _is_believed(self, lease: Lease) -> bool:
        return lease.metadata.namespace in self._believed()

    def _warn_of(self, leases: list[Lease]) -> None:
        """Warn once for each Lease, even if its content changes later."""
        self.elsewhere = len(leases)
        for lease in leases:
            if lease.key not in self._warned and len(self._warned) < MOST_MARKS:
                self._warned.add(lease.key)
                text = f"{_title(lease)} claims the same nodes. It is in another namespace and stops nothing. {FIX}"
                self._log(f"{text}; or name its namespace: --peer-namespace, in both.", WARNING)

    async def _list(self, params: Mapping[str, str]) -> tuple[list[Lease], bool]:
        """Leases of all namespaces, or of trusted ones where we may not read all; and whether no read was forbidden."""
        found, refused, complete = [], "", True
        try:
            found = await self._get(f"{ROOT}/leases", params)
        except Forbidden as error:
            complete = False
            self._report(f"other Dovetails are not looked for in all namespaces: {error.message}")
            for namespace in self._believed():
                try:
                    found += await self._get(f"{ROOT}/namespaces/{namespace}/leases", params)
                except Forbidden as refusal:
                    refused = refusal.message
        self._note_refused(refused)
        return found, complete

    async def _get(self, path: str, params: Mapping[str, str]) -> list[Lease]:
        try:
            return _LEASES.decode(await self._api.get(path, {"labelSelector": Marks.LABEL, **params})).items
        except UNREADABLE as error:
            raise Unavailable(f"the Leases cannot be read: {printable(str(error), 300)}") from None

    def _note_refused(self, why: str) -> None:
        """Note that Leases cannot be read.

        Scheduling continues: a Role from an older version must not stop a cluster.
        """
        now = self._world.now()
        if why and (not self.refused or now - self._refused_at >= REMIND):
            self._refused_at = now
            self._log(f"other Dovetails cannot be looked for, and a second one would not be noticed: {why}", ERROR)
        self.refused = why

    def _is_long_dead(self, lease: Lease) -> bool:
        """Whether the Lease was last renewed long ago, or far in the future.

        The two clocks may differ, so the limit is long. If the Lease is renewed later, it counts as alive again.
        """
        try:
            renewed = datetime.fromisoformat(lease.spec.renew_time or "").timestamp()
        except ValueError:
            return True
        return abs(self._now() - renewed) > max(LONG_DEAD, 4 * _duration(lease))


def disjoint(one: Selector, other: Selector) -> bool:
    """Whether no node can match both selectors: they require different values of the same label."""
    theirs = dict(other)
    return any(theirs.get(label, value) != value for label, value in one)


def _claim(lease: Lease) -> tuple[str, str]:
    """The order of Leases: the smaller one is the earlier. Times are written in one format, so they compare as text."""
    return lease.spec.acquire_time or "", lease.key


def _duration(lease: Lease) -> float:
    return min(float(lease.spec.lease_duration_seconds or 15), LONGEST_LEASE_SECONDS)


def _title(lease: Lease) -> str:
    holder = printable(lease.spec.holder_identity or "no process", 100)
    nodes = printable(lease.marks().nodes, 200)
    return f"the Dovetail of Lease {printable(lease.key, 200)} (held by {holder}, nodes: {nodes})"
