"""Formats a waiting pod's rights: what its queue is owed, who holds it, and the ways to a place with their costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.cli.output import table
from dovetail.engine.rights.queue_wording import amount_in_queue
from dovetail.whatif.ways import Owed, StoppedPod, Way

MAX_STOPS_SHOWN = 8  # pods of one way, unless wide
Json = dict[str, Any]


def lines(owed: Owed | None, ways: tuple[Way, ...], wide: bool) -> Iterator[str]:
    if owed is not None:
        yield ""
        yield f"Its queue {owed.queue}:"
        yield table.render(("RESOURCE", "GUARANTEE", "DESERVED", "USED", "CEILING"), _amounts(owed), indent="  ")
        for loan in owed.loans:
            amount = amount_in_queue(loan.resource, loan.amount)
            yield f"  {loan.borrower} has borrowed {loan.resource} {amount} of its guarantee"
    if ways:
        yield ""
        yield "How it could get a place:"
        rows = [(way.kind, "yes" if way.possible else "no", f"{way.sentence}{_cost(way, wide)}") for way in ways]
        yield table.render(("WAY", "HELPS", "WHY"), rows, indent="  ")


def _amounts(owed: Owed) -> list[tuple[str, ...]]:
    return [
        (
            one.resource,
            amount_in_queue(one.resource, one.guarantee),
            amount_in_queue(one.resource, one.deserved),
            amount_in_queue(one.resource, one.used),
            "-" if one.ceiling is None else amount_in_queue(one.resource, one.ceiling),
        )
        for one in owed.amounts
    ]


def _cost(way: Way, wide: bool) -> str:
    if not way.stops:
        return ""
    shown = way.stops if wide else way.stops[:MAX_STOPS_SHOWN]
    names = ", ".join(one.pod.key for one in shown)
    more = f" and {len(way.stops) - len(shown):,} more" if len(shown) < len(way.stops) else ""
    lost = "GPU-hours lost are not known" if way.gpu_hours is None else f"{way.gpu_hours:,.1f} GPU-hours lost"
    return f": stops {names}{more} ({lost})"


def owed_document(owed: Owed | None) -> Json | None:
    if owed is None:
        return None
    return {
        "queue": owed.queue,
        "amounts": {
            one.resource: {
                "guarantee": one.guarantee,
                "deserved": one.deserved,
                "used": one.used,
                "ceiling": one.ceiling,
            }
            for one in owed.amounts
        },
        "loans": [{"queue": one.borrower, "resource": one.resource, "amount": one.amount} for one in owed.loans],
    }


def way_document(way: Way) -> Json:
    return {
        "kind": way.kind,
        "possible": way.possible,
        "sentence": way.sentence,
        "stops": [_stopped(one) for one in way.stops],
        "gpu_hours_lost": None if way.gpu_hours is None else round(way.gpu_hours, 3),
    }


def _stopped(one: StoppedPod) -> Json:
    hours = None if one.gpu_hours is None else round(one.gpu_hours, 3)
    return {
        "namespace": one.pod.namespace,
        "pod": one.pod.name,
        "node": one.node,
        "priority": one.pod.priority,
        "gpus": one.gpus,
        "gpu_hours_lost": hours,
    }
