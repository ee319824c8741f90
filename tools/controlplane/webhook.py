"""The admission webhook on loopback: the rights of deploy/optional/webhook/objects.yaml, and a configuration with URLs.

The API server runs outside the cluster's network, so a Service would not reach the webhook.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import yaml

from dovetail.kube.admission.configuration import webhook_configuration
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from tools.controlplane.access import component, grant_dovetail
from tools.controlplane.client import Client, Object

SECRET = "kube-system/dovetail-webhook-tls"
NAME = "dovetail-webhook"
RIGHTS = ("Secret", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


def shipped(name: str = "webhook") -> list[Object]:
    """The objects of the component that has the scheduler serve it, or of webhook-alone."""
    return [item for item in yaml.safe_load_all(component(name).read_text(encoding="utf-8")) if item]


def grant_webhook(client: Client) -> None:
    """Create the Secret and the rights of the component, unchanged."""
    grant_dovetail(client)
    for item in shipped():
        if item["kind"] in RIGHTS and client.find(item["kind"], item["metadata"]["name"], _namespace(item)) is None:
            client.create(item)


def _namespace(item: Object) -> str:
    return str(item["metadata"].get("namespace", ""))


def configuration(
    ports: Sequence[int], authority: bytes | None = None, *, host: str = "127.0.0.1", failure_policy: str = "Fail"
) -> Object:
    """The configuration, with one webhook for each port. `authority`: PEM; None = Dovetail writes its own."""
    webhooks = []
    for number, port in enumerate(ports, 1):
        bundle = {} if authority is None else {"caBundle": base64.b64encode(authority).decode()}
        client = {"url": f"https://{host}:{port}/webhook", **bundle}
        made = webhook_configuration(NAME, client, DEFAULT_VENDORS, failure_policy=failure_policy)
        webhooks.append({**made["webhooks"][0], "name": f"pods-{number}.dovetail.dev"})
    return {**made, "webhooks": webhooks}
