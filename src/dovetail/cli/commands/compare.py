"""`dovetail compare`: compares policies with a baseline over seeds and traces, or on the pods of a cluster."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dovetail.cli.ending import ends_soon
from dovetail.cli.errors import BAD_INPUT, INTERRUPTED, Refused
from dovetail.cli.options import ClusterOptions, config_option, device_config_option, filename_option, live_options
from dovetail.cli.output.progress import Countdown, progress
from dovetail.cli.output.terminal import echo, echo_styled, say, tell_unused_folders
from dovetail.cli.sim_options import (
    GENERATED,
    Wanted,
    check_targets,
    complete_policies,
    parse_policies,
    parse_seeds,
    sim_options,
)

if TYPE_CHECKING:
    from dovetail.cli.sim_files import Files
    from dovetail.sim.compare import RunResults

DEFAULT_POLICIES = "best-fit,fgd"
_FILE = click.Path(path_type=Path)
OF_CLUSTERS = ("filenames", "live", "kubeconfig", "context", "scheduler_names", "config", "device_config")
OF_BOTH = frozenset((*OF_CLUSTERS, "policies", "output", "engine"))


@click.command(short_help="Compare policies on traces, or on a cluster.")
@click.option(
    "--trace",
    "--pods",
    "traces",
    multiple=True,
    metavar="FILE|generated",
    type=_FILE,
    help="Jobs of a file, openb's lists included; needs --nodes. Repeat it.  [default: generated]",
)
@click.option(
    "--nodes", multiple=True, metavar="FILE", type=_FILE, help="Machines: one file for all traces, or one for each."
)
@click.option(
    "--order",
    "orders",
    multiple=True,
    metavar="FILE|NAME",
    type=_FILE,
    help="Published orders (.npz), one for each trace; {trace} in the name stands for the trace's. In time mode: names"
    " of queue orders, separated by commas.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=(DEFAULT_POLICIES,),
    show_default=DEFAULT_POLICIES,
    metavar="A,B,…",
    shell_complete=complete_policies,
    help="NODE or NODE/GPU. Repeat it, or separate by commas; see `dovetail policies`.",
)
@click.option(
    "--baseline",
    metavar="POLICY",
    shell_complete=complete_policies,
    help="What the others are compared with.  [default: the first]",
)
@click.option("--seeds", default="42-51", show_default=True, metavar="N-M", help="Such as 42-51 or 1,2,5-7.")
@click.option("--workers", type=click.IntRange(1, 1024), metavar="N", help="Processes.  [default: one a core]")
@click.option(
    "--on",
    metavar="WHERE",
    help="Run elsewhere: dask://HOST:PORT, ray://HOST:PORT, or ray (of this machine). Needs the extra dask or ray.",
)
@click.option("--no-cache", is_flag=True, help="Run everything again, and keep nothing.")
@sim_options
@filename_option("Compare on the cluster of a snapshot or of manifests: a file, a folder, or - for stdin. Repeat it.")
@live_options
@config_option("With --live or -f: policies of the pods, arguments of policies, queues, scheduler names.")
@device_config_option(text="With --live or -f: HAMi's device-config.yaml.")
@click.pass_context
def compare(context: click.Context, /, policies: tuple[str, ...], output: str, **given: Any) -> None:
    """Compare policies: on traces in the simulator, or on the pods of a cluster with --live or -f.

    On traces, every policy runs on every trace under every seed; differences to the baseline are taken seed by seed,
    with their 95 % interval. Finished runs are kept: Ctrl-C shows what is there, and the same command goes on from it.
    docs/simulator.md describes the table, the JSON and the CSV.

    With --live, or -f for a snapshot or manifests: would another policy have left more whole GPUs? The running pods
    with GPUs and the waiting pods are placed anew on the nodes, and then only the waiting pods on the cluster as it is.
    Nothing is changed. docs/commands.md describes which pods are placed anew, and the JSON.

    \b
    Examples:
      dovetail compare
      dovetail compare --policy best-fit,fgd,binpack/spread --baseline best-fit --seeds 1-20 --report policies.html
      dovetail compare --mode time --jobs 2000 --seeds 1-5 --policy binpack,fgd
      dovetail compare --mode time --policy fgd --preemption none,priority --restart-cost 300
      dovetail compare --nodes nodes.csv --trace monday.csv --trace friday.csv --plot week.svg
      dovetail compare --nodes N.csv --trace openb_pod_list_default.csv --order 'openb_order_{trace}.npz' -o json
      dovetail compare --on dask://head:8786 --seeds 1-200
      dovetail compare --live --policy binpack/spread,spread/binpack,fgd
      dovetail compare -f cluster.json.gz --policy fgd,snug -o json | jq '.policies[] | [.policy, .anew.gpus.wholeFree]'
    """
    of_cluster = {name: given.pop(name) for name in OF_CLUSTERS}
    if of_cluster["live"] or of_cluster["filenames"]:
        _refuse_given(context, given.keys() - OF_BOTH, "is for traces; leave it out, or leave out --live and -f")
        _on_cluster(context, ClusterOptions(engine=given["engine"], **of_cluster), policies, output)
    else:
        _refuse_given(context, of_cluster.keys(), "is for clusters; add --live, or a snapshot with -f")
        _on_traces(context, policies, output, **given)


def _refuse_given(context: click.Context, names: Collection[str], why: str) -> None:
    """Raise Refused for an option on the command line that has no effect here."""
    for one in context.command.params:
        name = str(one.name)
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise Refused(f"{max(one.opts, key=len)} {why}")


def _on_cluster(context: click.Context, asked: ClusterOptions, policies: tuple[str, ...], output: str) -> None:
    if output == "csv":
        raise Refused("-o csv is for traces; a comparison on a cluster is printed as table or json")
    context.with_resource(ends_soon())
    with progress("Reading"):
        from dovetail.cli import planning, policy_trials, sim_files
        from dovetail.cli.output import encoding, plan_table
        from dovetail.cli.output import policy_trials as trials_output

        with sim_files.refusals():
            profiles = policy_trials.profiles_of(parse_policies(policies))
        case, emptied = policy_trials.read(asked)
    countdown = Countdown("Placing")
    with progress(lambda: str(countdown)):
        tried = policy_trials.tried(case, emptied, profiles, countdown.say)
    problems = case.given.problems
    for line in plan_table.problem_lines(planning.beyond_notes(problems), {}, False):
        echo_styled(line, err=True)
    for note in policy_trials.without_load(profiles):
        say(note)
    if output in encoding.FORMATS:
        echo(encoding.encode(trials_output.document(tried), output))
    else:
        echo_styled("\n".join(trials_output.lines(tried)))
    context.exit(BAD_INPUT if planning.of_severity(problems, "error") else 0)


def _on_traces(
    context: click.Context,
    policies: tuple[str, ...],
    output: str,
    *,
    traces: tuple[Path, ...],
    nodes: tuple[Path, ...],
    orders: tuple[Path, ...],
    baseline: str | None,
    seeds: str,
    workers: int | None,
    on: str | None,
    no_cache: bool,
    plot: Path | None,
    report: Path | None,
    **wanted: Any,
) -> None:
    asked, names, wanted_seeds = Wanted(**wanted), _policies(policies, baseline), parse_seeds(seeds)
    named, orders = (tuple(map(str, orders)), ()) if asked.mode == "time" else ((), orders)
    sources = _sources(traces or (Path(GENERATED),), nodes, orders)
    check_targets(plot, report)
    asked.check(any(pods for pods, _, _ in sources), any(pods is None for pods, _, _ in sources))
    with progress("Reading"):
        from dovetail.cli import sim_files, sim_rights
        from dovetail.cli.output import comparison as compare_output
        from dovetail.sim.compare import RunResults, plan

        with sim_files.refusals():
            cases, left_out = sim_files.read_cases([_files(source) for source in sources], asked)
            regimes = sim_rights.regimes(named, asked, several=True)
            findings = RunResults(plan(cases, names, wanted_seeds, asked.setting(), regimes))
    with sim_files.refusals():
        complete = _run(findings, on, workers, no_cache)
        if findings.found:
            echo_styled(compare_output.text(findings, names[0], output, left_out))
            sim_files.write_pictures(findings.results, plot, report, names[0])
    if not complete:
        for line in compare_output.missing_lines(findings):
            say(line)
        context.exit(INTERRUPTED)


def _policies(values: tuple[str, ...], baseline: str | None) -> list[str]:
    """The policies, baseline first: after an interruption, other policies can still be compared with it."""
    found = parse_policies(values)
    return found if baseline is None else [baseline, *(name for name in found if name != baseline)]


Source = tuple[Path | None, Path | None, Path | None]  # pods, nodes, order; without pods, the trace is generated


def _sources(traces: Sequence[Path], nodes: Sequence[Path], orders: Sequence[Path]) -> list[Source]:
    files = [path for path in traces if str(path) != GENERATED]
    if not files and (nodes or orders):
        raise Refused("--nodes and --order go with --trace FILE; for generated jobs say --cluster")
    if files and not nodes:
        raise Refused("--trace FILE needs --nodes: which machines do they run on?")
    if len(nodes) not in (0, 1, len(files)):
        raise Refused(f"--nodes is given {len(nodes)} times for {len(files)} traces; give one for all, or one for each")
    pattern = len(orders) == 1 and "{trace}" in str(orders[0])
    if orders and not pattern and len(orders) != len(files):
        raise Refused(
            f"--order is given {len(orders)} times for {len(files)} traces; "
            "give one for each, or a name with {trace} in it for all"
        )
    found: list[Source] = []
    for path in traces:
        if str(path) == GENERATED:
            found.append((None, None, None))
            continue
        at = sum(pods is not None for pods, _, _ in found)
        order = (orders[0] if pattern else orders[at]) if orders else None
        found.append((path, nodes[min(at, len(nodes) - 1)], order))
    return found


def _files(source: Source) -> Files | None:
    from dovetail.cli.sim_files import Files
    from dovetail.sim.compare import order_file
    from dovetail.sim.load import trace_name

    pods, nodes, order = source
    if pods is None or nodes is None:
        return None
    return Files(pods, nodes, None if order is None else order_file(order, trace_name(pods)))


def _run(findings: RunResults, on: str | None, workers: int | None, no_cache: bool) -> bool:
    """Make the runs; False if Ctrl-C or SIGTERM came before the end."""
    from dovetail.sim.compare import run_all
    from dovetail.sim.results_cache import ResultsCache

    countdown = Countdown("Replaying")
    try:
        with _sigterm_like_ctrl_c(), progress(lambda: str(countdown)):
            run_all(findings, countdown.say, on=on, workers=workers, cache=None if no_cache else ResultsCache())
    except KeyboardInterrupt:
        return False
    finally:
        tell_unused_folders()
    return True


@contextmanager
def _sigterm_like_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: worker processes end too, and their files are removed."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
