"""The options of the admission webhook, for `dovetail scheduler` and `dovetail webhook`. Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from dovetail.cli.options import together

Function = Callable[..., Any]
DEFAULT_WEBHOOK_NAME = "dovetail-webhook"


@dataclass(frozen=True, slots=True)
class WebhookAsked:
    """The options of the command line."""

    webhook_listen: str = ""
    cert_file: str | None = None
    key_file: str | None = None
    webhook_secret: str = ""
    webhook_service: str = DEFAULT_WEBHOOK_NAME
    webhook_configuration: str = DEFAULT_WEBHOOK_NAME
    force_overwrite_default_scheduler: bool = True
    webhook_strict: bool = False
    exempt_namespaces: tuple[str, ...] = ("kube-system",)

    @property
    def left_alone(self) -> frozenset[str]:
        """Namespaces whose pods are left as they are: also the webhook's own, so that its pods can always start."""
        own = self.webhook_secret.partition("/")[0]
        return frozenset((*self.exempt_namespaces, *((own,) if own else ())))


_SERVING = (
    click.option(
        "--webhook-cert-file",
        "--cert_file",
        "cert_file",
        metavar="FILE",
        type=click.Path(),
        help="The webhook's certificate chain (PEM). Read again when it changes.",
    ),
    click.option(
        "--webhook-key-file",
        "--key_file",
        "key_file",
        metavar="FILE",
        type=click.Path(),
        help="The certificate's private key (PEM).",
    ),
    click.option(
        "--webhook-secret",
        metavar="NAMESPACE/NAME",
        default="",
        help="Instead of files: make and renew the certificate, share it through this Secret, and write its authority"
        " into the configuration.",
    ),
    click.option(
        "--webhook-service",
        metavar="NAME",
        default=DEFAULT_WEBHOOK_NAME,
        show_default=True,
        help="The Service in the Secret's namespace: the certificate is for NAME.NAMESPACE.svc.",
    ),
    click.option(
        "--webhook-configuration",
        metavar="NAME",
        default=DEFAULT_WEBHOOK_NAME,
        show_default=True,
        help="The MutatingWebhookConfiguration that gets the authority; empty = none.",
    ),
    click.option(
        "--force-overwrite-default-scheduler",
        type=bool,
        metavar="BOOLEAN",
        default=True,
        show_default=True,
        help="Pods with GPUs that name default-scheduler, or none, get our scheduler name (HAMi's flag).",
    ),
    click.option(
        "--webhook-strict",
        is_flag=True,
        help="Deny pods for what else is a warning: misspelt names, requests that no node could take.",
    ),
    click.option(
        "--webhook-exempt-namespace",
        "exempt_namespaces",
        metavar="NAME",
        multiple=True,
        default=("kube-system",),
        show_default=True,
        help="Leave pods of this namespace as they are. Repeat it.",
    ),
)


def webhook_options(listen: str = "") -> Callable[[Function], Function]:
    """Add the options; the command gets them as one argument, `webhook`. `listen`: the default; "" = do not serve."""

    def add(function: Function) -> Function:
        @wraps(function)
        def command(*args: Any, **kwargs: Any) -> Any:
            given = {name: kwargs.pop(name) for name in WebhookAsked.__dataclass_fields__}
            return function(*args, webhook=WebhookAsked(**given), **kwargs)

        return together(
            click.option(
                "--webhook-listen",
                metavar="HOST:PORT",
                default=listen,
                show_default=bool(listen),
                help="Where the admission webhook is served, such as 0.0.0.0:9443"
                + ("." if listen else " (default: not at all). Needs a certificate."),
            ),
            *_SERVING,
        )(command)

    return add
