"""Compares the ledger with itself and with the API server's objects, at intervals; rebuilds it where it is wrong.

A round takes many turns of the loop, one slice in each. During a slice all events are booked and nothing is being
decided, so its comparison is exact. A difference is a programming error: it is logged by name and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dovetail.engine.ledger.audit import LedgerDifference, is_readable, of_book, of_entries, of_rows
from dovetail.kube.live.known import Known, Stand
from dovetail.kube.log import ERROR, INFO
from dovetail.model.decision import Share
from dovetail.model.node import Enforcer
from dovetail.model.pod import RunningPod, Trust

if TYPE_CHECKING:
    from dovetail.kube.live.driver import Driver

AUDIT_SECONDS = 60.0  # between two rounds
MAX_AUDIT_DELAY = 10.0  # seconds that a round waits for Bindings under way
OVERDUE = 5  # intervals after which the audit runs even in a busy scheduler
ROWS_A_SLICE = 128  # a slice then takes some 10 ms on 5,000 nodes with 30,000 pods
PODS_A_SLICE = 400
MOST_LOGGED = 10  # differences of one round that are logged by name


class LedgerAudit:
    def __init__(self, driver: Driver, seconds: float = AUDIT_SECONDS) -> None:
        """`seconds` 0: audit only when `demand` is called."""
        self._driver, self.seconds = driver, seconds
        self._ledger, self._mirror = driver.scheduler.ledger, driver.mirror
        self._due = driver.now() + (seconds or float("inf"))
        self._round: Iterator[list[LedgerDifference]] | None = None
        self._demanded = False
        self._stuck: set[LedgerDifference] = set()  # differences that the last rebuild did not remove
        self.rounds = self.differences = self.rebuilds = 0

    def demand(self) -> None:
        """Begin a round as soon as there is time: an event may have left the ledger wrong."""
        self._demanded, self._due = True, min(self._due, self._driver.now())

    @property
    def is_due(self) -> bool:
        """Whether a slice is due now. While pods are being bound, it waits: the Bindings need the time more."""
        is_late = self._driver.now() >= self._due + MAX_AUDIT_DELAY
        due = self._demanded or self._round is not None or self._driver.now() >= self._due
        return due and (is_late or not self._driver.binder.writing)

    @property
    def is_overdue(self) -> bool:
        return self._driver.now() >= self._due + OVERDUE * (self.seconds or AUDIT_SECONDS)

    def step(self) -> None:
        """Run one slice. The caller must have booked all events."""
        if self._round is None:
            self._round, self._demanded = self._slices(), False
        try:
            found = next(self._round, None)
        except Exception as error:  # the ledger is wrong in a way that the audit does not expect
            found = [_failed(error)]
        if found is None:
            self.rounds += 1
            wait = 0.0 if self._demanded else self.seconds or float("inf")
            self._round, self._due = None, self._driver.now() + wait
        elif not self._stuck.issuperset(found):
            self._put_right(found)

    # ---- slices -------------------------------------------------------------------------------------------------

    def _slices(self) -> Iterator[list[LedgerDifference]]:
        ledger, mirror = self._ledger, self._mirror
        yield list(of_book(ledger))
        yield list(of_entries(ledger))
        for first in range(0, len(ledger.rows.cap), ROWS_A_SLICE):
            yield list(of_rows(ledger, first, first + ROWS_A_SLICE))
        for some in _portions(mirror.pods):
            yield [each for uid in some for each in self._of_pod(uid)]
        for some in _portions(ledger.pods):
            yield [each for uid in some for each in self._of_holder(uid)]
        for some in _portions({**mirror.nodes, **ledger.row_of}):
            yield [each for name in some for each in self._of_node(name)]

    def _of_pod(self, uid: str) -> Iterator[LedgerDifference]:
        """Differences of one pod.

        A running pod holds its known cards; a pod that is being bound holds its reservation.
        """
        known = self._mirror.pods.get(uid)
        expected = self._expected(uid, known)
        if known is None or expected is None:
            return
        slot = self._ledger.pods.slot_of.get(uid)
        if slot is None:
            yield LedgerDifference("the pod is not booked", expected.node, pod=known.key)
            return
        if not 0 <= self._ledger.row_holding(uid) < len(self._ledger.nodes):
            return  # reported with its slot
        booked = self._ledger.node_of(uid)
        if booked != expected.node:
            yield LedgerDifference(f"the pod is booked on node {booked}", expected.node, pod=known.key)
            return
        if known.stand is Stand.HOLDS and self._ledger.is_reserved(uid):
            yield LedgerDifference("the pod runs, but its place is only reserved", booked, pod=known.key)
        if not self._is_guessed(uid, expected) and is_readable(self._ledger, slot):
            for card in _unequal(self._ledger.shares(slot), expected):
                yield LedgerDifference("the pod's share of a card is not the one it was given", booked, card, known.key)

    def _of_holder(self, uid: str) -> Iterator[LedgerDifference]:
        """Differences of one holder: a pod that holds something must be running or being bound."""
        row = self._ledger.row_holding(uid)
        if 0 <= row < len(self._ledger.nodes) and self._expected(uid, self._mirror.pods.get(uid)) is None:
            text = "the pod holds a node, but neither runs there nor is being bound"
            yield LedgerDifference(text, self._ledger.nodes[row].name, pod=self._ledger.pods.pod(uid).key)

    def _of_node(self, name: str) -> Iterator[LedgerDifference]:
        row, node = self._ledger.row_of.get(name), self._mirror.nodes.get(name)
        if self._driver.set_aside.has("Node", name):
            return  # it takes no new pods
        if node is None and row is not None and self._ledger.is_active(row):
            yield LedgerDifference("the node takes pods, but is gone", name)
        if node is not None and (row is None or not self._ledger.is_active(row) or self._ledger.nodes[row] != node):
            yield LedgerDifference("the node is not booked as it is", name)

    def _expected(self, uid: str, known: Known | None) -> RunningPod | None:
        """What the pod should hold; None = nothing."""
        if known is not None and known.stand is Stand.HOLDS:
            return known.running
        bind = self._driver.on_the_way.get(uid)
        return RunningPod(bind.pod, str(bind.decision.node), bind.decision.shares) if bind is not None else None

    def _is_guessed(self, uid: str, expected: RunningPod) -> bool:
        """Whether the pod's cards are a guess: they are not recorded, or the record is not trusted."""
        ledger = self._ledger
        kubelet_picks = ledger.nodes[ledger.row_of[expected.node]].enforcer is Enforcer.STOCK
        return expected.shares is None or kubelet_picks or ledger.pods.is_assumed(ledger.pods.slot_of[uid])

    # ---- a ledger that is wrong ---------------------------------------------------------------------------------

    def _put_right(self, found: list[LedgerDifference]) -> None:
        """Audit everything once more in one step, then rebuild the ledger."""
        every = self.look_at_all() or found
        self.differences += len(every)
        self._say(every, "the ledger is wrong and is rebuilt")
        self.rebuild()
        left = self.look_at_all()
        self._stuck = set(left)
        if left:
            self._say(left, "the ledger is still wrong after it was rebuilt")
        else:
            self._driver.log("the ledger was rebuilt from the API server's objects", INFO, count=len(every))
        self._round, self._due = None, self._driver.now() + (self.seconds or float("inf"))

    def rebuild(self) -> None:
        """Rebuild the ledger from the last reported nodes and pods, and from placements under way."""
        self.rebuilds += 1
        scheduler, mirror = self._driver.scheduler, self._mirror
        running = [known.running for known in mirror.pods.values() if known.running is not None]
        reserved = [self._reserved(uid) for uid in self._driver.on_the_way if not mirror.known.holds(uid)]
        scheduler.rebuild(list(mirror.nodes.values()), running, reserved)
        scheduler.retry_all(self._driver.now())
        self._driver.happened(())

    def _reserved(self, uid: str) -> RunningPod:
        """The reservation of a placed pod.

        Cards that were guessed are guessed again: the Binding does not name them.
        """
        bind, pods = self._driver.on_the_way[uid], self._ledger.pods
        slot = pods.slot_of.get(uid, -1)
        guessed = 0 <= slot < len(self._ledger.book.pod) and pods.is_assumed(slot)
        return RunningPod(bind.pod, str(bind.decision.node), None if guessed else bind.decision.shares)

    def look_at_all(self) -> list[LedgerDifference]:
        """Run a whole round in one step."""
        found: list[LedgerDifference] = []
        try:
            for some in self._slices():
                found += some
        except Exception as error:
            found.append(_failed(error))
        return found

    def _say(self, differences: list[LedgerDifference], text: str) -> None:
        more = f", the first {MOST_LOGGED} follow" if len(differences) > MOST_LOGGED else ""
        self._driver.log(f"{text}: differences: {len(differences)}{more}", ERROR, count=len(differences))
        for one in differences[:MOST_LOGGED]:
            names = {key: name for key, name in one._asdict().items() if name and key != "what"}
            self._driver.log(f"ledger: {one}", ERROR, **names)


def _failed(error: Exception) -> LedgerDifference:
    return LedgerDifference(f"the audit failed: {type(error).__name__}: {error}")


def _portions(names: Iterable[str]) -> Iterator[list[str]]:
    every = list(names)
    return (every[n : n + PODS_A_SLICE] for n in range(0, len(every), PODS_A_SLICE))


def _unequal(booked: tuple[Share, ...], given: RunningPod) -> list[str]:
    """UUIDs of cards that are not booked as given. Amounts are compared only where they are trusted."""
    shares = given.shares or ()
    if booked == shares:
        return []
    if given.trust is Trust.FULL:
        return sorted({share.uuid for share in set(booked) ^ set(shares)})
    return sorted(
        {uuid for uuid, _ in {(s.uuid, s.container) for s in booked} ^ {(s.uuid, s.container) for s in shares}}
    )
