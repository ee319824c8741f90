"""`dovetail replay`: replays one trace with one policy, and measures the result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli.errors import Refused
from dovetail.cli.output.progress import Countdown, progress
from dovetail.cli.output.terminal import echo_styled, tell_unused_folders
from dovetail.cli.sim_options import GENERATED, Wanted, check_targets, complete_policies, sim_options

if TYPE_CHECKING:
    from dovetail.cli.sim_files import Files, LeftOut
    from dovetail.sim.results import Result
    from dovetail.sim.runs import RunTask, Stage

_FILE = click.Path(path_type=Path)


@click.command(short_help="Replay a trace under one policy and measure it.")
@click.option(
    "--pods",
    "--trace",
    "pods",
    metavar="FILE|generated",
    type=_FILE,
    help="Jobs of a file, openb's lists included; needs --nodes.  [default: generated]",
)
@click.option("--nodes", metavar="FILE", type=_FILE, help="Machines of a file.")
@click.option(
    "--order",
    metavar="FILE|NAME",
    type=_FILE,
    help="Published orders of arrival (.npz); without, the seed draws one. In time mode: the name of a queue order.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=42,
    show_default=True,
    metavar="N",
    help="Picks or draws the order; generated jobs, too.",
)
@click.option(
    "--policy",
    default="fgd",
    show_default=True,
    metavar="NODE[/GPU]",
    shell_complete=complete_policies,
    help="See `dovetail policies`. A node policy alone takes the GPU policy of its name, or else best-fit.",
)
@sim_options
def replay(
    pods: Path | None,
    nodes: Path | None,
    order: Path | None,
    seed: int,
    policy: str,
    output: str,
    plot: Path | None,
    report: Path | None,
    **wanted: Any,
) -> None:
    """Replay a trace under one policy, and say how much of the GPU capacity it placed.

    Without files, jobs are generated. docs/simulator.md describes the measures, the JSON and the CSV.

    \b
    Examples:
      dovetail replay
      dovetail replay --policy binpack/spread --jobs 2000 --cluster 8xA100-SXM4-80GB:8
      dovetail replay --nodes nodes.csv --pods jobs.csv --seed 7 --report fgd.html
      dovetail replay --nodes nodes.csv --pods jobs.csv --mode time --compress 20 --queue strict
      dovetail replay --mode time --preemption priority --restart-cost 300
      dovetail replay --nodes N.csv --pods P.csv --order O.npz --seed 42 --policy fgd -o json
    """
    asked = Wanted(**wanted)
    files = pods is not None and str(pods) != GENERATED
    if files and nodes is None:
        raise Refused("--pods needs --nodes: which machines do they run on?")
    timed = asked.mode == "time"
    named, order = (str(order) if timed and order else "", None if timed else order)
    if not files and (nodes is not None or order is not None):
        raise Refused("--nodes and --order go with --pods FILE; for generated jobs say --cluster")
    asked.check(files, not files)
    check_targets(plot, report)
    with progress("Reading"):
        from dovetail.cli import sim_files
        from dovetail.cli.output import replay as replay_output

        with sim_files.refusals():
            given = sim_files.Files(pods, nodes, order) if files and pods and nodes else None
            task, stage, left_out = _task(given, seed, policy, asked, named)
    with sim_files.refusals():
        result = _run(task, stage)
        tell_unused_folders()
        echo_styled(replay_output.text(result, output, task.setting, left_out))
        sim_files.write_pictures([result], plot, report, None)


def _task(given: Files | None, seed: int, policy: str, asked: Wanted, order: str) -> tuple[RunTask, Stage, LeftOut]:
    from dovetail.cli.sim_files import read_cases
    from dovetail.cli.sim_rights import regimes
    from dovetail.sim.compare import plan

    cases, left_out = read_cases([given], asked)
    planned = plan(cases, [policy], [seed], asked.setting(), regimes((order,), asked, several=False))
    task = planned.tasks[0]
    return task, planned.stages[task.stage], left_out


def _run(task: RunTask, stage: Stage) -> Result:
    from dovetail.sim.compare import compile_all
    from dovetail.sim.runs import run

    countdown = Countdown("Replaying")
    with progress(lambda: str(countdown)):
        compile_all([task], countdown.say)
        total = _total(task, stage)
        countdown.say("Replaying", 0, total)
        return run(task, stage, lambda done: countdown.say("Replaying", done, total))


def _total(task: RunTask, stage: Stage) -> int:
    """The number of steps of the run; 0 if it is not known before the run."""
    from dovetail.sim.runs import TIME, Recipe

    if task.setting.mode == TIME:
        return stage.workload.jobs if isinstance(stage, Recipe) else len(stage.jobs)
    return 0 if task.order is None else len(task.order.arrivals)
