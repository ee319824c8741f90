"""`dovetail snapshot`: writes a cluster into one file, for `plan`, `get`, `compare` and the simulator."""

from __future__ import annotations

from typing import Any

import click

from dovetail.cli.ending import ends_soon
from dovetail.cli.options import ClusterOptions, connection_options
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import say


@click.command(short_help="Write a cluster into one file, without secrets.")
@click.option(
    "-o",
    "--output",
    default="-",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Where to write; .gz compresses.  [default: stdout]",
)
@click.option("--anonymize", is_flag=True, help="Give namespaces, pods, their owners and groups other names.")
@connection_options
@click.option("--device-config", metavar="FILE", type=click.Path(), help="HAMi's device-config.yaml.")
@click.pass_context
def snapshot(context: click.Context, /, output: str, anonymize: bool, **source: Any) -> None:
    """Write all that decides placements into one file: nodes, pods, gangs, quotas, queues, budgets, volumes, topology.

    Only fields that Dovetail reads are written. Secrets and ConfigMaps are not read at all. Environments, arguments,
    commands and probes of containers, and annotations that Dovetail does not read, are left out. A plan of the snapshot
    is the plan of the cluster. The same cluster gives the same bytes, apart from the time in the first item.

    \b
    Examples:
      dovetail snapshot -o cluster.json.gz
      dovetail plan -f cluster.json.gz -f my-deployment.yaml
      dovetail get gpus -f cluster.json.gz
      dovetail snapshot --anonymize -o for-the-bug-report.json

    Exit codes: 0 written, 2 the cluster cannot be read or the file cannot be written.
    """
    context.with_resource(ends_soon())
    with progress("Reading the cluster"):
        from dovetail.cli import snapshots

        taken = snapshots.take(ClusterOptions(**source, live=True), anonymize)
    snapshots.write(output, taken)
    if output != "-":
        say(f"{output}: {snapshots.summary(taken)}")
