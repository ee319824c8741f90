"""`dovetail shadow`: watches another scheduler at work, and reports what Dovetail would have done."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.errors import extra
from dovetail.cli.options import (
    ClusterOptions,
    color_option,
    connection_options,
    device_config_option,
    gpu_policy_option,
    journal_options,
    node_policy_option,
)
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import echo, echo_styled


@click.command(short_help="What would Dovetail have done? Read-only, beside another scheduler.")
@connection_options
@click.option(
    "--scheduler-name",
    "names",
    metavar="NAME",
    multiple=True,
    default=("default-scheduler",),
    show_default=True,
    help="The other scheduler: pods with this spec.schedulerName. Repeat it.",
)
@node_policy_option("Of pods with devices.")
@gpu_policy_option("Of pods with devices.")
@click.option("--config", metavar="FILE", type=click.Path(), help="Configuration: policies and their arguments.")
@device_config_option()
@journal_options
@click.option("--report", metavar="DIR", type=click.Path(), help="Print the report of this journal, and end.")
@click.option(
    "--report-every", metavar="SECONDS", type=click.FloatRange(0), default=3600, show_default=True, help="0 = never."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the report.",
)
@color_option
def shadow(
    kubeconfig: str | None,
    context: str | None,
    names: tuple[str, ...],
    node_policy: str | None,
    gpu_policy: str | None,
    config: str | None,
    device_config: str | None,
    journal: str | None,
    journal_size: int,
    journal_days: float,
    report: str | None,
    report_every: float,
    output: str,
) -> None:
    """Watch another scheduler at work, and report where Dovetail would have placed its pods, and what that is worth.

    It needs rights to list and watch only (deploy/optional/shadow). With --journal DIR everything that was seen
    is kept, so that `dovetail shadow --report DIR` and `dovetail journal diff DIR --node-policy …` answer later.

    \b
    Examples:
      dovetail shadow --kubeconfig ~/.kube/config --journal shadow
      dovetail shadow --report shadow -o json

    Ends on SIGTERM and Ctrl-C with a report. Exit codes: 0 asked to stop, 2 the input is wrong.
    """
    from dovetail.cli.output import encoding, hypotheses

    with extra("live"):
        from dovetail.cli import shadowing

    def tell(found: shadowing.ShadowReport) -> None:
        if output in encoding.FORMATS:
            echo(encoding.encode(hypotheses.shadow_document(found), output))
        else:
            echo_styled("\n".join(hypotheses.shadow_lines(found)))

    if report is not None:
        with progress("Reading"):
            found = shadowing.report_of(report)
        tell(found)
        return
    asked = ClusterOptions(node_policy=node_policy, gpu_policy=gpu_policy, config=config, device_config=device_config)
    where, kept = Path(kubeconfig) if kubeconfig else None, (journal, journal_size, journal_days)
    raise SystemExit(shadowing.run(shadowing.ShadowOptions(asked, names, where, context, kept, report_every), tell))
