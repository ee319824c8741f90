"""Prints `compare --live`: what other policies would make of a cluster, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dovetail.cli.output import table
from dovetail.cli.output.amounts import count
from dovetail.cli.output.rooms import largest_text, percent, room_item, share
from dovetail.cli.policy_trials import TriedPolicies
from dovetail.whatif.plan import PlannedPod, why_pending
from dovetail.whatif.policy_trials import (
    ClusterRoom,
    EmptiedCluster,
    KeepsNode,
    PolicyTrial,
    TrialOutcome,
)

Json = dict[str, Any]
TODAY = "today"
MOST_PODS_NAMED = 8  # for each policy
WHY_KEPT = {
    KeepsNode.OTHER_SCHEDULER: "of other schedulers",
    KeepsNode.DAEMON_SET: "of DaemonSets",
    KeepsNode.LEAVING: "being deleted",
}


class _Way(NamedTuple):
    """One of the two ways in which pods are placed."""

    field: str  # of the JSON
    title: str
    of: Callable[[PolicyTrial], TrialOutcome]
    runs: Callable[[EmptiedCluster], int]  # of these pods, how many have a node today


WAYS = (
    _Way("anew", "ALL PODS PLACED ANEW", lambda trial: trial.anew, lambda emptied: len(emptied.moved)),
    _Way("waiting", "ONLY THE PODS THAT WAIT, ON THE CLUSTER AS IT IS", lambda trial: trial.waiting, lambda emptied: 0),
)


def document(tried: TriedPolicies) -> Json:
    """The data of `compare --live -o json`; docs/commands.md describes it."""
    emptied = tried.emptied
    return {
        "apiVersion": "dovetail.dev/v1",
        "kind": "PolicyTrials",
        "pods": {
            "placedAnew": len(emptied.moved),
            "waiting": len(emptied.waiting),
            "kept": {str(why): emptied.kept.get(why, 0) for why in KeepsNode},
        },
        TODAY: _room(tried.today),
        "policies": [
            {"policy": name, **{way.field: _outcome(way.of(trial)) for way in WAYS}}
            for name, trial in tried.trials.items()
        ],
    }


def _outcome(outcome: TrialOutcome) -> Json:
    return {
        "placed": outcome.placed,
        "pending": outcome.pending,
        **_room(outcome.after),
        "starts": [
            {"namespace": one.pod.namespace, "pod": one.pod.name, "node": one.decision.node} for one in outcome.starts
        ],
        "waits": [
            {"namespace": one.pod.namespace, "pod": one.pod.name, "why": why_pending(one)} for one in outcome.waits
        ],
    }


def _room(found: ClusterRoom) -> Json:
    return {
        "nodes": {"total": found.nodes, "unused": found.unused_nodes},
        **room_item(found.room, found.largest, found.cards),
    }


def lines(tried: TriedPolicies) -> Iterator[str]:
    """A line about the cluster, a table for each way of placing, and the pods that would start or wait."""
    said = document(tried)
    yield heading(tried)
    for way in WAYS:
        outcomes = {one["policy"]: one[way.field] for one in said["policies"]}
        yield ""
        yield way.title
        header = ("POLICY", "PLACED", "PENDING", "GPUS FREE", "NODES FREE", "FRAGMENTED", "GPU MEMORY", "GPU COMPUTE")
        now = {**said[TODAY], "placed": way.runs(tried.emptied), "pending": len(tried.emptied.waiting)}
        rows = [_row(TODAY, now, now)]
        rows += [_row(name, one, now) for name, one in outcomes.items()]
        yield from table.render((*header, "LARGEST THAT FITS"), rows, right=range(1, len(header))).splitlines()
        for name, trial in tried.trials.items():
            yield from _changes(name, way.of(trial))


def heading(tried: TriedPolicies) -> str:
    """`4 nodes with 12 GPUs · placed anew: 7 pods · waiting: 2 · kept, of other schedulers: 1`"""
    emptied, room = tried.emptied, tried.today
    parts = [
        f"{count(room.nodes, 'node')} with {count(room.room.cards, 'GPU')}",
        f"placed anew: {count(len(emptied.moved), 'pod')}",
        f"waiting: {len(emptied.waiting):,}",
        *(f"kept, {WHY_KEPT[why]}: {number:,}" for why, number in emptied.kept.items()),
    ]
    return " · ".join(parts)


def _row(name: str, item: Json, today: Json) -> Sequence[str]:
    free, unused = item["gpus"]["wholeFree"], item["nodes"]["unused"]
    return (
        name,
        f"{item['placed']:,}",
        f"{item['pending']:,}",
        _against(free, today["gpus"]["wholeFree"]),
        _against(unused, today["nodes"]["unused"]),
        percent(item["fragmentation"]),
        share(item["gpuMemoryMib"]),
        share(item["gpuComputeMilli"]),
        largest_text(item),
    )


def _against(value: int, today: int) -> str:
    """`5  +2`: the value, and its difference to today."""
    return f"{value:,}" if value == today else f"{value:,}  {value - today:+,}"


def _changes(name: str, outcome: TrialOutcome) -> Iterator[str]:
    """The pods that would run and do not today, and those that run today and would wait, with the reason."""
    if outcome.starts:
        yield f"{name}: {_named(outcome.starts)} would run"
    for one in outcome.waits[:MOST_PODS_NAMED]:
        yield f"{name}: {one.pod.key} would wait: {why_pending(one)}"
    if len(outcome.waits) > MOST_PODS_NAMED:
        yield f"{name}: {len(outcome.waits) - MOST_PODS_NAMED:,} more would wait; -o json names them"


def _named(pods: Sequence[PlannedPod]) -> str:
    names = ", ".join(one.pod.key for one in pods[:MOST_PODS_NAMED])
    return names if len(pods) <= MOST_PODS_NAMED else f"{names} and {len(pods) - MOST_PODS_NAMED:,} more"
