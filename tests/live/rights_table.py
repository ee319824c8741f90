"""What must be refused, and what must be allowed: who, verb, object, why. `test_rights.py` tries each row for real.

SCHEDULER is the shipped ServiceAccount with all shipped rights, those for HAMi's lock and for the webhook included.
TENANT may create, read, change and delete pods and PodGroups in the namespace `tenant`, and nothing else. VIEWER has
the ClusterRole `dovetail-viewer`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tools.controlplane.client import MERGE, STRATEGIC, Object, path_of

SCHEDULER, TENANT, VIEWER = "scheduler", "tenant", "viewer"
JSON, JSON_PATCH = "application/json", "application/json-patch+json"
RBAC, ADMISSION = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
WAITS = path_of("Pod", "waits", "victim")  # has no node yet
RUNS = path_of("Pod", "runs", "victim")  # on node a, with GPU-a-0
OWN = path_of("Pod", "own", "tenant")
NODE = path_of("Node", "a")
CLAIM = path_of("PersistentVolumeClaim", "data", "victim")
TAKEN, FREE = path_of("PersistentVolume", "taken"), path_of("PersistentVolume", "free")
QUOTA = path_of("ResourceQuota", "quota", "tenant")
TOKEN = path_of("ServiceAccount", "dovetail-scheduler", "kube-system", "token")
LEASES = path_of("Lease", namespace="kube-system")
CERTIFICATE = path_of("Secret", "dovetail-webhook-tls", "kube-system")
SECRETS = path_of("Secret", namespace="kube-system")
WEBHOOK = path_of("MutatingWebhookConfiguration", "dovetail-webhook")
WEBHOOKS = path_of("MutatingWebhookConfiguration")


class Row(NamedTuple):
    who: str
    verb: str
    path: str
    why: str  # what would be lost if it were allowed; of what is allowed: what it is needed for
    body: Any = None
    content: str = MERGE


def notes(**changes: str | None) -> Object:
    return {"metadata": {"annotations": {name.replace("__", "/"): value for name, value in changes.items()}}}


def condition(kind: str, status: str) -> Object:
    return {"status": {"conditions": [{"type": kind, "status": status, "reason": "Forged"}]}}


def by_uid(uid: str) -> Object:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def eviction(uid: str, **options: Any) -> Object:
    how = {"preconditions": {"uid": uid}, **options}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "runs"}, "deleteOptions": how}


def lease(name: str) -> Object:
    meta = {"name": name, "namespace": "kube-system"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {"holderIdentity": "x"}}


def secret(name: str) -> Object:
    meta = {"name": name, "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"tls.crt": "x"}}


def webhook(name: str) -> Object:
    group = "admissionregistration.k8s.io/v1"
    return {"apiVersion": group, "kind": "MutatingWebhookConfiguration", "metadata": {"name": name}, "webhooks": []}


IMAGE = {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
LABEL = {"metadata": {"labels": {"app": "payments"}}}
FINALIZER = {"metadata": {"finalizers": ["example.com/never"]}}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1"}
TAINT = {"spec": {"taints": [{"key": "evil", "effect": "NoExecute"}]}}
REFERENCE = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "tenant", "name": "mine", "uid": "u-2"}
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
POD: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "made"}}
POD |= {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
REMOVE = [{"op": "remove", "path": "/metadata/annotations/hami.io~1vgpu-devices-allocated"}]

PODS = [
    Row(SCHEDULER, "PATCH", RUNS, "the image of a privileged pod is code on the node", IMAGE, STRATEGIC),
    Row(SCHEDULER, "PATCH", RUNS, "labels make a pod an endpoint of a Service", LABEL),
    Row(SCHEDULER, "DELETE", RUNS, "it must say which pod by uid"),
    Row(SCHEDULER, "DELETE", f"{RUNS}?gracePeriodSeconds=0", "no pod is killed without its grace period"),
    Row(SCHEDULER, "DELETE", path_of("Pod", namespace="victim"), "nor all at once"),
    Row(SCHEDULER, "POST", f"{RUNS}/eviction", "nor this way", {"metadata": {"name": "runs"}}, JSON),
    Row(SCHEDULER, "POST", f"{RUNS}/eviction", "nor at once", eviction("x", gracePeriodSeconds=0), JSON),
    Row(SCHEDULER, "POST", path_of("Pod", namespace="kube-system"), "a pod of its own is code on a node", POD, JSON),
    Row(SCHEDULER, "POST", f"{RUNS}/exec?command=id", "code in another tenant's pod", None, JSON),
    Row(SCHEDULER, "GET", f"{RUNS}/log", "what others print"),
    Row(SCHEDULER, "PATCH", f"{RUNS}/ephemeralcontainers", "code in another tenant's pod", IMAGE, STRATEGIC),
    Row(SCHEDULER, "PATCH", f"{RUNS}/resize", "resources of a running pod", {"spec": {"containers": []}}, STRATEGIC),
]
STATUS = [
    Row(SCHEDULER, "PATCH", f"{WAITS}/status", "labels make a pod an endpoint of a Service", LABEL),
    Row(SCHEDULER, "PATCH", f"{WAITS}/status", "a pod that is never deleted", FINALIZER),
    Row(
        SCHEDULER, "PATCH", f"{RUNS}/status", "another tenant's record of cards", notes(**{"hami.io__bind-phase": "x"})
    ),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "likewise, taken away", REMOVE, JSON_PATCH),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "what other programs read", notes(**{"example.com__x": "y"})),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "a running pod that counts as ended", {"status": {"phase": "Failed"}}),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "an address that a Service sends to", {"status": {"podIP": "10.0.0.9"}}),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "traffic to a pod", condition("Ready", "True"), STRATEGIC),
    Row(SCHEDULER, "PATCH", f"{WAITS}/status", "a disruption", condition("DisruptionTarget", "True"), STRATEGIC),
    Row(SCHEDULER, "PATCH", f"{WAITS}/status", "placed without a node", condition("PodScheduled", "True"), STRATEGIC),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "it has a node", condition("PodScheduled", "False"), STRATEGIC),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "a node kept", {"status": {"nominatedNodeName": "a"}}),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "in another name", condition("DisruptionTarget", "True"), STRATEGIC),
    Row(
        *(SCHEDULER, "PATCH", f"{RUNS}/status", "HAMi's monitor of another node"),
        {"metadata": {"labels": {"hami.io/vgpu-node": "b"}}},
    ),
]
NODES = [
    Row(SCHEDULER, "PATCH", NODE, "a taint evicts every pod of the node", TAINT),
    Row(SCHEDULER, "PATCH", NODE, "a node out of use", {"spec": {"unschedulable": True}}),
    Row(SCHEDULER, "PATCH", NODE, "labels say who may run there", {"metadata": {"labels": {"pool": "secret"}}}),
    Row(SCHEDULER, "PATCH", NODE, "the register of cards", notes(**{"hami.io__node-nvidia-register": "[]"})),
    Row(SCHEDULER, "PATCH", NODE, "a node that is never deleted", FINALIZER),
    Row(SCHEDULER, "PATCH", f"{NODE}/status", "resources", {"status": {"allocatable": {"cpu": "1k"}}}),
    Row(SCHEDULER, "GET", f"{NODE}/proxy/pods", "kubelet's own API"),
    Row(SCHEDULER, "DELETE", NODE, "pods of a node that is gone are deleted"),
]
VOLUMES = [
    Row(
        SCHEDULER,
        "PATCH",
        TAKEN,
        "another claim's data",
        {"spec": {"claimRef": REFERENCE}},
    ),
    Row(SCHEDULER, "PATCH", TAKEN, "likewise, given free", {"spec": {"claimRef": None}}),
    Row(SCHEDULER, "PATCH", FREE, "any disk", {"spec": {"storageClassName": "x"}}),
    Row(
        *(SCHEDULER, "PATCH", FREE, "data is deleted when the claim is"),
        {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
    ),
    Row(SCHEDULER, "PATCH", FREE, "its provisioner", notes(**{"example.com__x": "y"})),
    Row(SCHEDULER, "DELETE", FREE, "data"),
    Row(SCHEDULER, "PATCH", CLAIM, "which volume", {"spec": {"volumeName": "taken"}}),
    Row(SCHEDULER, "PATCH", CLAIM, "who has bound it", notes(**{"pv.kubernetes.io__bind-completed": "yes"})),
    Row(SCHEDULER, "PATCH", CLAIM, "labels select", LABEL),
    Row(SCHEDULER, "DELETE", CLAIM, "data"),
]
CLUSTER = [
    Row(SCHEDULER, "GET", "/api/v1/secrets", "every token of the cluster"),
    Row(SCHEDULER, "GET", path_of("Secret", "any", "kube-system"), "one of them"),
    Row(SCHEDULER, "GET", "/api/v1/configmaps", "settings of others"),
    Row(SCHEDULER, "POST", LEASES, "kube-scheduler's Lease, where it is not there yet", lease("kube-scheduler"), JSON),
    Row(SCHEDULER, "PUT", f"{LEASES}/other", "the leader of another program", lease("other"), JSON),
    Row(SCHEDULER, "DELETE", f"{LEASES}/dovetail-scheduler", "the epoch counts on from the Lease"),
    Row(SCHEDULER, "POST", path_of("ServiceAccount", "default", "victim", "token"), "be anybody", {"spec": {}}, JSON),
    Row(SCHEDULER, "PATCH", f"{RBAC}/clusterroles/dovetail-scheduler", "rights", {"rules": [EVERYTHING]}),
    Row(
        SCHEDULER,
        "DELETE",
        f"{ADMISSION}/validatingadmissionpolicybindings/dovetail-scheduler-pod-status",
        "its own limits",
    ),
    Row(
        *(SCHEDULER, "PATCH", f"{ADMISSION}/validatingadmissionpolicies/dovetail-scheduler", "likewise"),
        {"spec": {"validations": [{"expression": "true"}]}},
    ),
    Row(SCHEDULER, "PATCH", QUOTA, "who may have how much", {"spec": {"hard": {}}}),
    Row(
        *(SCHEDULER, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", "only with optional/metrics-auth"),
        {"spec": {"token": "x"}},
        JSON,
    ),
    Row(SCHEDULER, "DELETE", "/api/v1/namespaces/victim", "everything in it"),
]
TENANTS = [
    Row(TENANT, "GET", WAITS, "pods of others"),
    Row(TENANT, "PATCH", RUNS, "pods of others", LABEL),
    Row(TENANT, "DELETE", RUNS, "pods of others"),
    Row(TENANT, "POST", path_of("Pod", namespace="victim"), "another tenant's quota", POD, JSON),
    Row(TENANT, "PATCH", f"{OWN}/status", "a condition in the scheduler's name", condition("PodScheduled", "False")),
    Row(
        *(TENANT, "POST", f"{OWN}/binding", "a node without being asked"),
        {"metadata": {"name": "own"}, "target": {"kind": "Node", "name": "a"}},
        JSON,
    ),
    Row(TENANT, "PATCH", OWN, "a node without being asked", {"spec": {"nodeName": "a"}}),
    Row(TENANT, "PATCH", OWN, "more than the quota counted", {"spec": {"priority": 2_000_000_000}}),
    Row(TENANT, "PATCH", OWN, "the scheduler after the fact", {"spec": {"schedulerName": "dovetail-two"}}),
    Row(
        *(TENANT, "PATCH", OWN, "more GPUs than were given"),
        {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}},
        STRATEGIC,
    ),
    Row(TENANT, "PATCH", QUOTA, "its own quota", {"spec": {"hard": {}}}),
    Row(TENANT, "PATCH", NODE, "the register of cards", notes(**{"hami.io__node-nvidia-register": "[]"})),
    Row(TENANT, "GET", NODE, "where others run"),
    Row(TENANT, "PUT", f"{LEASES}/dovetail-scheduler", "who schedules", lease("dovetail-scheduler"), JSON),
    Row(TENANT, "POST", path_of("Lease", namespace="tenant"), "a Dovetail of its own", lease("dovetail-x"), JSON),
    Row(TENANT, "PATCH", FREE, "data", {"spec": {"claimRef": REFERENCE}}),
    Row(
        *(
            TENANT,
            "POST",
            path_of("ServiceAccount", "dovetail-scheduler", "kube-system", "token"),
            "the scheduler's token",
        ),
        {"spec": {}},
        JSON,
    ),
    Row(TENANT, "GET", path_of("Secret", "any", "kube-system"), "secrets"),
]
WEBHOOK_OBJECTS = [  # RBAC allows one Secret and one configuration by name, with two verbs each
    Row(SCHEDULER, "GET", SECRETS, "every secret of the namespace"),
    Row(SCHEDULER, "GET", f"{SECRETS}?fieldSelector=metadata.name=dovetail-webhook-tls", "a list, though of one"),
    Row(SCHEDULER, "GET", path_of("Secret", "dovetail-webhook-tls", "victim"), "the name in another namespace"),
    Row(SCHEDULER, "PUT", path_of("Secret", "any", "kube-system"), "another Secret", secret("any"), JSON),
    Row(SCHEDULER, "POST", SECRETS, "a token of another ServiceAccount is a Secret", secret("more"), JSON),
    Row(SCHEDULER, "PATCH", CERTIFICATE, "only as a whole, at its version", secret("dovetail-webhook-tls")),
    Row(SCHEDULER, "DELETE", CERTIFICATE, "the API servers trust it"),
    Row(SCHEDULER, "GET", WEBHOOKS, "configurations of others"),
    Row(SCHEDULER, "GET", f"{WEBHOOKS}/other", "likewise"),
    Row(SCHEDULER, "PATCH", f"{WEBHOOKS}/other", "another program's webhook", webhook("other")),
    Row(SCHEDULER, "PUT", WEBHOOK, "only its authority is patched", webhook("dovetail-webhook"), JSON),
    Row(SCHEDULER, "POST", WEBHOOKS, "a webhook sees every object of the cluster", webhook("more"), JSON),
    Row(SCHEDULER, "DELETE", WEBHOOK, "then pods go past it"),
    Row(SCHEDULER, "PATCH", f"{ADMISSION}/validatingwebhookconfigurations/dovetail-webhook", "another kind", {}),
    Row(TENANT, "GET", CERTIFICATE, "the webhook's key"),
    Row(TENANT, "PATCH", WEBHOOK, "where pods of others are sent", webhook("dovetail-webhook")),
]
VIEWERS = [
    Row(VIEWER, "GET", "/api/v1/secrets", "every token of the cluster"),
    Row(VIEWER, "GET", CERTIFICATE, "the webhook's key"),
    Row(VIEWER, "GET", "/api/v1/configmaps", "settings of others"),
    Row(VIEWER, "GET", f"{RUNS}/log", "what others print"),
    Row(VIEWER, "GET", f"{NODE}/proxy/pods", "kubelet's own API"),
    Row(VIEWER, "POST", f"{RUNS}/exec?command=id", "code in another tenant's pod", None, JSON),
    Row(VIEWER, "POST", path_of("Pod", namespace="victim"), "it only reads", POD, JSON),
    Row(VIEWER, "PATCH", RUNS, "it only reads", LABEL),
    Row(VIEWER, "PATCH", f"{RUNS}/status", "it only reads", LABEL),
    Row(VIEWER, "DELETE", RUNS, "it only reads"),
    Row(VIEWER, "POST", f"{RUNS}/eviction", "it only reads", eviction("x"), JSON),
    Row(VIEWER, "PATCH", NODE, "it only reads", LABEL),
    Row(VIEWER, "PATCH", QUOTA, "it only reads", {"spec": {"hard": {}}}),
    Row(VIEWER, "GET", f"{LEASES}/dovetail-scheduler", "the list is enough"),
    Row(VIEWER, "POST", LEASES, "who schedules", lease("dovetail-x"), JSON),
    Row(VIEWER, "POST", TOKEN, "the scheduler's token", {"spec": {}}, JSON),
    Row(VIEWER, "PATCH", f"{RBAC}/clusterroles/dovetail-viewer", "rights", {"rules": [EVERYTHING]}),
]
REFUSED = [*PODS, *STATUS, *NODES, *VOLUMES, *CLUSTER, *TENANTS, *WEBHOOK_OBJECTS, *VIEWERS]

PREEMPTED = {
    "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}
}
RELEASED = {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "GangBelowMinimum"}]}}
LOCK = notes(**{"hami.io__mutex.lock": "2026-01-01T00:00:00Z,victim,waits"})
ALLOWED = [
    Row(SCHEDULER, "PATCH", f"{WAITS}/status", "the epoch", notes(**{"dovetail.dev__epoch": "2.me"})),
    Row(
        SCHEDULER, "PATCH", f"{RUNS}/status", "a pod that was bound meanwhile", notes(**{"dovetail.dev__epoch": "2.me"})
    ),
    Row(SCHEDULER, "PATCH", f"{WAITS}/status", "why it waits", condition("PodScheduled", "False"), STRATEGIC),
    Row(SCHEDULER, "PATCH", f"{WAITS}/status", "a node kept", {"status": {"nominatedNodeName": "a"}}),
    Row(SCHEDULER, "PATCH", f"{WAITS}/status", "no longer", {"status": {"nominatedNodeName": None}}),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "why it ends", PREEMPTED, STRATEGIC),
    Row(SCHEDULER, "PATCH", f"{RUNS}/status", "why it ends with its gang", RELEASED, STRATEGIC),
    Row(
        *(SCHEDULER, "PATCH", f"{RUNS}/status", "HAMi's label, before 1.35"),
        {"metadata": {"labels": {"hami.io/vgpu-node": "a"}}},
    ),
    Row(SCHEDULER, "PATCH", NODE, "HAMi's lock", LOCK),
    Row(SCHEDULER, "PATCH", NODE, "given back", notes(**{"hami.io__mutex.lock": None})),
    Row(
        *(SCHEDULER, "PATCH", FREE, "a volume for a claim"),
        {**notes(**{"pv.kubernetes.io__bound-by-controller": "yes"}), "spec": {"claimRef": REFERENCE}},
    ),
    Row(SCHEDULER, "PATCH", CLAIM, "a node for a claim", notes(**{"volume.kubernetes.io__selected-node": "a"})),
    Row(SCHEDULER, "POST", LEASES, "who schedules", lease("dovetail-scheduler"), JSON),
    Row(
        *(SCHEDULER, "POST", "/apis/events.k8s.io/v1/namespaces/victim/events", "what happened"),
        {
            "metadata": {"name": "waits.1", "namespace": "victim"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "dovetail",
            "reportingInstance": "me",
            "action": "Scheduling",
            "reason": "FailedScheduling",
            "type": "Normal",
            "regarding": {"kind": "Pod", "namespace": "victim", "name": "waits"},
        },
        JSON,
    ),
    Row(SCHEDULER, "GET", CERTIFICATE, "the webhook's certificate"),
    Row(SCHEDULER, "PUT", CERTIFICATE, "a new certificate", secret("dovetail-webhook-tls"), JSON),
    Row(SCHEDULER, "GET", WEBHOOK, "whether it has the authority"),
    Row(SCHEDULER, "PATCH", WEBHOOK, "the certificate's authority", {"webhooks": []}),
    Row(VIEWER, "GET", "/api/v1/nodes", "who has which GPUs"),
    Row(VIEWER, "GET", "/api/v1/pods", "who has which GPUs"),
    Row(VIEWER, "GET", "/api/v1/resourcequotas", "quotas"),
    Row(VIEWER, "GET", "/apis/apps/v1/replicasets", "which pods are replicas"),
    Row(VIEWER, "GET", "/apis/policy/v1/poddisruptionbudgets", "what a plan may evict"),
    Row(VIEWER, "GET", "/apis/coordination.k8s.io/v1/leases", "the names that the running Dovetail serves"),
    Row(TENANT, "POST", path_of("Pod", namespace="tenant"), "a pod", POD, JSON),
    Row(TENANT, "PATCH", path_of("Pod", "made", "tenant"), "its labels", LABEL),
    Row(TENANT, "DELETE", path_of("Pod", "made", "tenant"), "its end"),
]
