"""The HTTP port for kubelet and Prometheus: liveness, readiness and metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from dovetail.kube.api.reflector import Reflector
from dovetail.kube.live.metrics_auth import Reviews
from dovetail.kube.live.metrics_text import CONTENT_TYPE, render
from dovetail.kube.live.peers import Peers
from dovetail.kube.live.port import HttpPort, PortAnswer, PortRequest, Serve
from dovetail.kube.live.service import LiveScheduler
from dovetail.kube.log import WARNING, Log

STALE_AFTER = 20.0  # seconds without a watch after which we are not ready
SILENT_AFTER = 120.0  # seconds without a byte on an open watch: servers send a bookmark each minute
SECONDS_KEPT = 0.1  # seconds for which the metrics are reused, for any number of readers


@asynccontextmanager
async def listening(
    host: str, port: int | None, service: LiveScheduler, log: Log, reviews: Reviews | None = None
) -> AsyncIterator[None]:
    """Serve while the block runs. None = do not serve. A port that is taken is logged and not fatal.

    `reviews`: readers of /metrics must be authorised by the API server. Kubelet's probes bring no token.
    """
    if port is None:
        yield
        return
    numbers = Numbers(service).serve
    routes: dict[str, Serve] = {
        "/healthz": _alive,
        "/readyz": lambda asked: _ready(service),
        "/metrics": reviews.reviewed(numbers) if reviews is not None else numbers,
    }
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(HttpPort(routes).listening(host, port))
            log(f"health and metrics on {host}:{port}")
        except OSError as error:
            log(f"--listen {host}:{port}: {error.strerror or error}; health and metrics are not served", WARNING)
        yield


async def _alive(asked: PortRequest) -> PortAnswer:
    return PortAnswer("ok")


async def _ready(service: LiveScheduler) -> PortAnswer:
    ready, text = readiness(service)
    return PortAnswer(text, 200 if ready else 503)


class Numbers:
    """The text of /metrics."""

    def __init__(self, service: LiveScheduler) -> None:
        self._service, self._text, self._until = service, "", 0.0

    async def serve(self, asked: PortRequest) -> PortAnswer:
        if time.monotonic() >= self._until:
            self._text, self._until = metrics(self._service), time.monotonic() + SECONDS_KEPT
        return PortAnswer(self._text, kind=CONTENT_TYPE)


def readiness(service: LiveScheduler) -> tuple[bool, str]:
    """Whether the scheduler works with a current view of the cluster; and what it is doing, or what is wrong."""
    stale = stale_views(service.reflectors)
    ready = service.ready and not stale
    state = (service.state,) if ready or not service.ready else ()
    return ready, "; ".join((*state, *stale, *peer_remarks(service.peers)))


def peer_remarks(peers: Peers) -> list[str]:
    """Facts about other Dovetails that operators should know, but that do not stop us."""
    said = []
    if peers.refused:
        said.append(f"other Dovetails cannot be looked for: {peers.refused}")
    if peers.elsewhere:
        said.append(f"Leases in other namespaces that claim the same nodes: {peers.elsewhere}, see the log")
    return said


def stale_views(reflectors: Iterable[Reflector[Any]]) -> list[str]:
    """Resources whose view may be out of date, with its age. Resources that are not served have no objects to miss."""
    said = []
    for reflector in reflectors:
        health = reflector.health()
        if health.served and health.age > (SILENT_AFTER if health.connected else STALE_AFTER):
            why = "the watch is silent" if health.connected else health.error or "no answer to the list"
            said.append(f"{reflector.path}: no current view for {health.age:.0f} s: {why}")
    return said


def watch_metrics(reflectors: Iterable[Reflector[Any]]) -> dict[str, dict[str, float]]:
    """Metrics of the served resources: by metric, then by resource."""
    healths = {reflector.path: health for reflector in reflectors if (health := reflector.health()).served}
    return {
        "dovetail_watch_age_seconds": {path: health.age for path, health in healths.items()},
        "dovetail_watch_failures_total": {path: health.broken for path, health in healths.items()},
    }


def metrics(service: LiveScheduler) -> str:
    """All metrics in Prometheus' text format."""
    numbers: dict[str, float] = {
        "dovetail_ready": float(readiness(service)[0]),
        "dovetail_nodes": len(service.mirror.nodes),
        "dovetail_pods_known": len(service.mirror.pods),
        "dovetail_pods_waiting": len(service.scheduler.waiting),
        "dovetail_peers_elsewhere": service.peers.elsewhere,
        "dovetail_peers_unknown": float(bool(service.peers.refused)),
    }
    made = service.kernels.counts
    numbers |= {
        "dovetail_kernels_compiled_total": made.compiled,
        "dovetail_kernels_loaded_total": made.loaded,
        "dovetail_kernels_failed_total": made.failed,
        "dovetail_kernels_compiling": made.compiling,
        "dovetail_kernel_compile_seconds_total": made.seconds,
    }
    if service.driver is not None:
        driver = service.driver
        counts = driver.counts
        numbers |= {
            "dovetail_pods_placed_total": counts.placed,
            "dovetail_pods_bound_total": counts.bound,
            "dovetail_bind_conflicts_total": counts.conflicts,
            "dovetail_bind_refusals_total": counts.refused,
            "dovetail_rescued_total": counts.rescued,
            "dovetail_objects_set_aside_total": driver.set_aside.total,
            "dovetail_ledger_audits_total": driver.audit.rounds,
            "dovetail_ledger_differences_total": driver.audit.differences,
            "dovetail_ledger_rebuilds_total": driver.audit.rebuilds,
            "dovetail_records_changed_total": service.mirror.records_changed,
            "dovetail_records_unverified": sum(known.unverified for known in service.mirror.pods.values()),
            "dovetail_records_sealed": float(service.seals_records),
            "dovetail_nodes_unsettled": sum(1 for node in service.mirror.nodes.values() if node.unsettled),
            "dovetail_binds_under_way": len(driver.binder.under_way),
            "dovetail_bind_writes_total": driver.binder.writes,
            "dovetail_throttled_total": driver.binder.gate.throttled,
            "dovetail_conditions_written_total": driver.teller.conditions_written,
            "dovetail_events_sent_total": driver.teller.sent,
            "dovetail_events_dropped_total": driver.teller.dropped,
        }
    lists = sum(reflector.health().lists for reflector in service.reflectors)
    numbers["dovetail_lists_total"] = lists
    return render(numbers, watch_metrics(service.reflectors))
