"""`dovetail trace`: makes traces for the simulator from what a cluster has done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dovetail.cli.errors import Refused
from dovetail.cli.options import color_option, connection_options, device_config_option, filename_option
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import echo, echo_styled, one_line

RUNNING = ("until-now", "forever", "skip")
SUFFIX_OF_FORMAT = {"csv": ".csv", "jsonl": ".jsonl"}


@click.group(short_help="Make traces of what a cluster has done.")
def trace() -> None:
    """Make traces of what a cluster has done, for `dovetail replay` and `dovetail compare`.

    \b
    Examples:
      dovetail trace import --live -o history
      dovetail replay --nodes history/nodes.csv --pods history/jobs.csv --mode time
    """


@trace.command("import", short_help="Nodes and pods of a cluster → a trace.")
@filename_option(
    "A dump of nodes and pods (kubectl get nodes,pods -A -o json), or a snapshot: a file, a folder, or - for stdin."
    " Repeat it, for dumps of different times."
)
@click.option("--live", is_flag=True, help="What the API server of your kubeconfig has now, as one more dump.")
@connection_options
@click.option("--journal", metavar="DIR|FILE", type=click.Path(), help="The journal of a Dovetail, instead of dumps.")
@click.option(
    "--running",
    type=click.Choice(RUNNING),
    default=RUNNING[0],
    show_default=True,
    help="Pods that had not ended: they end when they were last seen, have no end, or are left out.",
)
@click.option("--anonymize", is_flag=True, help="Give namespaces, pods and gangs other names, as `dovetail snapshot`.")
@device_config_option()
@click.option(
    "-o", "--out", metavar="DIR", type=click.Path(path_type=Path), required=True, help="Folder for the files."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(SUFFIX_OF_FORMAT)),
    default="csv",
    show_default=True,
    help="Of the files.",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@color_option
def import_(running: str, anonymize: bool, out: Path, form: str, force: bool, **sources: Any) -> None:
    """Make a trace of the pods that a cluster has had: jobs that arrive, run and end, and the nodes as machines.

    Dumps have the pods that existed at one moment, finished ones included; several dumps are merged by UID. A journal
    has all pods that its scheduler saw. Namespaces become tenants, gangs stay gangs. What a trace cannot say is
    counted, and named in import.json. docs/traces.md describes how times and requests are read.

    \b
    Examples:
      kubectl get nodes,pods -A -o json > monday.json
      dovetail trace import -f monday.json -f tuesday.json -o history
      dovetail trace import --live -o history
      dovetail trace import --journal /var/lib/dovetail/journal --running forever -o history
      dovetail trace import -f snapshots/ --anonymize -o for-the-bug-report
      dovetail compare --nodes history/nodes.csv --trace history/jobs.csv --mode time --policy binpack,fgd

    Exit codes: 0 written, 2 the input is wrong, or there is nothing that can be replayed.
    """
    if out.suffix in (".gz", *SUFFIX_OF_FORMAT.values()):
        raise Refused(f"{out}: -o takes a folder")
    with progress("Reading"):
        from dovetail.cli import planning, sim_files, trace_files, trace_import
        from dovetail.cli.output import encoding, plan_table
        from dovetail.cli.output import trace_import as import_output
        from dovetail.sim.imported import Running

        asked, choice = trace_import.HistorySources(**sources), Running(running)
        asked.check()
        jobs, nodes, details = trace_import.targets(out, SUFFIX_OF_FORMAT[form])
        for path in (jobs, nodes, details):
            trace_files.refuse_existing(path, force)
        read = trace_import.read(asked)
        made = trace_import.trace_of(read.history, choice, anonymize)
    for line in plan_table.problem_lines(planning.beyond_notes(read.problems), {}, False):
        echo_styled(line, err=True)
    with sim_files.refusals():
        written = trace_files.write_trace(made.trace, jobs, nodes)
    trace_import.write_details(details, encoding.encode(import_output.document(made, choice, anonymize), "json"))
    found = [*import_output.lines(made, choice), *written, f"details   {details}"]
    echo("\n".join(map(one_line, found)))
