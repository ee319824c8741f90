"""`dovetail scheduler`: runs the scheduler on a live cluster."""

from __future__ import annotations

from dataclasses import replace

import click

from dovetail.cli.errors import extra
from dovetail.cli.options import (
    complete_policy,
    config_option,
    connection_options,
    device_config_option,
    gpu_policy_option,
    journal_options,
    log_options,
    node_policy_option,
    scheduler_names_option,
    seal_key_option,
    unknown_pod_group_option,
)
from dovetail.cli.scheduler_options import (
    LiveOptions,
    as_live_options,
    audit_seconds_option,
    binds_at_once_option,
    hami_lock_option,
    identity_option,
    interpreted_option,
    lease_options,
    listen_option,
    metrics_auth_option,
)
from dovetail.cli.webhook_options import WebhookAsked, webhook_options

HAMI_METRICS = ("off", "on", "legacy")


@click.command(short_help="Schedule pods on a live Kubernetes cluster.")
@connection_options
@scheduler_names_option(
    "Pods with this spec.schedulerName are ours (default: those of the configuration, or dovetail). Repeat it."
)
@node_policy_option("Of pods with devices that name none.")
@gpu_policy_option("Of pods with devices that name none.")
@config_option("Configuration: policies, their arguments, a profile per scheduler name.")
@click.option(
    "--allow-policy",
    "allowed_policies",
    metavar="POLICY",
    multiple=True,
    shell_complete=complete_policy,
    help="Pods may name this policy, and no other that is not allowed so (default: all). Repeat it.",
)
@device_config_option()
@unknown_pod_group_option
@seal_key_option
@hami_lock_option
@click.option(
    "--node-selector",
    "nodes",
    metavar="KEY=VALUE",
    multiple=True,
    help="Place on nodes with this label only. Two Dovetails on one cluster need the same KEY with different VALUEs.",
)
@lease_options("How long the Lease holds after its last renewal; after two thirds of it its holder stops writing.")
@click.option(
    "--peer-namespace",
    "peer_namespaces",
    metavar="NAME",
    multiple=True,
    help="Give way also to older Dovetails whose Lease is in this namespace; else only in that of our own Lease.",
)
@click.option(
    "--wait-for-other-names",
    is_flag=True,
    help="Wait for the Lease even where its holder serves other scheduler names; else that is an error.",
)
@identity_option("Who we are in the Lease (default: this machine's name). No two schedulers may share one.")
@binds_at_once_option("Bindings on their way at once; fewer while the API server is throttling.")
@click.option(
    "--settle-seconds",
    type=click.FloatRange(0, 3600),
    default=30,
    show_default=True,
    help="How long a node that offers GPUs with neither a register nor feature-discovery labels is watched before its"
    " GPUs are given out: the register may be on its way.",
)
@audit_seconds_option
@listen_option("127.0.0.1:9396")
@metrics_auth_option(
    "apiserver = /metrics is for readers whose bearer token the API server knows and whom RBAC lets get it."
)
@webhook_options()
@click.option(
    "--hami-metrics",
    type=click.Choice(HAMI_METRICS),
    help="Serve the metrics of HAMi's scheduler, too; legacy = also their old names, as HAMi's --legacy-metrics."
    " (default: metrics.hami of the configuration, which is off)",
)
@click.option(
    "--no-preemption",
    is_flag=True,
    help="Stop no running pod for another one (default: preemption.enabled of the configuration).",
)
@journal_options
@log_options("The least important messages that are printed; debug has a line for each placement.")
@click.option("-v", "--verbose", is_flag=True, help="The same as --log-level debug.")
@interpreted_option
@as_live_options
def scheduler(
    live: LiveOptions,
    allowed_policies: tuple[str, ...],
    peer_namespaces: tuple[str, ...],
    wait_for_other_names: bool,
    settle_seconds: float,
    webhook: WebhookAsked,
    hami_metrics: str | None,
    no_preemption: bool,
    journal: str | None,
    journal_size: int,
    journal_days: float,
    verbose: bool,
) -> None:
    """Watch a cluster and give every pod of ours a node and the GPUs on it.

    Pods are ours by spec.schedulerName. Each is bound with one write that carries its GPUs as annotations; a pod that
    has to wait says why in its PodScheduled condition and in an event. Of several schedulers, one writes at a time
    (a Lease); the others take over when it falls silent.

    \b
    Try it without a cluster of your own:
      make cluster
    On yours:
      kubectl apply -k deploy/
      dovetail scheduler --kubeconfig ~/.kube/config --scheduler-name dovetail

    Ends on SIGTERM and Ctrl-C after what is under way. Exit codes: 0 asked to stop, 1 another one leads now or serves
    the same nodes, 2 the configuration is wrong.
    """
    with extra("live"):
        from dovetail.cli.live import run

    live = replace(
        live,
        asked=replace(live.asked, allowed_policies=allowed_policies),
        peer_namespaces=peer_namespaces,
        any_names=wait_for_other_names,
        settle_seconds=settle_seconds,
        webhook=webhook,
        hami_metrics=hami_metrics,
        preempts=not no_preemption,
        journal=(journal, journal_size, journal_days) if journal else None,
        log_level="debug" if verbose else live.log_level,
    )
    raise SystemExit(run(live))
