"""Options that `dovetail scheduler` and `dovetail extender` share. Nothing heavy is imported: --help must be fast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import click

from dovetail.cli.options import ClusterOptions, Option, together
from dovetail.cli.webhook_options import WebhookAsked

DEFAULT_NAME = "dovetail"
LOCKS = ("auto", "always", "never")
METRICS_AUTH = ("none", "apiserver")


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The options of the command line. The first part is from options that both commands have."""

    asked: ClusterOptions
    names: tuple[str, ...]
    kubeconfig: Path | None
    context: str | None
    hami_lock: str
    nodes: tuple[str, ...]
    lease: tuple[str, str]  # namespace, name
    lease_seconds: int
    seal_key_file: str | None
    identity: str | None
    binds_at_once: int
    audit_seconds: float
    listen: str
    metrics_auth: str
    json_logs: bool
    log_level: str
    interpreted: bool

    default_name: str = DEFAULT_NAME  # where neither `names` nor the configuration name a scheduler
    peer_namespaces: tuple[str, ...] = ()
    any_names: bool = False
    settle_seconds: float = 30.0
    webhook: WebhookAsked = field(default_factory=WebhookAsked)
    hami_metrics: str | None = None  # None: as the configuration says
    preempts: bool = True
    journal: tuple[str, int, float] | None = None  # folder, MiB, days
    hami_lock_seconds: float | None = None  # None: as HAMi
    api_seconds: float = 30.0  # for one request to the API server


_CLUSTER = ("node_policy", "gpu_policy", "config", "device_config", "unknown_pod_group")
_SAME_NAME = (  # of the parameter and of the field
    "names",
    "context",
    "hami_lock",
    "nodes",
    "lease_seconds",
    "seal_key_file",
    "identity",
    "binds_at_once",
    "audit_seconds",
    "listen",
    "metrics_auth",
    "log_level",
    "interpreted",
)


def as_live_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hand the options that both commands have to the command as one argument, `live`."""

    @wraps(function)
    def command(**given: Any) -> Any:
        kubeconfig = given.pop("kubeconfig")
        live = LiveOptions(
            asked=ClusterOptions(**{name: given.pop(name) for name in _CLUSTER}),
            kubeconfig=Path(kubeconfig) if kubeconfig else None,
            lease=(given.pop("lease_namespace"), given.pop("lease_name")),
            json_logs=given.pop("log_format") == "json",
            **{name: given.pop(name) for name in _SAME_NAME},
        )
        return function(live=live, **given)

    return command


# The options of both commands. Where the help differs, the command says it.

hami_lock_option = click.option(
    "--hami-lock",
    type=click.Choice(LOCKS),
    default="auto",
    show_default=True,
    help="Keep HAMi's node lock: auto = on nodes whose HAMi device plugin has shaken hands.",
)


def lease_options(seconds: str) -> Option:
    return together(
        click.option(
            "--lease-namespace", metavar="NAME", default="kube-system", show_default=True, help="Where the Lease is."
        ),
        click.option(
            "--lease-name", metavar="NAME", default="dovetail-scheduler", show_default=True, help="The Lease."
        ),
        click.option("--lease-seconds", type=click.IntRange(2, 600), default=15, show_default=True, help=seconds),
    )


def identity_option(text: str) -> Option:
    return click.option("--identity", envvar="POD_NAME", show_envvar=True, metavar="NAME", help=text)


def binds_at_once_option(text: str) -> Option:
    return click.option("--binds-at-once", type=click.IntRange(1, 1024), default=64, show_default=True, help=text)


audit_seconds_option = click.option(
    "--audit-seconds",
    type=click.FloatRange(0, 86_400),
    default=60,
    show_default=True,
    help="Seconds between two comparisons of the ledger with itself and with the cluster; 0 = only after faults.",
)


def listen_option(default: str, *aliases: str) -> Option:
    return click.option(
        *aliases,
        "--listen",
        "listen",
        metavar="HOST:PORT",
        default=default,
        show_default=True,
        help="Where /healthz, /readyz and /metrics are served; empty = nowhere.",
    )


def metrics_auth_option(text: str) -> Option:
    return click.option("--metrics-auth", type=click.Choice(METRICS_AUTH), default="none", show_default=True, help=text)


interpreted_option = click.option(
    "--interpreted", is_flag=True, help="Do not compile kernels: starts at once, fine for a few dozen nodes."
)
