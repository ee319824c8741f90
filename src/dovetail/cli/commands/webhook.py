"""`dovetail webhook`: the admission webhook alone, and its configuration."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.errors import extra
from dovetail.cli.options import (
    ClusterOptions,
    config_option,
    connection_options,
    device_config_option,
    log_options,
    scheduler_names_option,
)
from dovetail.cli.output.terminal import echo
from dovetail.cli.webhook_options import WebhookAsked, webhook_options


@click.command(short_help="Run the admission webhook alone: pods with GPUs get our scheduler name and HAMi's defaults.")
@connection_options
@scheduler_names_option(
    "The name that pods with GPUs get; others of ours keep theirs (default: the configuration's, or dovetail)."
)
@config_option("The scheduler's configuration: its scheduler names and allowed policies.")
@device_config_option()
@webhook_options(listen="0.0.0.0:9443")
@click.option(
    "--print-configuration",
    is_flag=True,
    help="Print the MutatingWebhookConfiguration for these options as YAML, for kubectl apply, and end.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="",
    help="Where /metrics is served, such as 0.0.0.0:9396 (default: nowhere).",
)
@log_options()
def webhook(
    kubeconfig: str | None,
    context: str | None,
    names: tuple[str, ...],
    config: str | None,
    device_config: str | None,
    webhook: WebhookAsked,
    print_configuration: bool,
    listen: str,
    log_format: str,
    log_level: str,
) -> None:
    """Answer the API server about new pods, at HAMi's path /webhook.

    Pods with GPUs get our scheduler name, the count and the exclusive cores that HAMi fills in, and MiB for units such
    as 8Gi. A pod that could never be placed is denied, with the field and the fix. docs/webhook.md has all rules.

    `dovetail scheduler --webhook-listen` serves the same beside the scheduler, which also knows nodes and quotas.

    \b
    Examples:
      dovetail webhook --webhook-cert-file tls.crt --webhook-key-file tls.key
      dovetail webhook --webhook-secret kube-system/dovetail-webhook-tls
      dovetail webhook --print-configuration --device-config device-config.yaml

    Ends on SIGTERM and Ctrl-C after what is under way. Exit codes: 0 asked to stop, 2 the options are wrong.
    """
    with extra("live"):
        from dovetail.cli.webhook import AloneOptions, check_names, configuration_text, run_alone

    check_names(webhook, names)
    asked = ClusterOptions(config=config, device_config=device_config)
    if print_configuration:
        echo(configuration_text(asked, webhook))
        return
    raise SystemExit(
        run_alone(
            AloneOptions(
                asked=asked,
                webhook=webhook,
                names=names,
                kubeconfig=Path(kubeconfig) if kubeconfig else None,
                context=context,
                json_logs=log_format == "json",
                log_level=log_level,
                listen=listen,
            )
        )
    )
