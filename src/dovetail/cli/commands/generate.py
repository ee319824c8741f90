"""`dovetail generate`: writes a workload and a cluster, generated from a seed, as files that can be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli.errors import Refused
from dovetail.cli.options import color_option
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import echo, one_line
from dovetail.sim.trace import TraceError
from dovetail.sim.workload import DEFAULT_CLUSTER, WorkloadParameters

if TYPE_CHECKING:
    from dovetail.cli.options import Function
    from dovetail.sim.trace import Machine

DEFAULT_WORKLOAD = WorkloadParameters()
SUFFIX_OF_FORMAT = {"csv": ".csv", "jsonl": ".jsonl"}

# parameter -> its help text
HELP_TEXTS = {
    "jobs": "How many jobs.",
    "seed": "The same seed and options give the same files, byte for byte, on any machine.",
    "load": "GPU-hours asked for, in parts of what the cluster has while jobs arrive. Sets how fast they come.",
    "cpu_only": "Share of the jobs that want no GPU.",
    "share": "Share of the jobs that want a part of one GPU.",
    "multi_gpu": "Share of the jobs that want 2, 4 or 8 GPUs. The rest wants one GPU for itself.",
    "gangs": "Share of the whole-GPU jobs that are 2 to 8 pods which run together or not at all.",
    "one_rack": "Share of these gangs whose pods must be in one rack.",
    "constrained": "Share of the GPU jobs that name the models they accept.",
    "gpu_memory": "Share of the jobs with a part of a GPU that ask for GPU memory, too.",
    "median_seconds": "Half of the jobs run shorter.",
    "sigma": "How far durations spread (lognormal): 0 = all equal, 1.9 = a few take most of the time.",
    "longest_seconds": "No job runs longer.",
    "rhythm": "Day and night: 0 = none, 1 = no pod comes in the small hours. Traces begin at midnight.",
    "bursts": "Share of the jobs that come in bursts of equal ones.",
    "burst_size": "Jobs in a burst, on average.",
    "tenants": "How many; the first has the most jobs, each prefers another kind.",
    "urgent": "Share of the jobs with priority 100.",
    "impossible": "Share of the jobs that no machine could ever take, to test what becomes of them.",
}


def _workload_options(function: Function) -> Function:
    """Add the options of a workload.

    WorkloadParameters checks their ranges itself, so that callers without a command line get it too.
    """
    for name, words in reversed(HELP_TEXTS.items()):
        default = getattr(DEFAULT_WORKLOAD, name)
        kind = int if isinstance(default, int) else float
        shown = f"{default:g}"
        option = click.option(_flag(name), type=kind, default=default, help=f"{words}  [default: {shown}]", metavar="N")
        function = option(function)
    return function


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@click.command(short_help="Make a workload and a cluster to try things on.")
@click.option(
    "--cluster",
    metavar="SPEC",
    help="Machines: COUNTxMODEL:GPUS, separated by commas; COUNTxCPU has no GPU; @8x4: racks of 8, "
    "blocks of 4 racks.  [default: 64 nodes, see above]",
)
@click.option("--nodes", metavar="FILE", type=click.Path(path_type=Path), help="Machines of a file instead.")
@_workload_options
@click.option("-o", "--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder for jobs and nodes files.")
@click.option(
    "--jobs-out", metavar="FILE", type=click.Path(path_type=Path), help="Jobs file: .csv, .jsonl, or .gz of them."
)
@click.option("--nodes-out", metavar="FILE", type=click.Path(path_type=Path), help="Nodes file, likewise.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(SUFFIX_OF_FORMAT)),
    default="csv",
    show_default=True,
    help="Of the files in -o DIR.",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@color_option
def generate(
    cluster: str | None,
    nodes: Path | None,
    out: Path | None,
    jobs_out: Path | None,
    nodes_out: Path | None,
    form: str,
    force: bool,
    **parameters: Any,
) -> None:
    """Make jobs that arrive, run for a while and leave, and the machines to replay them on.

    The defaults resemble Alibaba's openb trace: many shares and single GPUs, few large jobs, heavy-tailed durations,
    days and nights, bursts, tenants. Every job fits some machine. docs/traces.md describes files and parameters.
    The default cluster is 24xA100-SXM4-80GB:8,16xV100M32:8,8xA10:4,16xT4:4.

    \b
    Examples:
      dovetail generate -o trace
      dovetail generate --jobs 20000 --seed 7 --load 1.2 -o busy
      dovetail generate --cluster 16xA100-SXM4-80GB:8,32xT4:4 --multi-gpu 0.2 --gangs 0.1 -o training
      dovetail generate --share 0.8 --cpu-only 0 --jobs-out inference.jsonl.gz
      dovetail generate --nodes my-nodes.csv --jobs-out jobs.csv
    """
    if cluster is not None and nodes is not None:
        raise Refused("--cluster and --nodes both say which machines there are; give one of them")
    jobs_file, nodes_file = _targets(out, jobs_out, nodes_out, form)
    try:
        from dovetail.cli.trace_files import check_target, summary_lines, write_trace
        from dovetail.sim.generate import generate as generate_trace

        workload = _workload(parameters)
        for target in (jobs_file, nodes_file):
            check_target(target, force)
        with progress("Generating"):
            trace = generate_trace(workload, _machines(cluster, nodes))
            written = write_trace(trace, jobs_file, nodes_file)
    except TraceError as error:
        raise Refused(*error.lines) from error
    echo("\n".join(map(one_line, [*summary_lines(trace), *written])))


def _workload(parameters: dict[str, Any]) -> WorkloadParameters:
    """The workload. Errors name the options as users type them."""
    try:
        return WorkloadParameters(**parameters)
    except TraceError as error:
        named = (line.split(":", 1) for line in error.lines)
        raise Refused(*(" + ".join(map(_flag, names.split(" + "))) + f":{rest}" for names, rest in named)) from error


def _targets(out: Path | None, jobs: Path | None, nodes: Path | None, form: str) -> tuple[Path | None, Path | None]:
    """The files for jobs and for nodes; None = not written."""
    if out is None and jobs is None and nodes is None:
        raise Refused("nothing says where to write; add -o DIR, or --jobs-out and --nodes-out")
    if out is not None:
        if out.suffix in (".gz", *SUFFIX_OF_FORMAT.values()):
            raise Refused(
                f"{out}: -o takes a folder; say --jobs-out for the jobs file and --nodes-out for the nodes file"
            )
        jobs = jobs or out / f"jobs{SUFFIX_OF_FORMAT[form]}"
        nodes = nodes or out / f"nodes{SUFFIX_OF_FORMAT[form]}"
    if jobs is not None and jobs == nodes:
        raise Refused(f"{jobs}: jobs and nodes need a file each; change --jobs-out or --nodes-out")
    return jobs, nodes


def _machines(cluster: str | None, nodes: Path | None) -> tuple[Machine, ...]:
    from dovetail.sim.clusters import parse_cluster
    from dovetail.sim.load import load_machines

    if nodes is not None:
        return tuple(load_machines(nodes)[0])
    return parse_cluster(DEFAULT_CLUSTER if cluster is None else cluster)
