"""The CustomResourceDefinitions of PodGroups of several projects, with the fields that schedulers read."""

from __future__ import annotations

from tools.controlplane.client import ApiError, Client, Object

# API group -> version
KINDS = {
    "scheduling.x-k8s.io": "v1alpha1",  # kubernetes-sigs/scheduler-plugins
    "scheduling.sigs.k8s.io": "v1alpha1",  # its name until 0.24, and Koordinator's
    "scheduling.volcano.sh": "v1beta1",  # Volcano
}
APPROVED = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"  # groups of *.k8s.io must name a review


def definition(group: str, version: str) -> Object:
    minimum = {"type": "integer", "format": "int32", "minimum": 1}
    spec = {
        "type": "object",
        "properties": {"minMember": minimum},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}", "annotations": {"api-approved.kubernetes.io": APPROVED}},
        "spec": {
            "group": group,
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "scope": "Namespaced",
            "versions": [served],
        },
    }


def install(client: Client) -> None:
    """Create the definitions, and return when all of them are served."""
    for group, version in KINDS.items():
        try:
            client.create(definition(group, version))
        except ApiError as error:
            if error.status != 409:  # it exists already
                raise
    for group, version in KINDS.items():
        path = f"/apis/{group}/{version}/podgroups"
        client.wait_until(lambda path=path: client.request("GET", path)[0] == 200, f"{path} is served", 30)  # type: ignore[misc]
