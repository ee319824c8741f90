"""`dovetail extender`: the live scheduler behind kube-scheduler, in the place of HAMi's extender."""

from __future__ import annotations

from dataclasses import replace

import click

from dovetail.cli.errors import extra
from dovetail.cli.hami_flags import GoDuration, labels, refuse_the_rest, verbosity
from dovetail.cli.options import (
    config_option,
    connection_options,
    device_config_option,
    gpu_policy_option,
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

DEBUG_FROM = 4  # klog's verbosity from which HAMi logs each placement


@click.command(short_help="Decide for a kube-scheduler, in the place of HAMi's extender.")
@connection_options
@click.option("--http_bind", metavar="HOST:PORT", default="127.0.0.1:8080", show_default=True, help="Where to serve.")
@click.option("--cert_file", metavar="FILE", type=click.Path(), help="Serve HTTPS; read again when it changes.")
@click.option("--key_file", metavar="FILE", type=click.Path(), help="The certificate's private key.")
@scheduler_names_option(
    "The profile of kube-scheduler that asks (default: those of the configuration, or hami-scheduler). Repeat it."
)
@node_policy_option("Of pods with devices that name none.", "--node-scheduler-policy")
@gpu_policy_option("Of pods with devices that name none.", "--gpu-scheduler-policy")
@config_option("Configuration: policies, their arguments, a profile per scheduler name.")
@device_config_option("--device-config-file")
@unknown_pod_group_option
@seal_key_option
@hami_lock_option
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
@lease_options("How long the Lease holds after its last renewal.")
@identity_option("Who we are in the Lease (default: this machine's name).")
@binds_at_once_option("Bindings on their way at once.")
@audit_seconds_option
@click.option(
    "--kube-timeout",
    type=GoDuration(),
    default="30s",
    show_default=True,
    help="For one request to the API server; 0 = 30s.",
)
@listen_option("127.0.0.1:9395", "--metrics-bind-address")
@click.option(
    "--legacy-metrics",
    type=click.BOOL,
    is_flag=False,
    flag_value="true",
    default=False,
    help="Also HAMi's metrics under their former names; those under the present names are always there.",
)
@metrics_auth_option("apiserver = /metrics is for readers whom RBAC lets get it.")
@click.option(
    "--preemption/--no-preemption",
    default=False,
    show_default=True,
    help="Stop pods of a lower priority for a pod that lacks cards: HAMi never does.",
)
@log_options()
@click.option("-v", "--v", "level", callback=verbosity, metavar="N", help="klog's verbosity; from 4 on as --debug.")
@click.option("--debug", is_flag=True, help="The same as --log-level debug.")
@interpreted_option
@refuse_the_rest
@as_live_options
def extender(
    live: LiveOptions,
    http_bind: str,
    cert_file: str | None,
    key_file: str | None,
    node_lock_timeout: float,
    node_lock_retry_timeout: float,
    reservation_seconds: float,
    kube_timeout: float,
    legacy_metrics: bool,
    preemption: bool,
    level: int,
    debug: bool,
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
    with extra("live"):
        from dovetail.cli.extender import ServingOptions, run
        from dovetail.kube.extender.extender import ExtenderOptions

    live = replace(
        live,
        default_name="hami-scheduler",
        hami_lock_seconds=node_lock_timeout,
        api_seconds=kube_timeout or 30.0,
        listen=f"0.0.0.0{live.listen}" if live.listen.startswith(":") else live.listen,
        hami_metrics="legacy" if legacy_metrics else "on",
        preempts=preemption,
        log_level="debug" if debug or level >= DEBUG_FROM else live.log_level,
    )
    serving = ServingOptions(http_bind, cert_file, key_file)
    raise SystemExit(run(live, serving, ExtenderOptions(reservation_seconds, max(1.0, node_lock_retry_timeout))))
