"""The Grafana dashboards of deploy/monitoring, from a short table. `python -m tools.dashboards` writes the files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent.parent / "deploy" / "monitoring"
SCHEMA_VERSION = 39  # of Grafana 11; older ones from 10 on read it, newer ones migrate it
COLUMNS, HEIGHT = 24, 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
J = 'job=~"$job"'  # every query is limited to the chosen jobs


class Panel(NamedTuple):
    title: str
    queries: tuple[tuple[str, str], ...]  # PromQL, legend
    about: str
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


def _quantiles(name: str) -> tuple[tuple[str, str], ...]:
    rate = f"sum by (le) (rate({name}_bucket{{{J}}}[$__rate_interval]))"
    return tuple((f"histogram_quantile({q}, {rate})", f"p{round(q * 100)}") for q in (0.5, 0.9, 0.99))


def _rate(name: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({name}{{{J}}}[$__rate_interval]))"


def _sum(name: str, by: str = "", more: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} ({name}{{{J}{more}}})"


def _gpu(name: str) -> str:
    return _sum(f"dovetail_{name}", "model", ',model=~"$model"')


GPUS = (
    Panel("GPUs", ((_sum("dovetail_gpus"), "GPUs"),), "GPUs that the nodes register.", kind="stat", width=4),
    Panel("In use", ((_sum("dovetail_gpus_in_use"), ""),), "GPUs of which pods hold a part.", kind="stat", width=4),
    Panel("Whole free", ((_sum("dovetail_gpus_whole_free"), ""),), "Usable and idle.", kind="stat", width=4),
    Panel(
        "Largest free block",
        ((f"max(dovetail_gpus_largest_free_block{{{J}}})", ""),),
        "The most whole free GPUs of one node: the largest pod that one node can take.",
        kind="stat",
        width=4,
    ),
    Panel("Unusable", ((_sum("dovetail_gpus_unusable"), ""),), "Unhealthy, cordoned, or MIG.", kind="stat", width=4),
    Panel(
        "Held by pods that do not run",
        ((_sum("dovetail_gpus_held_idle"), ""),),
        "Bound and not running, or terminating.",
        kind="stat",
        width=4,
    ),
    Panel(
        "GPU memory allocated",
        ((f"{_gpu('gpu_memory_allocated_bytes')} / {_gpu('gpu_memory_bytes')}", "{{model}}"),),
        "The part of the memory that pods hold, by model.",
        "percentunit",
    ),
    Panel(
        "GPU compute allocated",
        ((f"{_gpu('gpu_compute_allocated')} / {_gpu('gpu_compute')}", "{{model}}"),),
        "The part of the compute that pods hold, by model.",
        "percentunit",
    ),
    Panel(
        "Slots allocated",
        ((f"{_gpu('gpu_slots_allocated')} / {_gpu('gpu_slots')}", "{{model}}"),),
        "Containers that share GPUs, as a part of how many may.",
        "percentunit",
    ),
    Panel(
        "Fragmentation",
        ((f"{_gpu('gpus_free_in_pieces')} / ({_gpu('gpus_free')} > 0)", "{{model}}"),),
        "The part of free GPU capacity that is on GPUs in use.",
        "percentunit",
    ),
    Panel("Free, in GPUs", ((_gpu("gpus_free"), "{{model}}"),), "What is left of usable GPUs, in pieces or whole."),
    Panel("Whole free by model", ((_gpu("gpus_whole_free"), "{{model}}"),), "Usable GPUs that no pod holds."),
    Panel(
        "GPUs held by pods that do not run, by state",
        ((_sum("dovetail_gpus_held_idle", "state"), "{{state}}"),),
        "starting: bound and not Running; terminating: being deleted.",
        width=12,
    ),
    Panel(
        "Nodes",
        ((_sum("dovetail_nodes"), "nodes"), (_sum("dovetail_nodes_unsettled"), "take no GPU pods yet")),
        "Nodes that the scheduler knows, and those whose GPUs are not relied on yet.",
        width=12,
    ),
)
HEALTH = (
    Panel("Leaders", ((_sum("dovetail_leader"), ""),), "Should be 1.", kind="stat", width=4),
    Panel("Ready", ((_sum("dovetail_ready"), ""),), "Should be 1: of several, the leader.", kind="stat", width=4),
    Panel(
        "Drift, 24 h",
        ((f"sum(increase(dovetail_ledger_differences_total{{{J}}}[24h]))", ""),),
        "Differences that audits of the ledger found. Should be 0.",
        kind="stat",
        width=4,
    ),
    Panel(
        "Set aside, 24 h",
        ((f"sum(increase(dovetail_objects_set_aside_total{{{J}}}[24h]))", ""),),
        "Objects on which the scheduler failed. Should be 0.",
        kind="stat",
        width=4,
    ),
    Panel(
        "Rescued, 24 h",
        ((f"sum(increase(dovetail_rescued_total{{{J}}}[24h]))", ""),),
        "Pods that no event offered. Should be 0.",
        kind="stat",
        width=4,
    ),
    Panel(
        "Version",
        ((_sum("dovetail_build_info", "version"), "{{version}}"),),
        "Processes by version.",
        kind="stat",
        width=4,
    ),
    Panel("Decision", _quantiles("dovetail_decision_seconds"), "The engine alone, of one group.", "s"),
    Panel("Binding", _quantiles("dovetail_bind_seconds"), "From the decision to the API server's answer.", "s"),
    Panel("Pod, end to end", _quantiles("dovetail_pod_scheduling_seconds"), "From first seen to bound.", "s"),
    Panel(
        "Pods per second",
        ((_rate("dovetail_pods_placed_total"), "placed"), (_rate("dovetail_pods_bound_total"), "bound")),
        "Decisions that gave a pod a node, and pods that were bound.",
    ),
    Panel(
        "Bindings that failed",
        (
            (_rate("dovetail_bind_conflicts_total"), "given up"),
            (_rate("dovetail_bind_refusals_total"), "refused"),
            (_rate("dovetail_throttled_total"), "throttled"),
        ),
        "The pod or the cluster had changed; the API server said no; the API server was busy.",
    ),
    Panel("Bindings under way", ((_sum("dovetail_binds_under_way"), "bindings"),), "At most --binds-at-once."),
    Panel(
        "Requests to the API server",
        ((_rate("dovetail_api_requests_total", "verb, resource"), "{{verb}} {{resource}}"),),
        "Requests per second.",
        "reqps",
    ),
    Panel(
        "Requests that failed",
        (
            (
                f'sum by (resource, code) (rate(dovetail_api_requests_total{{{J},code!~"2.."}}[$__rate_interval]))',
                "{{resource}} {{code}}",
            ),
        ),
        "Per second, by code. 404 and 409 are part of normal work.",
        "reqps",
    ),
    Panel(
        "Answers of the API server, p99",
        (
            (
                f"histogram_quantile(0.99, {_rate('dovetail_api_request_seconds_bucket', 'le, verb')})",
                "{{verb}}",
            ),
        ),
        "Seconds until the answer began.",
        "s",
    ),
    Panel(
        "Age of watches",
        ((f"max by (resource) (dovetail_watch_age_seconds{{{J}}})", "{{resource}}"),),
        "Seconds since the view of a resource was known to be current. A bookmark comes each minute.",
        "s",
        width=12,
    ),
    Panel(
        "Kernels",
        (
            (_sum("dovetail_kernels_compiling"), "compiling"),
            (_sum("dovetail_kernels_failed_total"), "failed"),
            (_sum("dovetail_kernels_loaded_total"), "loaded"),
        ),
        "Compiled policies. Failed ones are interpreted.",
        width=12,
    ),
    Panel(
        "Journal",
        (
            (_rate("dovetail_journal_entries_total"), "written"),
            (_rate("dovetail_journal_lost_total"), "lost"),
            (_rate("dovetail_journal_gaps_total"), "gaps"),
        ),
        "Entries per second, where a journal is written. Lost entries and gaps should be 0.",
        width=12,
    ),
    Panel(
        "Journal on disk",
        ((_sum("dovetail_journal_disk_bytes"), "files"), (_rate("dovetail_journal_bytes_total"), "written per second")),
        "Bytes of the files of the journal, and bytes written per second.",
        "bytes",
        width=12,
    ),
)
QUEUE = ',queue=~"$queue"'
QUEUES = (
    Panel(
        "Waiting pods by reason",
        ((_sum("dovetail_waiting_pods", "reason"), "{{reason}}"),),
        "By the reason of the condition PodScheduled.",
        width=12,
    ),
    Panel(
        "Oldest waiting pod",
        ((f"max(dovetail_oldest_waiting_pod_seconds{{{J}}})", "age"),),
        "Since its creation; pods with scheduling gates are left out.",
        "s",
        width=6,
    ),
    Panel(
        "Gangs",
        ((_sum("dovetail_gangs_waiting"), "waiting"), (_sum("dovetail_gangs_below_minimum"), "below minimum")),
        "Gangs with waiting members; gangs that hold nodes with too few members.",
        width=6,
    ),
    Panel(
        "Evictions",
        ((_rate("dovetail_evictions_total"), "evicted"), (_rate("dovetail_evictions_refused_total"), "refused")),
        "Pods stopped for others, per second.",
        width=12,
    ),
    Panel(
        "Gangs released",
        ((f"sum(increase(dovetail_gangs_released_total{{{J}}}[1h]))", "gangs in 1 h"),),
        "Gangs that stayed below their minimum.",
        width=12,
    ),
    *(
        Panel(
            f"Queues: {title}",
            ((_sum(f"dovetail_queue_{name}", "queue", QUEUE + ',resource="$resource"'), "{{queue}}"),),
            about,
        )
        for title, name, about in (
            ("use", "used", "What the pods of each queue hold."),
            ("use and demand", "wanted", "What they hold or wait for."),
            ("deserved", "deserved", "What each queue deserves now."),
            ("guarantee", "guarantee", "What is guaranteed."),
            ("ceiling", "ceiling", "The most that its pods may hold."),
            ("borrowed", "borrowed", "Held beyond the guarantee."),
        )
    ),
)


def _p99(name: str, by: str) -> tuple[tuple[str, str], ...]:
    return ((f"histogram_quantile(0.99, {_rate(f'{name}_bucket', f'le, {by}')})", f"{{{{{by}}}}}"),)


ADMISSION = (
    Panel(
        "Pods past the webhook",
        ((_sum("dovetail_pods_past_webhook", "state"), "{{state}}"),),
        "Pods with GPUs that kube-scheduler has. Should be 0.",
        kind="stat",
        width=6,
    ),
    Panel(
        "Denied, 24 h",
        ((f"sum(increase(dovetail_webhook_denials_total{{{J}}}[24h]))", ""),),
        "Pods that the webhook denied.",
        kind="stat",
        width=6,
    ),
    Panel(
        "Reservations held",
        ((_sum("dovetail_extender_reservations_held"), ""),),
        "Pods with reserved cards that are not being bound yet.",
        kind="stat",
        width=6,
    ),
    Panel(
        "Stalls, 24 h",
        ((f"sum(increase(dovetail_extender_stalls_total{{{J}}}[24h]))", ""),),
        "Times that the extender stood still. Should be 0.",
        kind="stat",
        width=6,
    ),
    Panel(
        "Webhook: reviews",
        ((_rate("dovetail_webhook_reviews_total", "outcome"), "{{outcome}}"),),
        "Reviews of new pods per second, by outcome.",
        "reqps",
    ),
    Panel(
        "Webhook: latency",
        _quantiles("dovetail_webhook_review_seconds"),
        "Seconds in which a review was answered. The API server waits 5 s.",
        "s",
    ),
    Panel(
        "Webhook: changes, denials and warnings",
        (
            (_rate("dovetail_webhook_mutations_total", "change"), "{{change}}"),
            (_rate("dovetail_webhook_denials_total", "cause"), "denied: {{cause}}"),
            (_rate("dovetail_webhook_warnings_total"), "warnings"),
        ),
        "Pods per second, by what was changed and why they were denied.",
    ),
    Panel(
        "Extender: requests",
        ((_rate("dovetail_extender_requests_total", "verb, outcome"), "{{verb}} {{outcome}}"),),
        "Requests of kube-scheduler per second.",
        "reqps",
    ),
    Panel(
        "Extender: latency, p99",
        _p99("dovetail_extender_request_seconds", "verb"),
        "Seconds in which a request was answered. kube-scheduler waits httpTimeout.",
        "s",
    ),
    Panel(
        "Extender: reservations",
        (
            (_rate("dovetail_extender_reservations_made_total"), "made"),
            (_rate("dovetail_extender_reservations_expired_total"), "expired"),
        ),
        "Per second. Many that expire: kube-scheduler places the pods nowhere, or elsewhere.",
    ),
)


class Dashboard(NamedTuple):
    uid: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()  # name, query of its values


DASHBOARDS = (
    Dashboard("dovetail-gpus", "Dovetail / GPUs", GPUS, (("model", "label_values(dovetail_gpus, model)"),)),
    Dashboard("dovetail-scheduler", "Dovetail / Scheduler", HEALTH),
    Dashboard("dovetail-admission", "Dovetail / Webhook and extender", ADMISSION),
    Dashboard(
        "dovetail-queues",
        "Dovetail / Queues",
        QUEUES,
        (
            ("queue", "label_values(dovetail_queue_used, queue)"),
            ("resource", "label_values(dovetail_queue_used, resource)"),
        ),
    ),
)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana's JSON."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["dovetail", "kubernetes", "gpu"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables(dashboard))},
        "annotations": {"list": []},
        "panels": list(_panels(dashboard.panels)),
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    for name, query in (("job", "label_values(dovetail_build_info, job)"), *dashboard.variables):
        one = name == "resource"  # amounts of different resources cannot be added
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": not one,
            "includeAll": not one,
            **({} if one else {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}),
        }


def _panels(panels: tuple[Panel, ...]) -> Iterator[dict[str, Any]]:
    x = y = 0
    for number, panel in enumerate(panels, 1):
        height = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
        if x + panel.width > COLUMNS:
            x = 0
            y += HEIGHT
        yield {
            "id": number,
            "title": panel.title,
            "description": panel.about,
            "type": panel.kind,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if panel.kind == "stat" else {},
            "targets": [
                {"refId": chr(ord("A") + n), "datasource": SOURCE, "expr": query, "legendFormat": legend}
                for n, (query, legend) in enumerate(panel.queries)
            ],
        }
        x += panel.width


def text(dashboard: Dashboard) -> str:
    return json.dumps(document(dashboard), indent=2, ensure_ascii=False) + "\n"


def path(dashboard: Dashboard) -> Path:
    return FOLDER / f"{dashboard.uid}.json"


if __name__ == "__main__":
    for each in DASHBOARDS:
        path(each).write_text(text(each), encoding="utf-8")
