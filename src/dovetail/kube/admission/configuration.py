"""The MutatingWebhookConfiguration: which pods the API server asks about, and what it does while no webhook answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dovetail.kube.conversion.settings import IGNORE, WEBHOOK
from dovetail.kube.conversion.vendors import Vendors

CONFIGURATION_KIND = "MutatingWebhookConfiguration"
CONFIGURATIONS_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
REVIEWED_NAME = "pods.dovetail.dev"
TIMEOUT_SECONDS = 5
LISTS = ("containers", "initContainers")


def resource_domains(vendors: Vendors) -> list[str]:
    """The domains of resources whose pods the webhook must see: of HAMi's vendors, without plugins of other systems.

    The whole domain, so that a misspelt name is seen, too.
    """
    names = (name for row in vendors.rows if not row.plugin for name in (row.count, *row.shares) if "/" in name)
    return sorted({name.partition("/")[0] for name in names})


def gpu_condition(vendors: Vendors) -> str:
    """A CEL expression that holds for pods with a resource of one of these domains.

    Limits are enough: the API server accepts no extended resource in requests alone.
    """
    domains = ", ".join(f"'{domain}/'" for domain in resource_domains(vendors))
    limits = f"has(c.resources.limits) && c.resources.limits.exists(k, [{domains}].exists(d, k.startsWith(d)))"
    each = f"c, has(c.resources) && {limits}"
    lists = [f"has(object.spec.{name}) && object.spec.{name}.exists({each})" for name in LISTS]
    return " || ".join(f"({one})" for one in lists)


def webhook_configuration(
    name: str,
    client: dict[str, Any],
    vendors: Vendors,
    *,
    exempt_namespaces: Iterable[str] = ("kube-system",),
    failure_policy: str = "Fail",
) -> dict[str, Any]:
    """The object. `client`: the service, or the URL, with or without a caBundle."""
    ignored = {"key": WEBHOOK, "operator": "NotIn", "values": [IGNORE]}
    named = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": sorted(exempt_namespaces)}
    webhook = {
        "name": REVIEWED_NAME,
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "failurePolicy": failure_policy,
        "reinvocationPolicy": "IfNeeded",
        "matchPolicy": "Equivalent",
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {"matchExpressions": [named, ignored]},
        "objectSelector": {"matchExpressions": [ignored]},
        "matchConditions": [{"name": "asks-for-gpus", "expression": gpu_condition(vendors)}],
        "clientConfig": client,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": CONFIGURATION_KIND,
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


def bundle_patch(webhooks: Sequence[dict[str, Any]], wanted: Callable[[str], str]) -> list[dict[str, Any]]:
    """The operations that write the bundles (base64) where they differ; a webhook's name is tested first.

    `wanted`: the bundle for a webhook that has this one.
    """
    operations: list[dict[str, Any]] = []
    for number, webhook in enumerate(webhooks):
        current = webhook.get("clientConfig", {}).get("caBundle") or ""
        bundle = wanted(current)
        if bundle != current:
            at = f"/webhooks/{number}"
            operations.append({"op": "test", "path": f"{at}/name", "value": webhook.get("name")})
            operations.append({"op": "add", "path": f"{at}/clientConfig/caBundle", "value": bundle})
    return operations
