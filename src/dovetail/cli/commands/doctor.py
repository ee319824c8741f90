"""`dovetail doctor`: finds what is wrong on a cluster, or what changes when it leaves HAMi. It only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions, color_option, connection_options, filename_option, seal_key_option
from dovetail.cli.output.progress import told_progress
from dovetail.cli.output.terminal import echo, echo_styled, say

if TYPE_CHECKING:
    from dovetail.cli.examining import Examined

FOUND = 3


def _complete_check(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from dovetail.kube.doctor.hami import HAMI_CHECKS
    from dovetail.kube.doctor.table import CHECKS

    return [
        CompletionItem(check.name, help=check.sentence)
        for check in (*CHECKS, *HAMI_CHECKS)
        if check.name.startswith(incomplete)
    ]


@click.command(short_help="Find what is wrong on a cluster, and say what to do.")
@filename_option(
    "Read nodes and pods from manifests instead of a cluster: a file, a folder, or - for stdin. Repeat it.",
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
    "--service-account",
    metavar="NAMESPACE/NAME",
    default="kube-system/dovetail-scheduler",
    show_default=True,
    help="The scheduler's user, whose rights are examined.",
)
@click.option(
    "--check",
    "checks",
    metavar="NAME",
    multiple=True,
    shell_complete=_complete_check,
    help="Run this check only; card-* names several. Repeat it.",
)
@click.option(
    "--from",
    "origin",
    type=click.Choice(["hami"]),
    help="Say what will differ when this cluster changes from HAMi to Dovetail, for which pods and nodes.",
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
    service_account: str,
    checks: tuple[str, ...],
    origin: str | None,
    output: str,
) -> None:
    """Find what is wrong on a cluster, and say what to do about it. It only reads.

    Looks at records, cards, nodes, pods, quotas, the leader, rights, policies and the webhook. Reads nodes and pods as
    the live scheduler would after a restart. What may not be read is said, and left out. With the keys that the
    scheduler seals with (--seal-key-file) seals are checked, too.

    \b
    Examples:
      dovetail doctor
      dovetail doctor --check 'card-*' --check rights-missing
      dovetail doctor --from hami
      dovetail doctor --seal-key-file seal.keys -o json
      kubectl get nodes,pods -A -o yaml | dovetail doctor -f -

    \b
    Checks:
      record-unverified record-changed record-doubtful record-unsealed record-missing
      card-overbooked card-unregistered card-unhealthy card-cordoned card-stranded card-duplicate
      node-unsettled node-doubtful node-not-ready node-cordoned node-tainted node-without-enforcer
      node-lock-stale node-register-old
      pod-unserved pod-slipped pod-terminating pod-rejected pod-group-missing pod-group-unserved
      quota-unhostable quota-too-small quota-ignored
      leader-missing leader-stale leader-overlap policy-missing flow-missing
      version-unsupported version-of-crd rights-missing
      webhook-missing webhook-unreachable webhook-certificate

    docs/doctor.md has a section for each check: what it finds, why that matters, and what to do.

    Exit codes: 0 nothing found, 3 something found, 2 the input is wrong or the cluster cannot be read.
    """
    try:
        from dovetail.cli import examining
    except ModuleNotFoundError as error:
        raise Refused(f"{error.name} is not installed: pip install 'dovetail[live]'") from error

    namespace, _, account = service_account.partition("/")
    if not namespace or not account:
        raise Refused(
            f"--service-account {service_account}: write NAMESPACE/NAME, such as kube-system/dovetail-scheduler"
        )
    asked = ClusterOptions(filenames=filenames, config=config, device_config=device_config)
    lease, user = (lease_namespace, lease_name), (namespace, account)
    examination = examining.Examination(
        asked, names, kubeconfig, context, seal_key_file, lease, user, checks=checks, origin=origin or ""
    )
    with told_progress() as doing:
        examined = examining.examine(examination, doing)
    for line in examined.remarks:
        say(line)
    if output == "json":
        from dovetail.cli.output.encoding import encode

        echo(encode(examining.document(examined), "json"))
    else:
        echo_styled("\n".join(_lines(examined)))
    context_.exit(FOUND if examined.findings else 0)


def _lines(examined: Examined) -> list[str]:
    from dovetail.cli.output.table import render
    from dovetail.kube.doctor.finding import severity_of

    nodes, pods = examined.counts["nodes"], examined.counts["pods"]
    looked = f"{nodes:,} node{'s' * (nodes != 1)} and {pods:,} running pod{'s' * (pods != 1)}"
    findings, severities = examined.findings, severity_of(examined.checks)
    last = _summary(examined)
    if not findings:
        return [f"Nothing found on {looked}.", *last]
    rows = [(severities[one.check].upper(), one.check, one.object, one.node, one.message) for one in findings]
    advice = dict.fromkeys(f"{one.check}: {one.advice}" for one in findings)
    head = [f"{len(findings)} found on {looked}:", render(("SEVERITY", "CHECK", "OBJECT", "NODE", "WHAT"), rows), ""]
    return [*head, "What to do:", *(f"  {line}" for line in advice), *last]


def _summary(examined: Examined) -> list[str]:
    if examined.summary is None:
        return []
    pods, fine_pods, nodes, fine_nodes = examined.summary
    return [
        "",
        f"Nothing differs for {fine_pods:,} of {pods:,} pods with GPUs,"
        f" and for {fine_nodes:,} of {nodes:,} nodes with GPUs.",
    ]
