"""The rights of the user `dovetail`: exactly those of the shipped manifests, so that tests find missing rights."""

from __future__ import annotations

from pathlib import Path

import yaml

from tools.controlplane.client import ApiError, Client, Object

DEPLOY = Path(__file__).parent.parent.parent / "deploy"


def component(name: str) -> Path:
    """The objects of one of the components in deploy/optional."""
    return DEPLOY / "optional" / name / "objects.yaml"


ROLES = (DEPLOY / "rbac.yaml", component("hami-lock"))
SHIPPED = (*ROLES, DEPLOY / "admission-policy.yaml")  # all manifests about rights, as they are shipped
USER = {"kind": "ServiceAccount", "name": "dovetail-scheduler", "namespace": "kube-system"}  # a subject of bindings


def grant_dovetail(client: Client, *manifests: Path) -> None:
    """Create the objects of the manifests (default: SHIPPED), unchanged.

    The user `dovetail` is their ServiceAccount.
    """
    _create(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    for manifest in manifests or SHIPPED:
        for item in yaml.safe_load_all(manifest.read_text(encoding="utf-8")):
            if item:
                _create(client, item)


def _create(client: Client, item: Object) -> None:
    try:
        client.create(item)
    except ApiError as error:
        if error.status != 409:  # it exists already
            raise
