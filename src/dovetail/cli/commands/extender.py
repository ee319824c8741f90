"""`dovetail extender`: the live scheduler behind kube-scheduler, in the place of HAMi's extender."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.commands.scheduler import LOCKS, LOG_LEVELS, METRICS_AUTH
from dovetail.cli.errors import Refused
from dovetail.cli.hami_flags import GoDuration, labels, refuse_the_rest, verbosity
from dovetail.cli.options import (
    ClusterOptions,
    complete_policy,
    connection_options,
    seal_key_option,
    unknown_pod_group_option,
)

DEBUG_FROM = 4  # klog's verbosity from which HAMi logs each placement


@click.command(short_help="Decide for a kube-scheduler, in the place of HAMi's extender.")
@connection_options
@click.option("--http_bind", metavar="HOST:PORT", default="127.0.0.1:8080", show_default=True, help="Where to serve.")
@click.option("--cert_file", metavar="FILE", type=click.Path(), help="Serve HTTPS; read again when it changes.")
@click.option("--key_file", metavar="FILE", type=click.Path(), help="The certificate's private key.")
@click.option(
    "--scheduler-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="The profile of kube-scheduler that asks (default: those of the configuration, or hami-scheduler). Repeat it.",
)
@click.option(
    "--node-scheduler-policy",
    "--node-policy",
    "node_policy",
    metavar="POLICY",
    shell_complete=complete_policy,
    help="Of pods with devices that name none.",
)
@click.option(
    "--gpu-scheduler-policy",
    "--gpu-policy",
    "gpu_policy",
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
    "--device-config-file",
    "--device-config",
    "device_config",
    metavar="FILE",
    type=click.Path(),
    help="HAMi's device-config.yaml.",
)
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
    "--node-lock-timeout",
    type=GoDuration(),
    default="5m",
    show_default=True,
    envvar="HAMI_NODELOCK_EXPIRE",
    show_envvar=True,
    help="A node lock that is not cleared is taken over after this time.",
)
@click.option(
    "--node-lock-retry-timeout",
    type=GoDuration(),
    default="28s",
    show_default=True,
    help="A bind is answered within this time, of which it waits for the node's lock; 0 = within a second."
    " Less than kube-scheduler's httpTimeout.",
)
@click.option(
    "--reservation-seconds",
    type=click.FloatRange(1, 3600),
    default=60,
    show_default=True,
    help="How long the cards stay reserved for a pod between filter and bind.",
)
@click.option(
    "--node-label-selector",
    "--node-selector",
    "nodes",
    metavar="KEY=VALUE[,…]",
    multiple=True,
    callback=labels,
    help="Place on nodes with these labels only.",
)
@click.option("--lease-namespace", metavar="NAME", default="kube-system", show_default=True, help="Where the Lease is.")
@click.option("--lease-name", metavar="NAME", default="dovetail-scheduler", show_default=True, help="The Lease.")
@click.option(
    "--lease-seconds",
    type=click.IntRange(2, 600),
    default=15,
    show_default=True,
    help="How long the Lease holds after its last renewal.",
)
@click.option(
    "--identity",
    envvar="POD_NAME",
    show_envvar=True,
    metavar="NAME",
    help="Who we are in the Lease (default: this machine's name).",
)
@click.option(
    "--binds-at-once",
    type=click.IntRange(1, 1024),
    default=64,
    show_default=True,
    help="Bindings on their way at once.",
)
@click.option(
    "--audit-seconds",
    type=click.FloatRange(0, 86_400),
    default=60,
    show_default=True,
    help="Seconds between two comparisons of the ledger with itself and with the cluster; 0 = only after faults.",
)
@click.option(
    "--kube-timeout",
    type=GoDuration(),
    default="30s",
    show_default=True,
    help="For one request to the API server; 0 = 30s.",
)
@click.option(
    "--metrics-bind-address",
    "--listen",
    "listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9395",
    show_default=True,
    help="Where /healthz, /readyz and /metrics are served; empty = nowhere.",
)
@click.option(
    "--legacy-metrics",
    type=click.BOOL,
    is_flag=False,
    flag_value="true",
    default=False,
    help="Also HAMi's metrics under their former names; those under the present names are always there.",
)
@click.option(
    "--metrics-auth",
    type=click.Choice(METRICS_AUTH),
    default="none",
    show_default=True,
    help="apiserver = /metrics is for readers whom RBAC lets get it.",
)
@click.option(
    "--preemption/--no-preemption",
    default=False,
    show_default=True,
    help="Stop pods of a lower priority for a pod that lacks cards: HAMi never does.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="On stderr.")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="The least important messages that are printed.",
)
@click.option("-v", "--v", "level", callback=verbosity, metavar="N", help="klog's verbosity; from 4 on as --debug.")
@click.option("--debug", is_flag=True, help="The same as --log-level debug.")
@click.option("--interpreted", is_flag=True, help="Do not compile kernels: starts at once, fine for a few dozen nodes.")
@refuse_the_rest
def extender(
    kubeconfig: str | None,
    context: str | None,
    http_bind: str,
    cert_file: str | None,
    key_file: str | None,
    names: tuple[str, ...],
    node_policy: str | None,
    gpu_policy: str | None,
    config: str | None,
    device_config: str | None,
    unknown_pod_group: str | None,
    seal_key_file: str | None,
    hami_lock: str,
    node_lock_timeout: float,
    node_lock_retry_timeout: float,
    reservation_seconds: float,
    nodes: tuple[str, ...],
    lease_namespace: str,
    lease_name: str,
    lease_seconds: int,
    identity: str | None,
    binds_at_once: int,
    audit_seconds: float,
    kube_timeout: float,
    listen: str,
    legacy_metrics: bool,
    metrics_auth: str,
    preemption: bool,
    log_format: str,
    log_level: str,
    level: int,
    debug: bool,
    interpreted: bool,
) -> None:
    """Answer kube-scheduler's extender calls: /filter, /prioritize, /bind, /preempt, with HAMi's paths and JSON.

    filter chooses the node and the GPUs and reserves them; bind writes both with one Binding. HAMi's flags work under
    their names; a flag that has no effect here is refused with the reason.

    \b
    For a kube-scheduler on this machine:
      dovetail extender --kubeconfig ~/.kube/config --http_bind 127.0.0.1:8080
    In a cluster with HAMi's chart:
      kubectl apply -f deploy/optional/extender/objects.yaml

    Ends on SIGTERM and Ctrl-C after what is under way. Exit codes: 0 asked to stop, 1 another one leads now, 2 the
    configuration is wrong.
    """
    try:
        from dovetail.cli.extender import ServingOptions, run
        from dovetail.cli.live import LiveOptions
        from dovetail.kube.extender.extender import ExtenderOptions
    except ModuleNotFoundError as error:
        raise Refused(f"{error.name} is not installed: pip install 'dovetail[live]'") from error

    asked = ClusterOptions(
        node_policy=node_policy,
        gpu_policy=gpu_policy,
        config=config,
        device_config=device_config,
        unknown_pod_group=unknown_pod_group,
    )
    live = LiveOptions(
        asked=asked,
        names=names,
        default_name="hami-scheduler",
        kubeconfig=Path(kubeconfig) if kubeconfig else None,
        context=context,
        hami_lock=hami_lock,
        hami_lock_seconds=node_lock_timeout,
        lease=(lease_namespace, lease_name),
        lease_seconds=lease_seconds,
        nodes=nodes,
        seal_key_file=seal_key_file,
        identity=identity,
        binds_at_once=binds_at_once,
        audit_seconds=audit_seconds,
        api_seconds=kube_timeout or 30.0,
        listen=listen if not listen.startswith(":") else f"0.0.0.0{listen}",
        hami_metrics="legacy" if legacy_metrics else "on",
        metrics_auth=metrics_auth,
        preempts=preemption,
        json_logs=log_format == "json",
        log_level="debug" if debug or level >= DEBUG_FROM else log_level,
        interpreted=interpreted,
    )
    serving = ServingOptions(http_bind, cert_file, key_file)
    raise SystemExit(run(live, serving, ExtenderOptions(reservation_seconds, max(1.0, node_lock_retry_timeout))))
