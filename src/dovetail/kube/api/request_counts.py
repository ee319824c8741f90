"""Counts of requests to the API server by verb, resource and code, and how long the answers took.

All three labels have few values, whatever the cluster contains: resources that Dovetail does not use are `other`, and
so are rare codes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dovetail.kube.histogram import Histogram

ANSWER_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OTHER = "other"
NO_ANSWER = "none"  # the code of a request that got no answer
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
CODES = frozenset((200, 201, 202, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504))
RESOURCES = frozenset(
    (
        *("pods", "pods/binding", "pods/status", "pods/eviction", "nodes", "namespaces", "events", "leases"),
        *("nodes/status", "priorityclasses", "poddisruptionbudgets", "resourcequotas", "limitranges", "services"),
        *("replicationcontrollers", "replicasets", "statefulsets", "storageclasses", "volumeattachments"),
        *("persistentvolumes", "persistentvolumeclaims", "persistentvolumeclaims/status", "persistentvolumes/status"),
        *("csinodes", "csidrivers", "csistoragecapacities", "podgroups", "podgroups/status", "hypernodes"),
        *("elasticquotas", "elasticquotas/status", "queues", "queues/status", "workloads", "workloads/status"),
        *("tokenreviews", "subjectaccessreviews", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
    )
)


class RequestCounts:
    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, str]] = Counter()  # verb, resource, code
        self.seconds: dict[tuple[str, ...], Histogram] = {}  # (verb,) -> seconds until the answer began

    def note(self, method: str, path: str, params: Mapping[str, str] | None, code: int, seconds: float) -> None:
        """Count one request. `code` 0: no answer came."""
        resource, is_one = resource_of(path)
        verb = VERBS.get(method) or ("watch" if params and "watch" in params else "get" if is_one else "list")
        self.answers[(verb, resource, _code(code))] += 1
        histogram = self.seconds.get((verb,))
        if histogram is None:
            histogram = self.seconds[(verb,)] = Histogram(ANSWER_SECONDS)
        histogram.observe(seconds)


def resource_of(path: str) -> tuple[str, bool]:
    """The resource with its subresource (`pods/binding`), and whether the path names one object."""
    parts = path.split("/")
    at = 3 if parts[1] == "api" else 4
    if len(parts) > at + 2 and parts[at] == "namespaces":
        at += 2
    if len(parts) <= at:
        return OTHER, True
    resource = f"{parts[at]}/{parts[at + 2]}" if len(parts) > at + 2 else parts[at]
    return resource if resource in RESOURCES else OTHER, len(parts) > at + 1


def _code(code: int) -> str:
    return NO_ANSWER if code == 0 else str(code) if code in CODES else OTHER
