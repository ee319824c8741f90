"""All metrics of a live scheduler, read from its parts when Prometheus asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from dovetail import __version__
from dovetail.kube.api.reflector import Reflector
from dovetail.kube.journal.recorder import NO_JOURNAL
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.metrics.census import PodNumbers, count_pods
from dovetail.kube.live.metrics.gpus import gpu_metrics
from dovetail.kube.live.metrics.hami import HamiMetrics, HamiMetricsOptions
from dovetail.kube.live.metrics.queues import queue_metrics
from dovetail.kube.live.metrics.text import Histograms, Labelled, render
from dovetail.kube.live.service import LiveScheduler

Values = dict[str, float | Labelled | Histograms]
SECONDS_KEPT = 0.1  # seconds for which the metrics are reused, for any number of readers


class Metrics:
    """The text of /metrics. Readers at the same time share one text."""

    def __init__(
        self, service: LiveScheduler, is_ready: Callable[[], bool], hami: HamiMetricsOptions | None = None
    ) -> None:
        self._service, self._is_ready = service, is_ready
        self._hami = HamiMetrics(hami) if hami is not None and hami.enabled else None
        self._text, self._until, self._making = "", 0.0, asyncio.Lock()

    async def text(self) -> str:
        async with self._making:
            if time.monotonic() >= self._until:
                self._text = await self._made()
                self._until = time.monotonic() + SECONDS_KEPT
            return self._text

    async def _made(self) -> str:
        service, driver = self._service, self._service.driver
        census = await count_pods(service.mirror.pods.values(), driver.on_the_way if driver is not None else ())
        more = {name: value for page in service.more_metrics for name, value in page().items()}
        text = render({"dovetail_ready": float(self._is_ready()), **values(service, census), **more})
        if self._hami is None:
            return text
        await self._hami.update(service.scheduler.ledger, service.scheduler.quotas, service.mirror.pods.values())
        return "\n".join((text, *self._hami.lines()))


def values(service: LiveScheduler, census: PodNumbers) -> Values:
    """All values by metric, without `dovetail_ready` and HAMi's."""
    made: Values = {
        "dovetail_build_info": {(__version__,): 1},
        "dovetail_leader": float(service.election.is_sure()),
        "dovetail_nodes": len(service.mirror.nodes),
        "dovetail_pods_known": len(service.mirror.pods),
        "dovetail_peers_elsewhere": service.peers.elsewhere,
        "dovetail_peers_unknown": float(bool(service.peers.refused)),
        **_watch_metrics(service.reflectors),
        "dovetail_api_requests_total": service.api.counts.answers,
        "dovetail_api_request_seconds": service.api.counts.seconds,
        **_kernel_metrics(service),
        "dovetail_pods_waiting": len(service.scheduler.waiting),
        **_waiting(census, service.now()),
        **gpu_metrics(service.scheduler.ledger),
        "dovetail_gpus_held_idle": census.idle_gpus,
        "dovetail_pods_holding_idle_gpus": census.idle_pods,
        "dovetail_records_unverified": census.unverified,
        "dovetail_records_changed_total": service.mirror.records_changed,
        "dovetail_records_sealed": float(service.seals_records),
        "dovetail_nodes_unsettled": sum(1 for node in service.mirror.nodes.values() if node.unsettled),
        **queue_metrics(service.scheduler.placer.queues),
        **(service.recorder.numbers() if service.recorder is not None else NO_JOURNAL),
    }
    if service.driver is not None:
        made |= _driver_metrics(service.driver)
        made["dovetail_pods_past_webhook"] = service.sources.unrouted.by_state
    if service.signals is not None:
        made |= {
            "dovetail_nodes_measured": service.signals.measured_nodes,
            "dovetail_signal_sources_failing": sum(1 for one in service.signals.states if one.trouble),
            "dovetail_signals_refused_total": sum(one.refused for one in service.signals.states),
        }
    return made


def _waiting(census: PodNumbers, now: float) -> Values:
    age = max(0.0, now - census.oldest) if census.oldest else 0.0
    return {
        "dovetail_waiting_pods": census.waiting,
        "dovetail_oldest_waiting_pod_seconds": age,
        "dovetail_gangs_waiting": len(census.gangs),
    }


def _watch_metrics(reflectors: Iterable[Reflector[Any]]) -> Values:
    """Metrics of the served resources."""
    every = {(one.path,): one.health() for one in reflectors}
    healths = {path: health for path, health in every.items() if health.served}
    return {
        "dovetail_watch_age_seconds": {path: health.age for path, health in healths.items()},
        "dovetail_watch_failures_total": {path: health.broken for path, health in healths.items()},
        "dovetail_lists_total": sum(health.lists for health in every.values()),
    }


def _kernel_metrics(service: LiveScheduler) -> Values:
    made = service.kernels.counts
    return {
        "dovetail_kernels_compiled_total": made.compiled,
        "dovetail_kernels_loaded_total": made.loaded,
        "dovetail_kernels_failed_total": made.failed,
        "dovetail_kernels_compiling": made.compiling,
        "dovetail_kernel_compile_seconds_total": made.seconds,
    }


def _driver_metrics(driver: Driver) -> Values:
    """What the scheduler has decided and written since it leads."""
    evictions, latencies = driver.preemptions.evictor.counts, driver.latencies
    return {
        "dovetail_decision_seconds": latencies.decisions,
        "dovetail_bind_seconds": {(): latencies.binds},
        "dovetail_pod_scheduling_seconds": {(): latencies.waits},
        "dovetail_pods_placed_total": driver.counts.placed,
        "dovetail_pods_bound_total": driver.counts.bound,
        "dovetail_bind_conflicts_total": driver.counts.conflicts,
        "dovetail_bind_refusals_total": driver.counts.refused,
        "dovetail_rescued_total": driver.counts.rescued,
        "dovetail_objects_set_aside_total": driver.set_aside.total,
        "dovetail_ledger_audits_total": driver.audit.rounds,
        "dovetail_ledger_differences_total": driver.audit.differences,
        "dovetail_ledger_rebuilds_total": driver.audit.rebuilds,
        "dovetail_binds_under_way": len(driver.binder.under_way),
        "dovetail_bind_writes_total": driver.binder.writes,
        "dovetail_throttled_total": driver.binder.gate.throttled,
        "dovetail_conditions_written_total": driver.teller.conditions_written,
        "dovetail_events_sent_total": driver.teller.sent,
        "dovetail_events_dropped_total": driver.teller.dropped,
        "dovetail_evictions_total": evictions.evicted,
        "dovetail_evictions_refused_total": evictions.refused,
        "dovetail_gangs_below_minimum": driver.releases.counts.below,
        "dovetail_gangs_released_total": driver.releases.counts.gangs,
        "dovetail_gang_members_released_total": driver.releases.counts.pods,
    }
