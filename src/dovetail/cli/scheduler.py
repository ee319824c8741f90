"""`dovetail scheduler`: the engine on a live cluster."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.errors import Refused
from dovetail.cli.options import Asked, complete_policy

LOCKS = ("auto", "always", "never")


@click.command(short_help="Schedule pods on a live Kubernetes cluster.")
@click.option(
    "--kubeconfig", metavar="FILE", type=click.Path(), help="Default: $KUBECONFIG, in-cluster, ~/.kube/config."
)
@click.option("--context", metavar="NAME", help="A context of the kubeconfig other than the current one.")
@click.option(
    "--scheduler-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="Pods with this spec.schedulerName are ours (default: those of the configuration, or dovetail). Repeat it.",
)
@click.option("--node-policy", metavar="POLICY", shell_complete=complete_policy, help="Of pods that name none.")
@click.option("--gpu-policy", metavar="POLICY[,POLICY]", shell_complete=complete_policy, help="Of pods that name none.")
@click.option(
    "--config",
    envvar="DOVETAIL_CONFIG",
    show_envvar=True,
    metavar="FILE",
    type=click.Path(),
    help="Configuration: policies, their arguments, a profile per scheduler name.",
)
@click.option("--device-config", metavar="FILE", type=click.Path(), help="HAMi's device-config.yaml.")
@click.option(
    "--hami-lock",
    type=click.Choice(LOCKS),
    default="auto",
    show_default=True,
    help="Keep HAMi's node lock: auto = on nodes whose HAMi device plugin has shaken hands.",
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
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9396",
    show_default=True,
    help="Where /healthz, /readyz and /metrics are served; empty = nowhere.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="On stderr.")
@click.option("--interpreted", is_flag=True, help="Do not compile kernels: starts at once, fine for a few dozen nodes.")
def scheduler(
    kubeconfig: str | None,
    context: str | None,
    names: tuple[str, ...],
    node_policy: str | None,
    gpu_policy: str | None,
    config: str | None,
    device_config: str | None,
    hami_lock: str,
    lease_namespace: str,
    lease_name: str,
    lease_seconds: int,
    identity: str | None,
    binds_at_once: int,
    listen: str,
    log_format: str,
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
      kubectl apply -f deploy/
      dovetail scheduler --kubeconfig ~/.kube/config --scheduler-name dovetail

    Ends on SIGTERM and Ctrl-C after what is under way. Exit codes: 0 asked to stop, 1 another one leads now,
    2 the configuration is wrong.
    """
    try:
        from dovetail.cli.live import Run, run
    except ModuleNotFoundError as error:
        raise Refused(f"{error.name} is not installed: pip install 'dovetail[live]'") from error

    asked = Asked(node_policy=node_policy, gpu_policy=gpu_policy, config=config, device_config=device_config)
    raise SystemExit(
        run(
            Run(
                asked=asked,
                names=names,
                kubeconfig=Path(kubeconfig) if kubeconfig else None,
                context=context,
                hami_lock=hami_lock,
                lease=(lease_namespace, lease_name),
                lease_seconds=lease_seconds,
                identity=identity,
                binds_at_once=binds_at_once,
                listen=listen,
                json_logs=log_format == "json",
                interpreted=interpreted,
            )
        )
    )
