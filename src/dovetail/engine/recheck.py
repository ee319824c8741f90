"""Check whether a placement that was not written yet would still be made, with the same functions, for one node."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from dovetail.engine.kernel.fit import ask_refusal, card_refusal, node_shortage
from dovetail.engine.kernel.state import UNLIMITED
from dovetail.engine.ledger.intern import takes_idle_cards
from dovetail.engine.placer import Placer
from dovetail.model.decision import Decision, Share
from dovetail.model.pod import ContainerKind, Pod
from dovetail.model.reason import Reason, sentence
from dovetail.policies.rows import (
    ASK_CONTAINER,
    ASK_COUNT,
    ASK_KIND,
    CARD_MEMORY,
    COMPUTE,
    FIRST_ASK,
    LAST_ASK,
    SLOTS,
)
from dovetail.policies.table import DEVICE_POLICIES


class Trying(Protocol):
    """A scheduler that undoes trials."""

    placer: Placer

    def trial(self) -> AbstractContextManager[None]: ...


def is_untouched(placer: Placer, pod: Pod, decision: Decision) -> bool:
    """Whether nothing came to the node that the decision did not weigh, so that `objection` would find nothing.

    Pods that were placed there later were placed beside this one, and pods that left made room. Pods with rules about
    other pods are never untouched: what happens on other nodes matters to them.
    """
    ledger = placer.ledger
    row = ledger.row_of.get(str(decision.node))
    if row is None or ledger.places.changed_since(row, decision.generation) or ledger.row_holding(pod.uid) != row:
        return False
    return ledger.held_shares(pod.uid) == decision.shares and not placer.related.restricts(pod)


def objection(scheduler: Trying, pod: Pod, decision: Decision) -> str:
    """Why the pod's reservation would not be made again with the ledger as it is; "" = it would.

    The check releases the reservation, and undoes this afterwards. Quotas are not checked: they already count the
    reservation.
    """
    ledger, name = scheduler.placer.ledger, str(decision.node)
    row = ledger.row_of.get(name)
    if row is None or not ledger.is_active(row):
        return f"node {name} is gone"
    if ledger.row_holding(pod.uid) != row or ledger.held_shares(pod.uid) != decision.shares:
        return f"what was reserved on node {name} is not reserved any more"
    with scheduler.trial():
        ledger.release(pod.uid)
        reason = refusal(scheduler.placer, pod, row, decision.shares)
    return f"node {name}: {sentence(reason)}" if reason is not Reason.OK else ""


def refusal(placer: Placer, pod: Pod, row: int, shares: Sequence[Share], runs: bool = False) -> Reason:
    """The first rule that the node, other pods or cards break, in the order of `explain`.

    `runs`: the pod holds the place already. Pods that its policy would have avoided may have come since.
    """
    ledger = placer.ledger
    reason = pod.node_rules.refusal(ledger.nodes[row].static)
    if reason is not Reason.OK:
        return reason
    if placer.related.restricts(pod):
        code = int(placer.related.refusals(pod)[row])
        if code:
            return Reason(code)
    shape = placer.requests.signature(pod).shape
    by_policy = any(DEVICE_POLICIES[name].idle_only for name in pod.profile.device)
    idle_only = not runs and (by_policy or takes_idle_cards(pod))
    state = ledger.state()
    return Reason(
        node_shortage(state.rows, state.wants, row, shape) or _card_refusal(placer, row, shape, shares, idle_only)
    )


def _card_refusal(placer: Placer, row: int, shape: int, shares: Sequence[Share], idle_only: bool) -> int:
    """Why the chosen cards are refused, ask by ask; 0 = they are not. Init containers start as in `choose_all`."""
    rows, wants = placer.ledger.state().rows, placer.ledger.state().wants
    column, rest = placer.ledger.places.columns(row), list(shares)
    stays = rows.held[row].copy()
    trial, trial_of = stays, -1
    for a in range(int(wants.shape[shape, FIRST_ASK]), int(wants.shape[shape, LAST_ASK])):
        if refused := ask_refusal(rows, wants, row, a):
            return refused
        held = stays
        if wants.ask[a, ASK_KIND] == ContainerKind.INIT:
            if wants.ask[a, ASK_CONTAINER] != trial_of:
                trial, trial_of = stays.copy(), int(wants.ask[a, ASK_CONTAINER])
            held = trial
        count = int(wants.ask[a, ASK_COUNT])
        mine, rest = rest[:count], rest[count:]
        for share in mine:
            d = column[share.uuid]
            if refused := card_refusal(rows, wants, row, d, a, held, idle_only, UNLIMITED, UNLIMITED):
                return refused
            held[d, SLOTS] += 1
            held[d, CARD_MEMORY] += share.memory_mib
            held[d, COMPUTE] += share.compute_milli
            if np.any(held[d] > rows.card[row, d, :3]):  # a percentage of a card that was larger before
                return int(Reason.CARD_MEMORY)
    return 0
