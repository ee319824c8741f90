"""A kubeconfig with the token of a ServiceAccount, as a pod of that account has it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from tools.controlplane.plane import ControlPlane


def kubeconfig_of_account(plane: ControlPlane, namespace: str, account: str, folder: Path) -> Path:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.client().ask("POST", path, body)["status"]["token"]
    authority = base64.b64encode(plane.authority.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": plane.url, "certificate-authority-data": authority}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(document), encoding="utf-8")
    file.chmod(0o600)
    return file
