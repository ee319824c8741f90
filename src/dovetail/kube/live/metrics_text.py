"""Prometheus' text format 0.0.4, written from numbers; and what each metric means, for its HELP line.

https://prometheus.io/docs/instrumenting/exposition_formats/. ADR 17 compares this with prometheus-client.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

HELP = {
    "dovetail_ready": "1 while the scheduler is at work with a current view of the cluster.",
    "dovetail_nodes": "Nodes that the scheduler knows.",
    "dovetail_pods_known": "Pods that the scheduler knows, pending and running.",
    "dovetail_pods_waiting": "Pods that wait to be placed.",
    "dovetail_peers_elsewhere": "Leases in other namespaces that claim the same nodes.",
    "dovetail_peers_unknown": "1 while other Dovetails cannot be looked for.",
    "dovetail_kernels_compiled_total": "Kernels that this process has compiled.",
    "dovetail_kernels_loaded_total": "Kernels that were found on disk.",
    "dovetail_kernels_failed_total": "Kernels that could not be compiled; their policies are interpreted.",
    "dovetail_kernels_compiling": "Kernels that are being compiled.",
    "dovetail_kernel_compile_seconds_total": "Seconds spent on compiling kernels.",
    "dovetail_pods_placed_total": "Decisions that gave a pod a node.",
    "dovetail_pods_bound_total": "Pods that were bound.",
    "dovetail_bind_conflicts_total": "Bindings given up because the pod or the cluster had changed.",
    "dovetail_bind_refusals_total": "Bindings that the API server refused.",
    "dovetail_rescued_total": "Pods that the minutely safety net placed instead of an event; should be 0.",
    "dovetail_objects_set_aside_total": "Objects set aside because handling them failed; should be 0.",
    "dovetail_ledger_audits_total": "Audits of the ledger that found no difference.",
    "dovetail_ledger_differences_total": "Differences that audits of the ledger found; should be 0.",
    "dovetail_ledger_rebuilds_total": "Times that the ledger was rebuilt from the API server's objects; should be 0.",
    "dovetail_records_changed_total": "Times that another client changed the record of a running pod's GPUs.",
    "dovetail_records_unverified": "Running pods whose record of GPUs fails its check.",
    "dovetail_records_sealed": "1 if records of GPUs are sealed.",
    "dovetail_nodes_unsettled": "Nodes that take no new GPU pods.",
    "dovetail_binds_under_way": "Bindings that were sent and not answered yet.",
    "dovetail_bind_writes_total": "Bindings that were sent.",
    "dovetail_throttled_total": "Bindings that the API server answered with 429.",
    "dovetail_conditions_written_total": "Conditions PodScheduled that were written.",
    "dovetail_events_sent_total": "Events that were sent.",
    "dovetail_events_dropped_total": "Events that were dropped because too many waited to be sent.",
    "dovetail_lists_total": "Lists that were read from the API server.",
    "dovetail_watch_age_seconds": "Seconds since the view of a resource was known to be current.",
    "dovetail_watch_failures_total": "Watches of a resource that broke.",
}
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def render(numbers: Mapping[str, float], by_resource: Mapping[str, Mapping[str, float]]) -> str:
    """The page: `numbers` by metric; `by_resource` by metric and value of the label `resource`."""
    lines = []
    for name, value in numbers.items():
        lines += [*_comments(name), f"{name} {written(value)}"]
    for name, values in by_resource.items():
        lines += _comments(name)
        lines += [f'{name}{{resource="{at.translate(_IN_LABEL)}"}} {written(value)}' for at, value in values.items()]
    return "\n".join(lines)


def _comments(name: str) -> Iterator[str]:
    """HELP and TYPE lines.

    A name that ends in `_total` is a counter's, and no other metric's (Prometheus' naming rules).
    """
    if name in HELP:
        yield f"# HELP {name} {HELP[name].translate(_IN_HELP)}"
    yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"


def written(value: float) -> str:
    """The value with all digits: a rounded counter would stand still, and so would its rate."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
