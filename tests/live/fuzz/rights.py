"""Who attacks, and with which rights: ServiceAccounts with tokens of the API server, and RBAC that allows just that."""

from __future__ import annotations

from tools.controlplane.client import Client, Object

RBAC = "rbac.authorization.k8s.io"
HOME = "kube-system"  # where the accounts of nodes live; tenants live in their own namespaces
TOKEN_SECONDS = 6 * 3600


def tenant(api: Client, namespace: str) -> str:
    """The token of a new tenant: pods and PodGroups of its namespace, and nothing else."""
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    verbs = ["create", "patch", "delete", "get"]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": verbs},
        {"apiGroups": ["scheduling.x-k8s.io"], "resources": ["podgroups"], "verbs": verbs},
    ]
    meta = {"name": "tenant", "namespace": namespace}
    api.create({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    api.create(_binding("Role", meta, "tenant", namespace))
    return _token(api, "tenant", namespace)


def node(api: Client, name: str) -> str:
    """The token of a node: its own Node object and that one's status."""
    named = {"apiGroups": [""], "resourceNames": [name], "verbs": ["get", "patch"]}
    rules = [{**named, "resources": ["nodes"]}, {**named, "resources": ["nodes/status"]}]
    meta = {"name": f"node-{name}"}
    api.create({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules})
    api.create(_binding("ClusterRole", meta, f"node-{name}", HOME))
    return _token(api, f"node-{name}", HOME)


def _binding(kind: str, meta: Object, account: str, namespace: str) -> Object:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    to = {"apiGroup": RBAC, "kind": kind, "name": meta["name"]}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": meta,
        "roleRef": to,
        "subjects": [subject],
    }


def _token(api: Client, account: str, namespace: str) -> str:
    meta = {"name": account, "namespace": namespace}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    said = api.ask("POST", path, {**wanted, "spec": {"expirationSeconds": TOKEN_SECONDS}})
    return str(said["status"]["token"])
