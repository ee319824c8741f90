"""Services and controllers that select the oracle's pods, and which pods they are said to have made.

They are there before kube-scheduler starts: informers of other kinds than pods may lag behind.
"""

from __future__ import annotations

from random import Random
from typing import Any

Object = dict[str, Any]
TEMPLATE_SPEC = {"containers": [{"name": "main", "image": "x"}]}


def _service(name: str, namespace: str, selector: Object) -> Object:
    meta = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"clusterIP": "None", "selector": selector},
    }


def _controller(kind: str, name: str, namespace: str, labels: Object, selector: Object) -> Object:
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    spec = {"replicas": 0, "selector": selector, "template": {"metadata": {"labels": labels}, "spec": TEMPLATE_SPEC}}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


ONE_TIER = {"matchLabels": {"tier": "1"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}
SELECTING = [
    _service("p", "blue", {"app": "p"}),
    _service("first", "blue", {"tier": "1"}),
    _service("q", "green", {"app": "q"}),
    _service("nothing", "green", {"app": "none"}),
    _controller("ReplicaSet", "set", "blue", {"app": "q"}, {"matchLabels": {"app": "q"}}),
    _controller("StatefulSet", "state", "bare", {"tier": "1"}, ONE_TIER),
    _controller("ReplicationController", "old", "green", {"tier": "2"}, {"tier": "2"}),
]


def owned(chance: Random, pod: Object) -> Object:
    """The pod, perhaps as one that a controller of its namespace made."""
    meta = pod["metadata"]
    makers = [item for item in SELECTING if item["kind"] != "Service"]
    makers = [item for item in makers if item["metadata"]["namespace"] == meta["namespace"]]
    if not makers or chance.random() < 0.3:
        return pod
    by = chance.choice(makers)
    name = by["metadata"]["name"]
    reference = {"apiVersion": by["apiVersion"], "kind": by["kind"], "name": name, "uid": name, "controller": True}
    return {**pod, "metadata": {**meta, "ownerReferences": [reference]}}
