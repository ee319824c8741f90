"""`dovetail doctor`: finds problems with a cluster's records, cards and nodes. It only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions, color_option, connection_options, seal_key_option
from dovetail.cli.output.terminal import echo, echo_styled, say

if TYPE_CHECKING:
    from dovetail.kube.live.checkup import Finding

FOUND = 3


@click.command(short_help="Find what is wrong with records, GPUs and nodes of a cluster.")
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=False, allow_dash=True),
    help="Read nodes and pods from manifests instead of a cluster: a file, a folder, or - for stdin. Repeat it.",
)
@connection_options
@click.option(
    "--scheduler-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="Pods with this spec.schedulerName are ours (default: those of the configuration, or dovetail). Repeat it.",
)
@click.option(
    "--config",
    envvar="DOVETAIL_CONFIG",
    show_envvar=True,
    metavar="FILE",
    type=click.Path(),
    help="The scheduler's configuration: its scheduler names.",
)
@click.option("--device-config", metavar="FILE", type=click.Path(), help="HAMi's device-config.yaml.")
@seal_key_option
@click.option("--lease-namespace", metavar="NAME", default="kube-system", show_default=True, help="Where the Lease is.")
@click.option(
    "--lease-name",
    metavar="NAME",
    default="dovetail-scheduler",
    show_default=True,
    help="The Lease, which says since when records are sealed.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
)
@color_option
@click.pass_context
def doctor(
    context_: click.Context,
    /,
    filenames: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    names: tuple[str, ...],
    config: str | None,
    device_config: str | None,
    seal_key_file: str | None,
    lease_namespace: str,
    lease_name: str,
    output: str,
) -> None:
    """Find pods whose record of GPUs fails its check, GPUs that are over-booked, and nodes that take no GPU pods.

    Reads nodes and pods as the live scheduler would after a restart, and changes nothing. Reads need the rights to list
    nodes and pods. With the keys that the scheduler seals with (--seal-key-file) seals are checked, too.

    \b
    Examples:
      dovetail doctor
      dovetail doctor --seal-key-file seal.keys -o json
      kubectl get nodes,pods -A -o yaml | dovetail doctor -f -

    \b
    What is looked for:
      record-unverified   the record of a pod's GPUs fails its check
      record-changed      another client changed the record; the sealed GPUs count
      record-doubtful     a record contradicts another one or the request, or cannot be read
      record-unsealed     a record was written without a seal
      record-missing      a pod with GPUs runs, and no record says which it has
      card-overbooked     pods hold more of a GPU than it has
      card-unregistered   a pod holds a GPU that its node does not register
      node-unsettled      a node takes no new pods with GPUs
      node-doubtful       what a node says of its GPUs cannot be read, in whole or in part

    Exit codes: 0 nothing found, 3 something found, 2 the input is wrong or the cluster cannot be read.
    """
    try:
        from dovetail.cli import examining
    except ModuleNotFoundError as error:
        raise Refused(f"{error.name} is not installed: pip install 'dovetail[live]'") from error

    asked = ClusterOptions(filenames=filenames, config=config, device_config=device_config)
    examined = examining.examine(
        examining.Examination(asked, names, kubeconfig, context, seal_key_file, lease=(lease_namespace, lease_name))
    )
    for line in examined.remarks:
        say(line)
    if output == "json":
        from dovetail.cli.output.encoding import encode

        echo(encode(examining.document(examined), "json"))
    else:
        echo_styled("\n".join(_lines(examined.findings, examined.counts)))
    context_.exit(FOUND if examined.findings else 0)


def _lines(findings: list[Finding], counts: dict[str, int]) -> list[str]:
    from dovetail.cli.output.table import render

    nodes, pods = counts["nodes"], counts["pods"]
    looked = f"{nodes:,} node{'s' * (nodes != 1)} and {pods:,} running pod{'s' * (pods != 1)}"
    if not findings:
        return [f"Nothing found on {looked}."]
    rows = [(one.check, one.object, one.node, one.message) for one in findings]
    advice = dict.fromkeys(f"{one.check}: {one.advice}" for one in findings)
    head = [f"{len(findings)} found on {looked}:", render(("CHECK", "OBJECT", "NODE", "WHAT"), rows), ""]
    return [*head, *advice]
