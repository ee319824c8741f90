"""Which cards a running pod holds by its record, when the pod is first seen: for files and for a live cluster.

    the seal verifies                           the sealed cards are the pod's, whatever the record says now
    no valid seal, and the pod must have one    the record is not trusted: unverified
    no valid seal, and it need not have one     trusted up to the pod's request: HAMi's, an older Dovetail's

A pod must have a seal if its spec names a scheduler of ours and sealing had begun when the pod was created
(kube/live/lease.py). The scheduler's name in a spec cannot be changed later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.kube.conversion.assigned import recorded_shares
from dovetail.kube.conversion.plugins import named_cards, with_plugin_records
from dovetail.kube.conversion.seals import SEAL, Seals
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.objects.problems import Problems
from dovetail.model.decision import Share
from dovetail.model.pod import Pod, Trust

UNVERIFIED, CHANGED = "RecordUnverified", "RecordChanged"  # reasons of events
FIELD = "metadata.annotations"
BOOKED = "the pod is charged what it asks for, on every card of its node that could be its own"


class Account(NamedTuple):
    """What a pod holds, by its record."""

    shares: tuple[Share, ...] | None  # None = its cards are not known
    trust: Trust
    sealed: bool = False
    changed: bool = False  # the seal verifies, and the record differs from it
    doubt: str = ""  # why the record is not trusted


def trace_of(annotations: Mapping[str, str], vendors: Vendors) -> int:
    """A digest of the record and its seal. It does not cover `…-to-allocate`, which the device plugin changes.

    A pod without a record of ours has one by the plugin of another system.
    """
    names = vendors.allocated
    said = [(name, text) for name, text in annotations.items() if name in names or name == SEAL]
    return hash(frozenset(said or named_cards(annotations, vendors)))


def account(
    pod: Pod,
    node: str,
    annotations: Mapping[str, str],
    vendors: Vendors,
    seals: Seals,
    where: str,
    problems: Problems,
    ours: bool = True,
    placed_itself: bool = False,
) -> Account:
    """Judge the record of a pod that runs on the node.

    `ours`: its spec names a scheduler of ours, which cannot be changed. `placed_itself`: it was created with a node, so
    no scheduler gave it cards or a seal.
    """
    text = annotations.get(SEAL, "")
    strings = seals.opened(text, pod.uid, node) if text and seals else None
    if strings is not None:
        return _sealed(pod, annotations, vendors, strings, where, problems)
    if ours and not placed_itself and pod.wants_devices and seals.requires(pod.created):
        doubt = ("its seal does not verify" if text else "its seal is missing") + f": {BOOKED}"
        problems.warning(where, f"{FIELD}.{SEAL}", doubt)
        return Account(None, Trust.NONE, doubt=doubt)
    if text and seals:
        problems.warning(where, f"{FIELD}.{SEAL}", "is of a key that is not known; the record counts like one without")
    notes = with_plugin_records(pod, node, annotations, vendors)
    shares = recorded_shares(pod, notes, vendors, where, problems)
    return Account(shares, Trust.AMOUNTS_AS_ASKED if ours else Trust.AMOUNTS_CAPPED)


def _sealed(
    pod: Pod,
    annotations: Mapping[str, str],
    vendors: Vendors,
    strings: Mapping[str, str],
    where: str,
    problems: Problems,
) -> Account:
    rows = vendors.concerned((*annotations, *strings))
    names = [row.allocated for row in rows if row.allocated]
    changed = [name for name in names if annotations.get(name, "") != strings.get(name, "")]
    if changed:
        message = "differs from the seal: another client changed it; the cards that were bound stay booked"
        problems.warning(where, f"{FIELD}.{changed[0]}", message)
    shares = recorded_shares(pod, strings, vendors, where, Problems())
    return Account(shares, Trust.FULL, sealed=True, changed=bool(changed))
