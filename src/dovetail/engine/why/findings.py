"""What the nodes lack for a waiting pod, in bounded time: the live scheduler needs it for thousands of pods.

The kernel finds the nodes that fit. Of the others, the most promising are checked as in `explain`, each kind of state
once. After `looks` kinds, nodes are counted by the kernel's reason, without amounts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import Look, within_queue
from dovetail.engine.why.verdict import NEAR_SHORTFALL, Verdict, lacking
from dovetail.engine.wording import Fact, Lacking
from dovetail.model.pod import Pod
from dovetail.model.reason import CHECK_ORDER, Reason, hami_name, sentence
from dovetail.policies.rows import (
    ACCEPTED_BITS,
    ASK_COMPUTE,
    ASK_MEMORY,
    ASK_RULE,
    CARDS,
    FIRST_ASK,
    KINDS_THERE,
    LAST_ASK,
    MOST_COMPUTE_FREE,
    MOST_MEMORY_FREE,
    NODE_FLAGS,
    UUID,
    Bytes,
    Floats,
)

MOST_LOOKS = 64  # kinds of node state checked card by card; 0.3 ms each with eight cards
LOOK_COST = 40  # of one such check, in units of a node whose kind is known
INTERPRETED_COST = 10  # of checking one node while the kernel is not compiled yet
_RULED_OUT = 0.6  # place of a node refused by a rule: behind near nodes, before the others
_FAR = 2.0
_BY_NODE = (Reason.VOLUME_NONE, Reason.VOLUME_NODE, Reason.VOLUME_ZONE)  # worded for each node separately
_RULES = [int(reason) for reason in CHECK_ORDER[: CHECK_ORDER.index(Reason.CPU)]]


Missing = np.ndarray[Any, np.dtype[np.int64]]


class Findings(NamedTuple):
    """What the nodes lack. `lacking` is empty if a node would take the pod now."""

    fits: bool
    nodes: int
    lacking: tuple[Lacking, ...]  # what blocks at the nearest miss comes first
    cost: int  # in units of a node whose kind is known


def find(scheduler: Scheduler, pod: Pod, looks: int = MOST_LOOKS) -> Findings:
    """What the nodes lack: equal to `lacking(verdicts(scheduler, pod))` if they have at most `looks` kinds of state."""
    codes = scheduler.related.codes(within_queue(scheduler, pod))
    look = Look(scheduler, pod)
    rows = np.array(look.rows(), dtype=np.int64)
    if not len(rows) or (codes[rows] == 0).any():
        return Findings(bool(len(rows)), len(rows), (), 1)
    ordered = rows[np.argsort(_promise(look, codes)[rows], kind="stable")].tolist()
    short = np.maximum(_missing(look), 0)
    kind_of, known = _kinds(look, short), dict[object, Verdict]()
    is_short = (short > 0).sum(axis=1) > 0  # known without a look at any card
    found, taken = [], 0
    for row in ordered:
        node, kind = look.ledger.nodes[row], kind_of(row)
        seen = known.get(kind)
        if seen is None and (taken < looks or is_short[row]):
            seen = known[kind] = look.node(node, row)
            taken += not is_short[row]
        found.append(replace(seen, node=node.name) if seen is not None else _by_code(node.name, int(codes[row])))
    asking = len(found) * (1 if scheduler.is_compiled(pod.profile) else INTERPRETED_COST)
    return Findings(False, len(found), lacking(found), asking + LOOK_COST * taken)


def _by_code(node: str, code: int) -> Verdict:
    reason = Reason(code)
    return Verdict(node, reason, Fact(sentence(reason)), hami_name(reason))


def _kinds(look: Look, short: Missing) -> Callable[[int], object]:
    """A function from row to a key of everything that the verdict depends on: rules, shortages, cards."""
    rows, ruled = look.state.rows, look.pod.node_rules.keys(look.ledger.places.static)
    by_uuid = any(one.use_uuids or one.nouse_uuids for one in look.pod.device_rules)
    fields = [field for field in range(rows.card.shape[2]) if field != UUID or by_uuid]
    asks = look.state.wants.shape[look.shape, FIRST_ASK] != look.state.wants.shape[look.shape, LAST_ASK]

    def kind(row: int) -> object:
        related = int(look.refusals[row]) if look.refusals is not None else 0
        cards: tuple[object, ...] = ()
        if asks and not short[row].any():
            count = int(rows.fact[row, CARDS])
            facts = (rows.card[row, :count][:, fields].tobytes(), rows.held[row, :count].tobytes())
            cards = (*facts, rows.fact[row, NODE_FLAGS])
        own = row if related in _BY_NODE else -1
        return (ruled[row], related, own, short[row].tobytes(), cards)

    return kind


def _missing(look: Look) -> Missing:
    """[row, resource]: what is missing of the request; 0 or less if nothing is."""
    rows, need = look.state.rows, look.state.wants.need[look.shape]
    columns = min(len(need), rows.cap.shape[1])
    need = need[:columns]
    asked = (need > 0) & (rows.enforced[:columns] == 1)
    missing: Missing = np.where(asked, rows.used[:, :columns] + need - rows.cap[:, :columns], 0)
    return missing


def _promise(look: Look, codes: Bytes) -> Floats:
    """[row]: smaller means that the node may be nearer: a lower bound of its shortfall, as a part of the request."""
    rows, wants = look.state.rows, look.state.wants
    missing = _missing(look)[: len(codes)]
    need = np.maximum(wants.need[look.shape][: missing.shape[1]], 1)
    bound: Floats = np.maximum(missing / need, 0.0).max(axis=1)
    first = int(wants.shape[look.shape, FIRST_ASK])
    if first != wants.shape[look.shape, LAST_ASK]:
        ask, gate = wants.ask[first], rows.gate[: len(codes)]
        for amount, free in ((ask[ASK_MEMORY], MOST_MEMORY_FREE), (ask[ASK_COMPUTE], MOST_COMPUTE_FREE)):
            if amount > 0:
                bound = np.maximum(bound, (amount - np.minimum(gate[:, free], amount)) / amount)
        strange = gate[:, KINDS_THERE] & wants.rule[ask[ASK_RULE], ACCEPTED_BITS] == 0
        bound = np.where(strange, _FAR, bound)
    by_rule = np.isin(codes, _RULES)
    return np.where(
        by_rule & (bound == 0), _RULED_OUT, np.where(by_rule | (bound > NEAR_SHORTFALL), 1.0 + bound, bound)
    )
