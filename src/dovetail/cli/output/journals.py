"""Formats journals for people and for programs: statistics, entries, the result of repeating a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from dovetail.cli.journals import JournalReader, at_of, groups_of, pods_of, written_time
from dovetail.cli.output import table
from dovetail.model.calls import (
    Call,
    Compiled,
    Handled,
    JournalGap,
    KeptWaiting,
    Offered,
    Outcome,
    PlacedPod,
    Rebuilt,
    Said,
    Stopped,
    Withdrawn,
)
from dovetail.model.checkpoint import Checkpoint
from dovetail.model.decision import Share
from dovetail.model.events import GroupArrived
from dovetail.model.reason import Reason, sentence
from dovetail.whatif.rerun import Recorded, RerunCounts, RunDifference

Json = dict[str, Any]


def kind_of(call: Call) -> str:
    return type(call.event).__name__ if isinstance(call, Handled) else type(call).__name__


# ---- statistics -----------------------------------------------------------------------------------------------------


def statistics(journal: JournalReader) -> Json:
    kinds: Counter[str] = Counter()
    pods: set[str] = set()
    placed = entries = 0
    gaps: list[Json] = []
    first = last = 0.0
    for recorded in journal.all():
        call = recorded.call
        kinds[kind_of(call)] += 1
        entries += 1
        at = at_of(call)
        first, last = first or at, at or last
        pods.update(pod.uid for group in groups_of(call) for pod in group.pods)
        placed += sum(isinstance(outcome, PlacedPod) for outcome in recorded.outcomes)
        if isinstance(call, JournalGap):
            gaps.append({"entry": recorded.number, "at": written_time(at), "why": call.reason, "lost": call.lost})
    size = sum(one.bytes for one in journal.files)
    return {
        "apiVersion": "dovetail.dev/v1",
        "kind": "JournalStatistics",
        "files": [
            {"name": one.path.name, "bytes": one.bytes, "entries": one.entries, "torn": one.torn, "damage": one.damage}
            for one in journal.files
        ],
        "bytes": size,
        "entries": entries,
        "kinds": dict(kinds.most_common()),
        "first": written_time(first),
        "last": written_time(last),
        "podsArrived": len(pods),
        "placed": placed,
        "bytesPerEntry": round(size / entries, 1) if entries else 0,
        "bytesPerPod": round(size / len(pods), 1) if pods else 0,
        "gaps": gaps,
    }


def statistics_table(found: Json) -> str:
    files = [(one["name"], f"{one['bytes']:,}", f"{one['entries']:,}", _state(one)) for one in found["files"]]
    kinds = [(kind, f"{count:,}") for kind, count in found["kinds"].items()]
    lines = [
        table.render(("FILE", "BYTES", "ENTRIES", "STATE"), files, right=(1, 2)),
        "",
        table.render(("KIND", "ENTRIES"), kinds, right=(1,)),
        "",
        f"{found['first']} to {found['last']}: {found['podsArrived']:,} pods arrived, {found['placed']:,} places given",
        f"{found['bytes']:,} bytes: {found['bytesPerEntry']:,} for each entry, {found['bytesPerPod']:,} for each pod",
    ]
    lines += [
        f"gap at entry {gap['entry']:,}, {gap['at']}: {gap['why']} ({gap['lost']:,} lost)" for gap in found["gaps"]
    ]
    return "\n".join(lines)


def _state(one: Json) -> str:
    if one["damage"]:
        return str(one["damage"])
    return f"last {one['torn']:,} bytes incomplete" if one["torn"] else "complete"


# ---- entries --------------------------------------------------------------------------------------------------------


def entries(journal: JournalReader, pod: str | None, begin: float, end: float) -> Iterator[Json]:
    names: dict[str, str] = {}
    now = 0.0
    for recorded in journal.all():
        now = at_of(recorded.call) or now
        for one in pods_of(recorded.call):
            names[one.uid] = one.key
        if begin <= now <= end:
            line = _entry(recorded, now, names)
            if pod is None or pod in line["pods"]:
                yield line
        if end < now:
            return


def _entry(recorded: Recorded, at: float, names: dict[str, str]) -> Json:
    call = recorded.call
    subject, uids = _subject(call, names)
    concerned = {*uids, *(names.get(getattr(one, "uid", ""), "") for one in recorded.outcomes)}
    return {
        "entry": recorded.number,
        "at": written_time(at),
        "kind": kind_of(call),
        "subject": subject,
        "pods": sorted(concerned - {""}),
        "outcomes": [outcome_text(one, names) for one in recorded.outcomes],
    }


def _subject(call: Call, names: dict[str, str]) -> tuple[str, list[str]]:
    """What the call is about, and the pods that it names."""
    match call:
        case Handled(GroupArrived(_, group)) | Offered(_, group) | Withdrawn(group):
            return group.title, [pod.key for pod in group.pods]
        case Compiled(profile):
            return f"{profile.node} × {', '.join(profile.device)}", []
        case JournalGap(_, reason, lost):
            return f"{reason} ({lost:,} entries lost)", []
        case Checkpoint(facts, state):
            return f"{len(facts):,} facts, {len(state.held):,} places, {len(state.waiting):,} groups wait", []
        case Rebuilt(nodes, running):
            return f"{len(nodes):,} nodes, {len(running):,} pods", []
        case Handled(event):
            return _of_event(event, names)
    return "", []


def _of_event(event: Any, names: dict[str, str]) -> tuple[str, list[str]]:
    if hasattr(event, "running"):
        return f"{event.running.pod.key} on {event.running.node}", [event.running.pod.key]
    if hasattr(event, "pod"):
        return f"{event.pod.key} to {event.node or 'no node'}", [event.pod.key]
    if hasattr(event, "uid"):
        key = names.get(event.uid, event.uid)
        return key, [key]
    if hasattr(event, "uids"):
        keys = [names.get(uid, uid) for uid in event.uids]
        return ", ".join(keys[:5]) + (" …" if len(keys) > 5 else ""), keys
    if hasattr(event, "node"):
        return getattr(event.node, "name", str(event.node)), []
    return "/".join(str(getattr(event, key)) for key in ("kind", "namespace", "name") if hasattr(event, key)), []


def entry_line(line: Json) -> str:
    decided = f" → {'; '.join(line['outcomes'])}" if line["outcomes"] else ""
    return f"{line['entry']:>8}  {line['at']:24}  {line['kind']:16}  {line['subject']}{decided}"


def outcome_text(outcome: Outcome | None, names: dict[str, str] | None = None) -> str:
    known = names or {}
    match outcome:
        case None:
            return "nothing"
        case PlacedPod(uid, node, shares):
            return f"{known.get(uid, uid)} on {node}{_cards(shares)}"
        case KeptWaiting(uid, reason, nominated):
            text = sentence(Reason(reason)) if reason in Reason.__members__.values() else f"reason {reason}"
            return f"{known.get(uid, uid)} waits: {text}{f' (nominated to {nominated})' if nominated else ''}"
        case Said(subject, message):
            return f"{subject}: {message}"
        case Stopped(uid, node, by):
            return f"{known.get(uid, uid)} on {node} is stopped for {by or 'a round'}"
    return str(outcome)


def _cards(shares: tuple[Share, ...]) -> str:
    cards = dict.fromkeys(share.uuid for share in shares)
    return f" ({', '.join(cards)})" if cards else ""


# ---- the result of repeating ----------------------------------------------------------------------------------------


def replay_document(counts: RerunCounts, journal: JournalReader) -> Json:
    return {
        "apiVersion": "dovetail.dev/v1",
        "kind": "JournalReplay",
        "calls": counts.calls,
        "decisions": counts.decisions,
        "different": counts.different,
        "checkpoints": counts.checkpoints,
        "restored": counts.restored,
        "gaps": counts.gaps,
        "skipped": counts.skipped,
        "differences": [_difference(one) for one in counts.differences],
        "notes": counts.notes,
        "torn": {one.path.name: one.torn for one in journal.files if one.torn},
        "damage": journal.complaints(),
    }


def _difference(one: RunDifference) -> Json:
    return {
        "file": one.source,
        "entry": one.number,
        "kind": kind_of(one.call),
        "recorded": outcome_text(one.recorded),
        "executed": outcome_text(one.executed),
    }


def replay_lines(counts: RerunCounts) -> list[str]:
    compared = counts.calls - counts.skipped
    lines = [f"{counts.decisions:,} decisions and effects of {compared:,} calls were executed again"]
    if counts.checkpoints:
        lines.append(f"{counts.checkpoints:,} checkpoints were compared with the state")
    if counts.gaps or counts.skipped:
        lines.append(f"{counts.gaps:,} gaps; {counts.skipped:,} calls behind them could not be compared")
    lines += [f"note: {note}" for note in counts.notes[:20]]
    if not counts.different:
        return [*lines, "all are the same"]
    lines.append(f"{counts.different:,} differ")
    for one in map(_difference, counts.differences[:1]):
        lines += [
            f"the first: {one['file']}, entry {one['entry']:,}, {one['kind']}",
            f"  recorded: {one['recorded']}",
            f"  executed: {one['executed']}",
        ]
    return lines
