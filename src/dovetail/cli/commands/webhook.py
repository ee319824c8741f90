"""`dovetail webhook`: the admission webhook alone, and its configuration."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions, connection_options
from dovetail.cli.output.terminal import echo
from dovetail.cli.webhook_options import WebhookAsked, webhook_options


@click.command(short_help="Run the admission webhook alone: pods with GPUs get our scheduler name and HAMi's defaults.")
@connection_options
@click.option(
    "--scheduler-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="The name that pods with GPUs get; others of ours keep theirs (default: the configuration's, or dovetail).",
)
@click.option(
    "--config",
    envvar="DOVETAIL_CONFIG",
    show_envvar=True,
    metavar="FILE",
    type=click.Path(),
    help="The scheduler's configuration: its scheduler names and allowed policies.",
)
@click.option("--device-config", metavar="FILE", type=click.Path(), help="HAMi's device-config.yaml.")
@webhook_options(listen="0.0.0.0:9443")
@click.option(
    "--print-configuration",
    is_flag=True,
    help="Print the MutatingWebhookConfiguration for these options as YAML, for kubectl apply, and end.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="On stderr.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least important messages that are printed.",
)
def webhook(
    kubeconfig: str | None,
    context: str | None,
    names: tuple[str, ...],
    config: str | None,
    device_config: str | None,
    webhook: WebhookAsked,
    print_configuration: bool,
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
    try:
        from dovetail.cli.webhook import AloneOptions, configuration_text, run_alone
    except ModuleNotFoundError as error:
        raise Refused(f"{error.name} is not installed: pip install 'dovetail[live]'") from error

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
            )
        )
    )
