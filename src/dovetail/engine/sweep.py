"""Give out unused numbers again: of owners, requests, node rules, cards and resources.

A cluster that runs for months sees any number of names, but few exist at one time. References are not counted while
pods arrive and leave. When a table holds twice as many names as were in use at the last sweep, one pass finds the
unused ones. The pass reads what exists: pods that hold something, waiting requests, nodes. It runs between two events,
with no open transaction and no batch, so only these places hold numbers. Decisions do not depend on it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernel.state import FREE, POD_OWNER, POD_SHAPE, POD_STATE
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import Requests
from dovetail.engine.outlook import Outlook
from dovetail.policies.rows import (
    ASK_RULE,
    CARD_KIND,
    CARDS,
    FIRST_ASK,
    HARDWARE,
    LAST_ASK,
    NOUSE_TO,
    USE_FROM,
    UUID,
    Ints,
)

SWEEP_EVERY = 64  # events between two checks whether a table is crowded

Used = npt.NDArray[np.bool_]  # by number


def is_crowded(ledger: Ledger) -> bool:
    storage = ledger.storage
    return ledger.intern.crowded or ledger.places.crowded or storage.lines > storage.lines_limit


def sweep(ledger: Ledger, requests: Requests, outlook: Outlook, waiting: Iterable[Hashable]) -> None:
    """Drop unused names. `waiting`: the requests that pods wait for, as the scheduler keeps them."""
    if ledger.in_transaction:
        return
    _sweep_owners(ledger)
    if not (ledger.intern.crowded or ledger.places.crowded):
        return
    keys = [key for key in waiting if isinstance(key, tuple)]
    requests.forget()
    ledger.vectors.clear()
    ledger.places.keep_masks({key[2] for key in keys})
    _sweep_requests(ledger, {*(key[1] for key in keys), *outlook.shapes})
    _sweep_hardware(ledger)
    ledger.intern.sweeps += 1


def _sweep_owners(ledger: Ledger) -> None:
    """Drop the numbers of owners without pods, and their lines of counts, which are all zero like a new line."""
    pod, owners = ledger.book.pod, ledger.intern.owners
    holding = pod[pod[:, POD_STATE] != FREE, POD_OWNER]
    ledger.storage.drop_owners(owners.keep(_used(len(owners), holding[holding >= 0])))


def _sweep_requests(ledger: Ledger, shapes: Iterable[int]) -> None:
    """Keep the requests of pods that hold something or wait, and the rules, UUIDs and resources in them."""
    intern, pod = ledger.intern, ledger.book.pod
    used = _used(len(intern.shapes), pod[pod[:, POD_STATE] != FREE, POD_SHAPE])
    used[list(shapes)] = True
    wants = intern.wants
    asks = [range(a, b) for a, b in wants.shape[: len(used)][used][:, [FIRST_ASK, LAST_ASK]].tolist()]
    rules = _used(len(intern.rules), wants.ask[[a for one in asks for a in one], ASK_RULE])
    lists = [range(a, b) for a, b in wants.rule[: len(rules)][rules][:, [USE_FROM, NOUSE_TO]].tolist()]
    card = ledger.rows.card[np.arange(ledger.rows.card.shape[1]) < ledger.rows.fact[:, CARDS, None]]
    uuids = _used(len(intern.uuids), card[:, UUID], wants.uuids[[n for one in lists for n in one]])
    kinds = _used(len(intern.kinds), card[:, CARD_KIND])
    columns = _columns(ledger, wants.need[: len(used)][used])
    intern.forget_shapes(used)
    intern.forget_rules(rules)
    intern.uuids.keep(uuids)
    intern.kinds.keep(kinds)
    intern.columns.keep(columns)


def _columns(ledger: Ledger, needs: Ints) -> Used:
    """The resources to keep: those that a node has, a pod uses, or a request asks for."""
    intern, count = ledger.intern, len(ledger.intern.columns)
    used = np.zeros(max(count, ledger.rows.cap.shape[1], needs.shape[1]), dtype=np.bool_)
    used[: ledger.rows.cap.shape[1]] |= (ledger.rows.cap != 0).any(axis=0) | (ledger.rows.used != 0).any(axis=0)
    used[: needs.shape[1]] |= (needs != 0).any(axis=0)
    used[[*range(intern.base), *intern.pinned]] = True
    return used[:count]


def _sweep_hardware(ledger: Ledger) -> None:
    numbers = ledger.rows.fact[: len(ledger.nodes), HARDWARE]
    ledger.intern.hardware.keep(_used(len(ledger.intern.hardware), numbers[numbers >= 0]))


def _used(count: int, *numbers: Any) -> Used:
    used = np.zeros(count, dtype=np.bool_)
    for some in numbers:
        used[some] = True
    return used
