"""`make repro`: replays the experiments of the FGD paper and compares them with its published curves.

Prints a table per policy and trace; the last line is JSON. Exit code 1 if a requirement does not hold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import click

from dovetail.cli.output.progress import Countdown, progress
from dovetail.cli.output.table import render
from dovetail.sim.published import POLICY_OF_PUBLISHED, experiments
from dovetail.sim.repro import END, FGD, FULL, RANDOM, Gap, ReproFindings, random_gaps, reproduce, verdict
from dovetail.sim.trace import TraceError


def main(folder: str) -> int:
    try:
        given, lacking = experiments(Path(folder))
    except TraceError as error:
        print(f"repro: {error}", file=sys.stderr)
        return 2
    for line in lacking:
        print(f"repro: {line}", file=sys.stderr)
    started, countdown = perf_counter(), Countdown("Replaying")
    with progress(lambda: str(countdown)):
        found = reproduce(given, countdown.say)
    judged = verdict(found)
    click.echo(policy_table(found.gaps))
    click.echo()
    click.echo(random_table(found.gaps))
    if judged["snug"]:
        click.echo()
        click.echo(snug_table(found, judged["snug"]))
    runs = len(found.gaps) + sum(map(len, found.snug.values()))
    click.echo(f"\n{runs} runs in {perf_counter() - started:.0f} s on two processes")
    click.echo(json.dumps(judged))
    return 0 if judged["pass"] else 1


def policy_table(gaps: Sequence[Gap]) -> str:
    """The gaps in points of all GPU capacity: the worst over all seeds and all 131 columns."""
    rows = []
    for policy in POLICY_OF_PUBLISHED.values():
        if policy == RANDOM:
            continue
        for trace in dict.fromkeys(gap.trace for gap in gaps):
            here = [gap for gap in gaps if (gap.policy, gap.trace) == (policy, trace)]
            if here:
                same = f"{sum(gap.identical for gap in here)}/{len(here)}"
                worst = max(gap.allocated for gap in here), max(gap.fragmented for gap in here)
                end = sum(gap.end for gap in here) / len(here)
                rows.append((policy, trace, same, f"{worst[0]:.4f}", f"{worst[1]:.4f}", f"{end:+.4f}"))
    return render(
        ("POLICY", "TRACE", "IDENTICAL", "WORST PLACED", "WORST FRAGMENTED", "MEAN END"), rows, right=range(2, 6)
    )


def random_table(gaps: Sequence[Gap]) -> str:
    """The gaps of the means over seeds, in points."""
    ends, fulls = random_gaps(gaps, END), random_gaps(gaps, FULL)
    rows = [(RANDOM, trace, f"{fulls[trace]:+.4f}", f"{ends[trace]:+.4f}") for trace in ends]
    return render(("POLICY", "TRACE", "MEAN AT 100 %", "MEAN END"), rows, right=(2, 3))


def snug_table(found: ReproFindings, gains: dict[str, dict[str, dict[str, object]]]) -> str:
    """The mean gain over fgd in points, when 100 % had arrived and at the end."""
    columns = [(how, f"at_{at}") for how in gains for at in (FULL, END)]
    traces = list(dict.fromkeys(trace for trace, _ in found.fgd))
    rows = []
    for trace in traces:
        values = [gains[how][at]["traces"][trace] for how, at in columns]  # type: ignore[index]
        rows.append((trace, *(f"{value:+.3f}" for value in values)))
    for what in ("mean", "median"):
        rows.append((what, *(f"{gains[how][at][what]:+.3f}" for how, at in columns)))
    rows.append(("seeds won", *(f"{gains[how][at]['wins']}/{gains[how][at]['runs']}" for how, at in columns)))
    header = ("SNUG MINUS " + FGD.upper(), *(f"{how.upper()} {at[3:]} %" for how, at in columns))
    return render(header, rows, right=range(1, len(header)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
