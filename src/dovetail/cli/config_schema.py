"""The JSON schema of the configuration file, from its structs and from one sentence for each field."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from dovetail.config import API_VERSION, CONFIG_KIND, SIGNAL_KINDS, Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLACEMENT = {
    "nodePolicy": "The node policy of pods that name none; `dovetail policies` lists them.",
    "preferenceWeights": "Weights of Kubernetes' preferences.",
    "defaultSpread": "Spread the pods of one Service or controller, as kube-scheduler does by default.",
}
DESCRIPTIONS: dict[str, dict[str, str]] = {
    "Config": {
        "apiVersion": f"Always {API_VERSION}.",
        "kind": f"Always {CONFIG_KIND}.",
        "nodePolicy": PLACEMENT["nodePolicy"],
        "gpuPolicy": "The GPU policy, or several with commas, of pods that name none; `dovetail policies` lists them.",
        "withoutDevices": "How pods without devices are placed.",
        "allowedPolicies": "The policies that pods may name in annotations; null: all.",
        "policyArguments": "Node policy -> its arguments (docs/policies.md).",
        "schedulers": "schedulerName -> how its pods are placed.",
        "deviceConfig": "HAMi's device-config.yaml, relative to this file.",
        "signals": "Where the measured load of nodes and GPUs comes from (docs/signals.md).",
        "metrics": "Metrics of HAMi's scheduler that /metrics serves, too (docs/metrics.md).",
        "tracing": "OpenTelemetry traces of decisions (docs/tracing.md).",
        "gpushareMemoryUnit": "The unit of aliyun.com/gpu-mem: the plugin's --memory-unit.",
        "gangs": "Pods that name a PodGroup (docs/gangs.md).",
        "preemption": "Whether running pods are stopped for other pods, and which (docs/preemption.md).",
        "queues": "Queues, for clusters without a CRD for queues (docs/queues.md).",
        "topology": "Node labels from the widest level to the narrowest, for gangs with rules about topology.",
        "queueHalfLifeSeconds": "The time after which the past use of a queue counts half; 0: it does not count.",
    },
    "PreferenceWeights": {
        "taints": "Weight of taints with PreferNoSchedule.",
        "nodeAffinity": "Weight of preferred node affinity.",
        "spread": "Weight of topology spread constraints with ScheduleAnyway.",
        "podAffinity": "Weight of preferred inter-pod affinity.",
        "images": "Weight of images that the node has already.",
    },
    "CpuProfile": {
        **PLACEMENT,
        "nodePolicy": "The node policy of pods without devices.",
        "policyWeight": "0: the policy decides among the nodes that preferences like best; else it is a preference.",
    },
    "SchedulerProfile": {
        **PLACEMENT,
        "gpuPolicy": "The GPU policy of these pods; null: that of the file.",
        "policyWeight": "0: the policy decides among the nodes that preferences like best; else it is a preference.",
        "withoutDevices": "How these pods are placed if they ask for no device; null: as the file says.",
    },
    "GangConfig": {
        "unknownGroup": "Pods whose PodGroup is not known wait for it, or are placed alone; null: wait.",
        "releaseAfterSeconds": "How long members of a gang below its minimum keep their nodes.",
    },
    "PreemptionConfig": {
        "enabled": "Stop running pods for pods of a higher priority.",
        "otherSchedulers": "Also pods that other schedulers placed.",
        "minimumRunSeconds": "A pod that started later than this many seconds ago is not stopped.",
        "keepPlacesAfterSeconds": "Places are kept for the first group of the queue after this time; null: never.",
    },
    "QueueConfig": {
        "name": "The name, without slashes and brackets.",
        "parent": "The name of the queue above; empty: none.",
        "namespaces": "Namespaces whose pods are in this queue.",
        "arithmetic": "How the queues of one parent divide what there is; `capacity` unless said.",
        "guarantee": "Resource -> amount that the queue may always have.",
        "ceiling": "Resource -> the most that it may have.",
        "reserved": "Resource -> amount that other queues may not borrow.",
        "weight": "Its weight where the arithmetic has weights: a number, or one for each resource.",
        "lends": "Whether other queues may use what it does not.",
        "priority": "Its place among the queues of one parent; the highest first.",
        "preemptAfterSeconds": "How long its pods wait before they stop pods of lower priority.",
        "reclaimAfterSeconds": "How long its pods wait before they take back what others borrowed.",
    },
    "MetricsConfig": {
        "hami": "HAMi's metric names: off, on, or legacy for the old names, too; --hami-metrics overrides it.",
        "hamiCards": "The most GPUs, and parts of GPUs, that have series of their own.",
    },
    "TracingConfig": {
        "endpoint": "An OTLP/HTTP address: http://otel-collector:4318/v1/traces; null: OTEL_* of the environment.",
        "sample": "The part of all pods that is traced, 0 to 1.",
    },
    "SignalsConfig": {
        "metricsApi": "Ask metrics.k8s.io of the API server.",
        "prometheus": "Ask a Prometheus server; null: none.",
        "everySeconds": "Seconds between two rounds.",
        "staleAfterSeconds": "A measurement older than this is not used.",
        "windowSeconds": "The time over which mean and deviation are computed.",
    },
    "PrometheusConfig": {
        "url": "Its address, without user and password.",
        "queries": f"Kind of value -> PromQL; empty: do not ask. Kinds: {', '.join(SIGNAL_KINDS)}.",
        "nodeLabels": "Labels of a series that name the node; empty: the usual ones.",
        "cardLabels": "Labels that name the GPU's UUID; empty: the usual ones.",
        "indexLabels": "Labels that name the GPU's index; empty: the usual ones.",
        "tokenFile": "A file with a bearer token, relative to this file.",
        "caFile": "A file with the certificates of the server's authority, relative to this file.",
    },
}


def schema() -> dict[str, Any]:
    """The schema, draft 2020-12."""
    made: dict[str, Any] = msgspec.json.schema(Config)
    for struct, fields in DESCRIPTIONS.items():
        for name, text in fields.items():
            made["$defs"][struct]["properties"][name]["description"] = text
    own = made["$defs"][CONFIG_KIND]["properties"]
    own["apiVersion"]["const"], own["kind"]["const"] = API_VERSION, CONFIG_KIND
    own["topology"].pop("default", None)
    return {"$schema": DIALECT, "title": "The configuration of Dovetail", **made}


def schema_text() -> str:
    return json.dumps(schema(), indent=2) + "\n"
