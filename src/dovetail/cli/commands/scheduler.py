"""`dovetail scheduler`: runs the scheduler on a live cluster."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.errors import Refused
from dovetail.cli.options import (
    ClusterOptions,
    complete_policy,
    connection_options,
    journal_options,
    seal_key_option,
    unknown_pod_group_option,
)
from dovetail.cli.webhook_options import WebhookAsked, webhook_options

LOCKS = ("auto", "always", "never")
METRICS_AUTH = ("none", "apiserver")
HAMI_METRICS = ("off", "on", "legacy")
LOG_LEVELS = ("debug", "info", "warning", "error")


@click.command(short_help="Schedule pods on a live Kubernetes cluster.")
@connection_options
@click.option(
    "--scheduler-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="Pods with this spec.schedulerName are ours (default: those of the configuration, or dovetail). Repeat it.",
)
@click.option(
    "--node-policy", metavar="POLICY", shell_complete=complete_policy, help="Of pods with devices that name none."
)
@click.option(
    "--gpu-policy",
    metavar="POLICY[,POLICY]",
    shell_complete=complete_policy,
    help="Of pods with devices that name none.",
)
@click.option(
    "--config",
    envvar="DOVETAIL_CONFIG",
    show_envvar=True,
    metavar="FILE",
    type=click.Path(),
    help="Configuration: policies, their arguments, a profile per scheduler name.",
)
@click.option(
    "--allow-policy",
    "allowed_policies",
    metavar="POLICY",
    multiple=True,
    shell_complete=complete_policy,
    help="Pods may name this policy, and no other that is not allowed so (default: all). Repeat it.",
)
@click.option("--device-config", metavar="FILE", type=click.Path(), help="HAMi's device-config.yaml.")
@unknown_pod_group_option
@seal_key_option
@click.option(
    "--hami-lock",
    type=click.Choice(LOCKS),
    default="auto",
    show_default=True,
    help="Keep HAMi's node lock: auto = on nodes whose HAMi device plugin has shaken hands.",
)
@click.option(
    "--node-selector",
    "nodes",
    metavar="KEY=VALUE",
    multiple=True,
    help="Place on nodes with this label only. Two Dovetails on one cluster need the same KEY with different VALUEs.",
)
@click.option("--lease-namespace", metavar="NAME", default="kube-system", show_default=True, help="Where the Lease is.")
@click.option("--lease-name", metavar="NAME", default="dovetail-scheduler", show_default=True, help="The Lease.")
@click.option(
    "--lease-seconds",
    type=click.IntRange(2, 600),
    default=15,
    show_default=True,
    help="How long the Lease holds after its last renewal; after two thirds of it its holder stops writing.",
)
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
@click.option(
    "--identity",
    envvar="POD_NAME",
    show_envvar=True,
    metavar="NAME",
    help="Who we are in the Lease (default: this machine's name). No two schedulers may share one.",
)
@click.option(
    "--binds-at-once",
    type=click.IntRange(1, 1024),
    default=64,
    show_default=True,
    help="Bindings on their way at once; fewer while the API server is throttling.",
)
@click.option(
    "--settle-seconds",
    type=click.FloatRange(0, 3600),
    default=30,
    show_default=True,
    help="How long a node that offers GPUs with neither a register nor feature-discovery labels is watched before its"
    " GPUs are given out: the register may be on its way.",
)
@click.option(
    "--audit-seconds",
    type=click.FloatRange(0, 86_400),
    default=60,
    show_default=True,
    help="Seconds between two comparisons of the ledger with itself and with the cluster; 0 = only after faults.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9396",
    show_default=True,
    help="Where /healthz, /readyz and /metrics are served; empty = nowhere.",
)
@click.option(
    "--metrics-auth",
    type=click.Choice(METRICS_AUTH),
    default="none",
    show_default=True,
    help="apiserver = /metrics is for readers whose bearer token the API server knows and whom RBAC lets get it.",
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
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="On stderr.")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="The least important messages that are printed; debug has a line for each placement.",
)
@click.option("-v", "--verbose", is_flag=True, help="The same as --log-level debug.")
@click.option("--interpreted", is_flag=True, help="Do not compile kernels: starts at once, fine for a few dozen nodes.")
def scheduler(
    kubeconfig: str | None,
    context: str | None,
    names: tuple[str, ...],
    node_policy: str | None,
    gpu_policy: str | None,
    config: str | None,
    allowed_policies: tuple[str, ...],
    device_config: str | None,
    unknown_pod_group: str | None,
    seal_key_file: str | None,
    hami_lock: str,
    nodes: tuple[str, ...],
    lease_namespace: str,
    lease_name: str,
    lease_seconds: int,
    peer_namespaces: tuple[str, ...],
    wait_for_other_names: bool,
    identity: str | None,
    binds_at_once: int,
    settle_seconds: float,
    audit_seconds: float,
    listen: str,
    metrics_auth: str,
    webhook: WebhookAsked,
    hami_metrics: str | None,
    no_preemption: bool,
    journal: str | None,
    journal_size: int,
    journal_days: float,
    log_format: str,
    log_level: str,
    verbose: bool,
    interpreted: bool,
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
    try:
        from dovetail.cli.live import LiveOptions, run
    except ModuleNotFoundError as error:
        raise Refused(f"{error.name} is not installed: pip install 'dovetail[live]'") from error

    asked = ClusterOptions(
        node_policy=node_policy,
        gpu_policy=gpu_policy,
        config=config,
        device_config=device_config,
        unknown_pod_group=unknown_pod_group,
        allowed_policies=allowed_policies,
    )
    raise SystemExit(
        run(
            LiveOptions(
                asked=asked,
                names=names,
                kubeconfig=Path(kubeconfig) if kubeconfig else None,
                context=context,
                hami_lock=hami_lock,
                lease=(lease_namespace, lease_name),
                lease_seconds=lease_seconds,
                nodes=nodes,
                peer_namespaces=peer_namespaces,
                any_names=wait_for_other_names,
                seal_key_file=seal_key_file,
                identity=identity,
                binds_at_once=binds_at_once,
                settle_seconds=settle_seconds,
                audit_seconds=audit_seconds,
                listen=listen,
                metrics_auth=metrics_auth,
                webhook=webhook,
                hami_metrics=hami_metrics,
                preempts=not no_preemption,
                journal=(journal, journal_size, journal_days) if journal else None,
                json_logs=log_format == "json",
                log_level="debug" if verbose else log_level,
                interpreted=interpreted,
            )
        )
    )
