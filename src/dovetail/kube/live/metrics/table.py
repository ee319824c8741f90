"""All metrics that a scheduler serves, in the order of docs/metrics.md, which a test compares with this table."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """A metric: its name, its HELP text and its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter", "histogram"] = "gauge"


GROUPS: dict[str, tuple[Metric, ...]] = {
    "The scheduler": (
        Metric("dovetail_build_info", "Always 1; the label is the version of Dovetail.", ("version",)),
        Metric("dovetail_ready", "1 while the scheduler is at work with a current view of the cluster."),
        Metric("dovetail_leader", "1 while this process holds the Lease and may write."),
        Metric("dovetail_nodes", "Nodes that the scheduler knows."),
        Metric("dovetail_pods_known", "Pods that the scheduler knows, pending and running."),
        Metric("dovetail_peers_elsewhere", "Leases in other namespaces that claim the same nodes."),
        Metric("dovetail_peers_unknown", "1 while other Dovetails cannot be looked for."),
        Metric(
            "dovetail_watch_age_seconds", "Seconds since the view of a resource was known to be current.", ("resource",)
        ),
        Metric("dovetail_watch_failures_total", "Watches of a resource that broke.", ("resource",), "counter"),
        Metric("dovetail_lists_total", "Lists that were read from the API server.", (), "counter"),
        Metric(
            "dovetail_api_requests_total",
            "Requests to the API server by verb, resource and status code; `none`: no answer came.",
            ("verb", "resource", "code"),
            "counter",
        ),
        Metric("dovetail_api_request_seconds", "Seconds until the API server's answer began.", ("verb",), "histogram"),
        Metric("dovetail_kernels_compiled_total", "Kernels that this process has compiled.", (), "counter"),
        Metric("dovetail_kernels_loaded_total", "Kernels that were found on disk.", (), "counter"),
        Metric(
            "dovetail_kernels_failed_total",
            "Kernels that could not be compiled; their policies are interpreted.",
            (),
            "counter",
        ),
        Metric("dovetail_kernels_compiling", "Kernels that are being compiled."),
        Metric("dovetail_kernel_compile_seconds_total", "Seconds spent on compiling kernels.", (), "counter"),
    ),
    "Decisions and bindings": (
        Metric(
            "dovetail_decision_seconds",
            "Seconds in which the engine decided a group that was offered to it; the result is `placed` or `waits`.",
            ("result",),
            "histogram",
        ),
        Metric(
            "dovetail_bind_seconds",
            "Seconds from the decision to the API server's confirmation that the pod is bound.",
            (),
            "histogram",
        ),
        Metric(
            "dovetail_pod_scheduling_seconds",
            "Seconds from when this process first saw a waiting pod until the pod was bound.",
            (),
            "histogram",
        ),
        Metric("dovetail_pods_placed_total", "Decisions that gave a pod a node.", (), "counter"),
        Metric("dovetail_pods_bound_total", "Pods that were bound.", (), "counter"),
        Metric(
            "dovetail_bind_conflicts_total",
            "Bindings given up because the pod or the cluster had changed.",
            (),
            "counter",
        ),
        Metric("dovetail_bind_refusals_total", "Bindings that the API server refused.", (), "counter"),
        Metric("dovetail_binds_under_way", "Bindings that were sent and not answered yet."),
        Metric("dovetail_bind_writes_total", "Bindings that were sent.", (), "counter"),
        Metric("dovetail_throttled_total", "Bindings that the API server answered with 429.", (), "counter"),
        Metric("dovetail_conditions_written_total", "Conditions PodScheduled that were written.", (), "counter"),
        Metric("dovetail_events_sent_total", "Events that were sent.", (), "counter"),
        Metric(
            "dovetail_events_dropped_total",
            "Events that were dropped because too many waited to be sent.",
            (),
            "counter",
        ),
    ),
    "Waiting pods": (
        Metric("dovetail_pods_waiting", "Pods and gangs that wait to be placed; a gang counts as one."),
        Metric(
            "dovetail_waiting_pods",
            "Pods without a node by the reason of their PodScheduled condition; `Queued`: no condition is written yet.",
            ("reason",),
        ),
        Metric(
            "dovetail_oldest_waiting_pod_seconds",
            "Age of the oldest pod without a node, without pods that have scheduling gates.",
        ),
        Metric("dovetail_gangs_waiting", "Gangs with members that wait to be placed."),
        Metric("dovetail_gangs_below_minimum", "Gangs of which some members hold a node, but fewer than the minimum."),
        Metric(
            "dovetail_gangs_released_total",
            "Gangs whose members were evicted because they stayed below their minimum.",
            (),
            "counter",
        ),
        Metric(
            "dovetail_gang_members_released_total",
            "Pods that were evicted because their gang stayed below its minimum.",
            (),
            "counter",
        ),
        Metric("dovetail_evictions_total", "Pods that were stopped for others.", (), "counter"),
        Metric(
            "dovetail_evictions_refused_total",
            "Evictions that the API server refused, or that were not needed any more.",
            (),
            "counter",
        ),
    ),
    "GPUs": (
        Metric("dovetail_gpus", "GPUs that the nodes register.", ("model",)),
        Metric(
            "dovetail_gpus_unusable",
            "GPUs that take no new pod: unhealthy, cordoned, split by MIG, or on a cordoned node.",
            ("model",),
        ),
        Metric("dovetail_gpus_in_use", "GPUs of which pods hold a part or all.", ("model",)),
        Metric("dovetail_gpus_whole_free", "Usable GPUs of which no pod holds a part.", ("model",)),
        Metric(
            "dovetail_gpus_free",
            "What is left of usable GPUs, in GPUs; of each GPU the smaller part of its free memory and compute.",
            ("model",),
        ),
        Metric("dovetail_gpus_free_in_pieces", "The part of dovetail_gpus_free that is on GPUs in use.", ("model",)),
        Metric("dovetail_gpus_largest_free_block", "The most whole free GPUs of one node.", ("model",)),
        Metric("dovetail_gpu_slots", "How many containers may share the GPUs.", ("model",)),
        Metric("dovetail_gpu_slots_allocated", "How many containers hold a part of the GPUs.", ("model",)),
        Metric("dovetail_gpu_memory_bytes", "Memory of the GPUs, as their nodes register it.", ("model",)),
        Metric("dovetail_gpu_memory_allocated_bytes", "GPU memory that pods hold.", ("model",)),
        Metric("dovetail_gpu_compute", "Compute of the GPUs, in GPUs.", ("model",)),
        Metric("dovetail_gpu_compute_allocated", "Compute that pods hold, in GPUs.", ("model",)),
        Metric(
            "dovetail_gpus_held_idle",
            "GPUs held by pods that do not run: `starting` (bound, phase not Running) or `terminating`.",
            ("state",),
        ),
        Metric(
            "dovetail_pods_holding_idle_gpus", "Pods that hold GPUs and do not run, by the same states.", ("state",)
        ),
        Metric(
            "dovetail_gpu_models_left_out", "GPU models that are counted as `other` because there are more than 50."
        ),
        Metric("dovetail_nodes_unsettled", "Nodes that take no new GPU pods."),
        Metric("dovetail_nodes_measured", "Nodes whose load is known by a measurement that is not stale."),
        Metric(
            "dovetail_signal_sources_failing",
            "Sources of measured load that do not answer, or whose values are refused.",
        ),
        Metric(
            "dovetail_signals_refused_total",
            "Measured values that were refused: negative, too large, too old or no number.",
            (),
            "counter",
        ),
    ),
    "Queues": (
        Metric(
            "dovetail_queue_used",
            "What the pods of a queue hold; GPUs and their compute in GPUs, memory in bytes, CPU in cores.",
            ("queue", "resource"),
        ),
        Metric(
            "dovetail_queue_wanted",
            "What the pods of a queue hold or wait for; at most the ceilings below it.",
            ("queue", "resource"),
        ),
        Metric("dovetail_queue_guarantee", "What is guaranteed to a queue.", ("queue", "resource")),
        Metric("dovetail_queue_deserved", "What a queue deserves now, by its arithmetic.", ("queue", "resource")),
        Metric("dovetail_queue_ceiling", "The most that the pods of a queue may hold.", ("queue", "resource")),
        Metric("dovetail_queue_borrowed", "What the pods of a queue hold beyond its guarantee.", ("queue", "resource")),
        Metric("dovetail_queues_left_out", "Queues without metrics because there are more than 200."),
    ),
    "What should stay 0, and records": (
        Metric(
            "dovetail_rescued_total",
            "Pods that the minutely safety net placed instead of an event; should be 0.",
            (),
            "counter",
        ),
        Metric(
            "dovetail_objects_set_aside_total",
            "Objects set aside because handling them failed; should be 0.",
            (),
            "counter",
        ),
        Metric("dovetail_ledger_audits_total", "Audits of the ledger that found no difference.", (), "counter"),
        Metric(
            "dovetail_ledger_differences_total",
            "Differences that audits of the ledger found; should be 0.",
            (),
            "counter",
        ),
        Metric(
            "dovetail_ledger_rebuilds_total",
            "Times that the ledger was rebuilt from the API server's objects; should be 0.",
            (),
            "counter",
        ),
        Metric(
            "dovetail_records_changed_total",
            "Times that another client changed the record of a running pod's GPUs.",
            (),
            "counter",
        ),
        Metric("dovetail_records_unverified", "Running pods whose record of GPUs fails its check."),
        Metric("dovetail_records_sealed", "1 if records of GPUs are sealed."),
    ),
    "The admission webhook": (
        Metric(
            "dovetail_pods_past_webhook",
            "Pods with GPUs that name default-scheduler, which knows no cards: `waiting` or `bound`. At most 10,000 are"
            " counted.",
            ("state",),
        ),
        Metric(
            "dovetail_webhook_reviews_total",
            "Reviews of new pods by outcome: `untouched`, `admitted`, `denied`, `unreadable` or `failed`.",
            ("outcome",),
            "counter",
        ),
        Metric(
            "dovetail_webhook_review_seconds", "Seconds in which a review of a new pod was answered.", (), "histogram"
        ),
        Metric(
            "dovetail_webhook_mutations_total",
            "Pods in which the webhook changed the `scheduler-name`, `amounts`, `environment` or `runtime-class`.",
            ("change",),
            "counter",
        ),
        Metric(
            "dovetail_webhook_denials_total",
            "Pods that were denied, by cause: `request`, `impossible`, `quota` or `unreadable`.",
            ("cause",),
            "counter",
        ),
        Metric("dovetail_webhook_warnings_total", "Warnings that the webhook gave with its answers.", (), "counter"),
    ),
    "The extender": (
        Metric(
            "dovetail_extender_requests_total",
            "Requests of kube-scheduler by verb and outcome: `ok`, `no-node`, `error`, `unreadable` or `failed`.",
            ("verb", "outcome"),
            "counter",
        ),
        Metric(
            "dovetail_extender_request_seconds",
            "Seconds in which a request of kube-scheduler was answered.",
            ("verb",),
            "histogram",
        ),
        Metric("dovetail_extender_reservations_held", "Pods with reserved cards that are not being bound yet."),
        Metric("dovetail_extender_reservations_made_total", "Reservations that filter made.", (), "counter"),
        Metric(
            "dovetail_extender_reservations_expired_total",
            "Reservations that ended because kube-scheduler did not bind the pod in time.",
            (),
            "counter",
        ),
        Metric(
            "dovetail_extender_stalls_total",
            "Times that the process stood still for longer than kube-scheduler may have waited; should be 0.",
            (),
            "counter",
        ),
    ),
    "The journal": (
        Metric("dovetail_journal_entries_total", "Entries that were written to the journal.", (), "counter"),
        Metric("dovetail_journal_bytes_total", "Bytes that were written to the journal.", (), "counter"),
        Metric("dovetail_journal_lost_total", "Entries that were dropped; should be 0.", (), "counter"),
        Metric("dovetail_journal_gaps_total", "Gaps in the journal; should be 0.", (), "counter"),
        Metric("dovetail_journal_disk_bytes", "Bytes that the files of the journal have on disk."),
        Metric("dovetail_journal_failing", "1 while the journal cannot be written."),
    ),
}
METRICS: dict[str, Metric] = {metric.name: metric for group in GROUPS.values() for metric in group}
