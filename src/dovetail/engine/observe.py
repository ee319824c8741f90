"""Pods that hold a node already are booked whether they fit or not; cards of pods without a record are guessed.

A guess is made again whenever the node's cards change or room appears. This happens before waiting pods are tried: a
waiting pod must never get a card only because a guess was made from incomplete facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dovetail.engine.faults import Faults
from dovetail.engine.kernel.state import NONE, RESERVED
from dovetail.engine.ledger.doubted import every_possible_card, memory_on, with_sound_amounts
from dovetail.engine.ledger.intern import cards_taken
from dovetail.engine.ledger.requests import unlimited
from dovetail.engine.placer import Placer
from dovetail.model.checkpoint import PodRecord
from dovetail.model.decision import Share
from dovetail.model.events import Warn
from dovetail.model.node import Enforcer
from dovetail.model.pod import Pod, Profile, RunningPod, Trust
from dovetail.policies.rows import ASK_COMPUTE, ASK_CONTAINER, CARD_MEMORY, COMPUTE, SLOTS

_IGNORED = "says which cards it has, but kubelet picks them on node {node}; it is ignored"
FIRST_FIT = Profile("first-fit", ("first-fit",))


class Observed:
    """Books running pods. Keeps their records, and the rows that hold guesses which did not fit."""

    def __init__(self, placer: Placer, faults: Faults) -> None:
        self._placer, self._ledger, self._faults = placer, placer.ledger, faults
        self._guessed: set[int] = set()  # rows that hold guesses, or held guesses
        self._squeezed: set[int] = set()  # rows where a guessed pod found too little room
        self._records: dict[str, tuple[Share, ...]] = {}  # uid -> what its record says, trusted or not
        self._trust: dict[str, Trust] = {}  # uid -> how far its record is trusted, if not in full
        self._early: set[int] = set()  # rows with records that were booked before their node was known

    def book(self, running: RunningPod) -> list[str]:
        """Book the pod; returns warnings for users."""
        said = self._book(running)
        self.settle(self._ledger.row_of[running.node])  # makes guesses independent of the order of events
        return said

    def _book(self, running: RunningPod) -> list[str]:
        ledger, pod, node = self._ledger, running.pod, running.node
        ledger.release(pod.uid)  # our own reservation, or an older view of the same pod
        self.forget(pod.uid)
        self._note_trust(running)
        if not pod.wants_devices:
            ledger.book_observed(pod, node, running.shares or (), assumed=False)
            return []
        if running.shares is None:
            return self._guess(pod, node)
        self._records[pod.uid] = running.shares
        if self._kubelet_picks(node):
            self._guess(pod, node)
            return [_IGNORED.format(node=node)]
        unknown = self._book_record(pod, node)
        self._doubt_guesses_on({share.uuid for share in running.shares}, node)
        said = [f"holds {uuid}, which node {node} does not register; the card is quarantined" for uuid in unknown]
        return said + self._overbooked(node, {share.uuid for share in running.shares} - set(unknown))

    def _book_record(self, pod: Pod, node: str) -> list[str]:
        """Book the pod with its record. Returns UUIDs that the node does not register."""
        ledger, shares = self._ledger, self._records[pod.uid]
        row = ledger.row_of.get(node)
        if (trust := self._trust.get(pod.uid, Trust.FULL)) is not Trust.FULL:
            if row is None or not ledger.is_active(row):
                unknown = ledger.book_observed(pod, node, shares, assumed=False)
                self._early.add(ledger.row_of[node])
                return unknown
            shares = with_sound_amounts(pod, shares, ledger.nodes[row].devices, trust)
        return ledger.book_observed(pod, node, shares, assumed=False)

    def _note_trust(self, running: RunningPod) -> None:
        if running.trust is not Trust.FULL and running.pod.wants_devices:
            self._trust[running.pod.uid] = running.trust

    def is_as_known(self, running: RunningPod) -> bool:
        """Whether the pod is booked as it runs: the Binding of our own placement, or a repeated event.

        Labels may differ: binding copies the labels of the node's zone to the pod.
        """
        ledger, pod = self._ledger, running.pod
        if pod.uid not in ledger.pods:
            return False
        known = ledger.pods[pod.uid]
        return (
            (not known.assumed or running.shares is None)
            and ledger.node_of(pod.uid) == running.node
            and self._holds(pod.uid, running.shares)
            and known.pod.is_but_for_labels(pod)
        )

    def _holds(self, uid: str, shares: tuple[Share, ...] | None) -> bool:
        """Whether the pod holds these cards.

        `shares` None (cards are not recorded): whether the node still has its cards.
        """
        held = self._ledger.held_shares(uid)
        if shares is not None:
            return held == shares
        there = {device.uuid for device in self._ledger.nodes[self._ledger.row_holding(uid)].devices}
        return all(share.uuid in there for share in held)

    def note(self, running: RunningPod) -> None:
        """Keep the record of a pod that is already booked as it runs."""
        self._note_trust(running)
        if running.shares is not None:
            self._records[running.pod.uid] = running.shares
        elif running.pod.wants_devices:
            self._ledger.pods.assume(running.pod.uid)

    def forget(self, uid: str) -> None:
        """Drop what is kept about a pod that is gone."""
        self._records.pop(uid, None)
        self._trust.pop(uid, None)

    def book_all(self, running: Sequence[RunningPod], reserved: Sequence[RunningPod]) -> None:
        """Book all pods in an empty ledger; `reserved` are the pods that the caller is still binding.

        Records come before guesses, which depend on them. A reserved pod without shares is guessed like a running one.
        """
        for kept in (self._guessed, self._squeezed, self._early):
            kept.clear()
        self._records.clear()
        self._trust.clear()
        for one in reserved:
            if one.shares is not None:
                self._ledger.book_observed(one.pod, one.node, one.shares, assumed=False, status=RESERVED)
        guessed = [one for one in (*running, *reserved) if one.shares is None]
        for one in (*(one for one in running if one.shares is not None), *guessed):
            try:
                self.book(one)
            except Exception as error:  # the other pods must be booked anyway
                if not self._faults.running(one, error):
                    raise

    def records(self) -> Iterator[PodRecord]:
        """What is kept of the records of pods."""
        for uid in {**self._records, **self._trust}:
            yield PodRecord(uid, self._records.get(uid), self._trust.get(uid, Trust.FULL))

    def rows(self) -> tuple[list[int], list[int]]:
        """Rows whose guesses are made again when room appears, and rows with early records (`_early`)."""
        guessed = [row for row in sorted(self._squeezed) if self._ledger.assumed_on(row)]
        return guessed, sorted(row for row in self._early if self._ledger.held_on(row))

    def restore(self, records: Iterable[PodRecord], squeezed: Iterable[int], early: Iterable[int]) -> None:
        """Take over what another engine kept of pods that are booked already."""
        for record in records:
            self.forget(record.uid)
            if record.shares is not None:
                self._records[record.uid] = record.shares
            if record.trust is not Trust.FULL:
                self._trust[record.uid] = record.trust
        ledger = self._ledger
        self._guessed = {ledger.row_holding(uid) for uid in ledger.pods if ledger.pods[uid].assumed}
        self._squeezed, self._early = set(squeezed), set(early)

    def settle(self, row: int) -> None:
        """Make guesses on the row again if they did not fit before: what pods hold there has changed."""
        if row in self._squeezed and self._ledger.nodes[row].devices:
            self._book_again(row, self._ledger.assumed_on(row))

    def node_changed(self, row: int, kubelet_picked: bool = False) -> list[Warn]:
        """Book pods of the row again if their record became valid or invalid, or if their guessed cards are gone.

        `kubelet_picked`: kubelet picked the cards on the node before the change. Pods that are being bound there then
        get a card that the node has now. Their Bindings do not name the reserved cards, and may already have succeeded.
        """
        ledger = self._ledger
        node, guessed = ledger.nodes[row], ledger.assumed_on(row)
        if self._kubelet_picks(node.name):
            doubtful = [uid for uid in ledger.held_on(row) if uid in self._records]
        else:
            doubtful = [uid for uid in guessed if uid in self._records]
        if row in self._early:
            self._early.discard(row)
            doubtful += [uid for uid in ledger.held_on(row) if uid in self._records]
        own = {device.uuid for device in node.devices}
        if doubtful or row in self._squeezed or not all(self._is_complete(uid, own) for uid in guessed):
            doubtful = list(dict.fromkeys((*doubtful, *guessed)))
        if kubelet_picked:
            doubtful += [uid for uid in ledger.held_on(row) if self._is_promised_elsewhere(uid, own)]
        ignored = [uid for uid in doubtful if uid in self._records and uid not in guessed]
        ignored = ignored if self._kubelet_picks(node.name) else []
        ignored.sort(key=lambda uid: (ledger.pods.pod(uid).order, uid))  # slots depend on which pods came before
        self._book_again(row, list(dict.fromkeys(doubtful)))
        return [Warn(ledger.pods.pod(uid).key, _IGNORED.format(node=node.name)) for uid in ignored]

    def _is_promised_elsewhere(self, uid: str, own: set[str]) -> bool:
        """Whether cards are reserved for the pod that its node no longer has."""
        held = self._ledger.held_shares(uid)
        return self._ledger.is_reserved(uid) and any(share.uuid not in own for share in held)

    def _is_complete(self, uid: str, own: set[str]) -> bool:
        held = self._ledger.held_shares(uid)
        return len(held) >= _cards_asked_for(self._ledger.pods.pod(uid)) and all(share.uuid in own for share in held)

    def _book_again(self, row: int, uids: Sequence[str]) -> None:
        """Release the pods of the row and book them again: records first, then guesses in the order of the pods."""
        ledger, node = self._ledger, self._ledger.nodes[row].name
        recorded = self._records if not self._kubelet_picks(node) else {}
        pods = sorted((ledger.pods.pod(uid) for uid in uids), key=lambda p: (p.uid not in recorded, p.order, p.uid))
        ledger.release_all([pod.uid for pod in pods])
        self._squeezed.discard(row)
        for pod in pods:
            try:
                if pod.uid in recorded:
                    self._book_record(pod, node)
                else:
                    self._guess(pod, node)
            except Exception as error:  # the other pods must be booked again anyway
                running = RunningPod(pod, node, self._records.get(pod.uid))
                if not self._faults.running(running, error):
                    raise

    def _guess(self, pod: Pod, node: str) -> list[str]:
        ledger = self._ledger
        if self._trust.get(pod.uid) is Trust.NONE and not self._kubelet_picks(node) and node in ledger.row_of:
            return self._hold_possible_cards(pod, node)
        before = self._guessed_after(pod, node)
        shares, fit = assume(self._placer, pod, node)
        ledger.book_observed(pod, node, shares, assumed=True)
        row = ledger.row_of[node]
        if before:
            self._squeezed.add(row)
        self._guessed.add(row)
        if not fit:
            self._squeezed.add(row)
        if not shares:
            return [f"asks for GPUs, but node {node} has none that could be charged"]
        if ledger.nodes[row].enforcer is Enforcer.STOCK and fit:
            return []  # kubelet picks the card there, so there is no record
        how = "the first cards that fit" if fit else "the freest cards, although they do not fit"
        return [f"has no record of its cards on node {node}; charged to {how} (assumed)"]

    def _hold_possible_cards(self, pod: Pod, node: str) -> list[str]:
        """Charge the pod on every card that it could hold: its record fails its check.

        No other pod may get these cards.
        """
        ledger, row = self._ledger, self._ledger.row_of[node]
        shares, fit = every_possible_card(ledger, pod, row)
        if not fit:
            self._squeezed.add(row)
        ledger.book_observed(pod, node, shares, assumed=True)
        self._guessed.add(row)
        cards = len({share.uuid for share in shares})
        return [f"has a record that fails its check; charged to {cards} cards of node {node} that could be its own"]

    def _guessed_after(self, pod: Pod, node: str) -> bool:
        """Whether a pod that comes after this one was guessed before it, and the result depends on that order.

        It does if the other pod asks for something else, or if the node's cards differ.
        """
        row = self._ledger.row_of.get(node)
        if row is None or row not in self._guessed:
            return False
        uneven = len({(card.memory_mib, card.compute_milli) for card in self._ledger.nodes[row].devices}) > 1
        others = (self._ledger.pods.pod(uid) for uid in self._ledger.assumed_on(row))
        later = (other for other in others if (other.order, other.uid) > (pod.order, pod.uid))
        return any(uneven or _differ(other, pod) for other in later)

    def _overbooked(self, node: str, uuids: set[str]) -> list[str]:
        """Warnings about cards of the node that pods use beyond their size."""
        rows, row = self._ledger.rows, self._ledger.row_of[node]
        said = []
        for n, device in enumerate(self._ledger.devices(row)):
            slots, memory, compute = rows.held[row, n].tolist()
            beyond = slots > device.slots or memory > device.memory_mib or compute > device.compute_milli
            if device.uuid in uuids and beyond and not device.quarantined:
                total = f"{memory:,} of {device.memory_mib:,} MiB and {compute // 10} of {device.compute_milli // 10} %"
                said.append(f"holds card {device.uuid} of node {node}, which pods use beyond its size: {total}")
        return said

    def _doubt_guesses_on(self, uuids: set[str], node: str) -> None:
        """Mark the row if a record names cards that were guessed for another pod: that pod has other cards."""
        row = self._ledger.row_of[node]
        for uid in self._ledger.assumed_on(row) if row in self._guessed else ():
            if any(share.uuid in uuids for share in self._ledger.held_shares(uid)):
                self._squeezed.add(row)

    def _kubelet_picks(self, node: str) -> bool:
        """Whether kubelet picks the cards on the node: no record can name them."""
        row = self._ledger.row_of.get(node)
        if row is None or not self._ledger.is_active(row):
            return False
        return self._ledger.nodes[row].enforcer is Enforcer.STOCK


def _differ(one: Pod, other: Pod) -> bool:
    return (one.containers, one.device_rules) != (other.containers, other.device_rules)


def _cards_asked_for(pod: Pod) -> int:
    return sum(ask.count for container in pod.containers for ask in container.asks)


def assume(placer: Placer, pod: Pod, node: str) -> tuple[tuple[Share, ...], bool]:
    """The first cards that the pod could have, and whether they fit."""
    ledger = placer.ledger
    row = ledger.row_of.get(node)
    if row is None:
        return (), False
    shape = placer.intern.shape(pod, NONE)
    ledger.make_room(0, cards_taken(pod))
    state, kernel = ledger.state(), placer.lens(FIRST_FIT)
    picked = kernel.choose_all(
        state.rows, state.wants, row, shape, kernel.style, unlimited(placer.intern.vendors), 0, state.scratch
    )
    if picked < 0:
        return _freest_cards(placer, pod, row), False
    devices = ledger.devices(row)
    lines = state.scratch.picked[:picked].tolist()
    return tuple(
        Share(int(state.wants.ask[a, ASK_CONTAINER]), devices[d].uuid, memory, int(state.wants.ask[a, ASK_COMPUTE]))
        for a, d, memory in lines
    ), True


def _freest_cards(placer: Placer, pod: Pod, row: int) -> tuple[Share, ...]:
    """The least used cards: nothing fits, but the pod runs, so it has cards."""
    ledger = placer.ledger
    held = ledger.rows.held[row]
    used = {device.uuid: held[n].tolist() for n, device in enumerate(ledger.devices(row))}
    shares = []
    for n, container in enumerate(pod.containers):
        for ask in container.asks:
            mine = [d for d in ledger.devices(row) if d.vendor == ask.vendor and not d.quarantined]
            for device in sorted(mine, key=lambda d: (*used[d.uuid], d.index))[: ask.count]:
                share = Share(n, device.uuid, memory_on(device, ask), ask.compute_milli)
                used[device.uuid][SLOTS] += 1
                used[device.uuid][CARD_MEMORY] += share.memory_mib
                used[device.uuid][COMPUTE] += share.compute_milli
                shares.append(share)
    return tuple(shares)
