"""Prints what `trace import` made of a history: lines for people, and the JSON that is written beside the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.cli.journals import written_time
from dovetail.cli.output.amounts import count
from dovetail.cli.trace_files import summary_lines
from dovetail.cli.trace_import import counted
from dovetail.sim.imported import ImportedTrace, Running

Json = dict[str, Any]
WHAT_ENDS = {
    Running.UNTIL_NOW: "these end when they were last seen",
    Running.FOREVER: "these have no end",
    Running.SKIP: "these are left out",
}


def lines(made: ImportedTrace, running: Running) -> list[str]:
    """The trace in a few numbers, and what it does not say."""
    found = [*summary_lines(made.trace), f"time      {written_time(made.begin)} to {written_time(made.end)}"]
    if made.unfinished:
        found.append(f"running   {count(len(made.unfinished), 'job')} had not ended: {WHAT_ENDS[running]}")
    for title, reasons in (("left out", made.left_out), ("remark", made.remarks)):
        for why in sorted(reasons):
            found.append(f"{title:8}  {len(reasons[why]):,} × {why}: {counted(reasons[why])}")
    return found


def document(made: ImportedTrace, running: Running, anonymous: bool) -> Json:
    """The data of import.json; docs/traces.md describes it."""
    trace = made.trace
    return {
        "apiVersion": "dovetail.dev/v1",
        "kind": "ImportedTrace",
        "begin": written_time(made.begin),
        "end": written_time(made.end),
        "running": str(running),
        "anonymous": anonymous,
        "jobs": len(trace.jobs),
        "pods": sum(job.pods for job in trace.jobs),
        "machines": len(trace.machines),
        "unfinished": made.unfinished,
        "leftOut": _reasons(made.left_out),
        "remarks": _reasons(made.remarks),
    }


def _reasons(given: Mapping[str, Sequence[str]]) -> list[Json]:
    return [{"why": why, "count": len(given[why]), "objects": list(given[why])} for why in sorted(given)]
