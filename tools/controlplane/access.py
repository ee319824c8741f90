"""What the user `dovetail` may do: just what the shipped roles allow, so that tests notice what these forget."""

from __future__ import annotations

from pathlib import Path

import yaml

from tools.controlplane.client import ApiError, Client, Object

SHIPPED = Path(__file__).parent.parent.parent / "deploy" / "rbac.yaml"
USER = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dovetail"}


def grant_dovetail(client: Client, manifest: Path = SHIPPED) -> None:
    """Creates what the manifest says, with the user `dovetail` beside the subjects of each of its bindings."""
    if not manifest.exists():
        _create(client, _binding_to("cluster-admin"))
        return
    for item in yaml.safe_load_all(manifest.read_text(encoding="utf-8")):
        if not item:
            continue
        namespace = item["metadata"].get("namespace")
        if namespace:
            _create(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        if item["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            item["subjects"] = [*item.get("subjects", []), USER]
        _create(client, item)


def _binding_to(role: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"dovetail-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [USER],
    }


def _create(client: Client, item: Object) -> None:
    try:
        client.create(item)
    except ApiError as error:
        if error.status != 409:  # it is there already
            raise
