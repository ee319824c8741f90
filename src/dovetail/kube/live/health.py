"""A port for kubelet and Prometheus: alive, ready, and a few numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from dovetail.kube.live.service import Service


@asynccontextmanager
async def listening(host: str, port: int | None, service: Service, log: Callable[..., None]) -> AsyncIterator[None]:
    """Serves while the block runs. None = nowhere. A port that is taken is said and not fatal."""
    if port is None:
        yield
        return
    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", lambda request: _text("ok")),
            web.get("/readyz", lambda request: _text(service.state, 200 if service.ready else 503)),
            web.get("/metrics", lambda request: _text(metrics(service))),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        log(f"health and metrics on {host}:{port}")
    except OSError as error:
        log(f"--listen {host}:{port}: {error.strerror or error}; health and metrics are not served")
    try:
        yield
    finally:
        await runner.cleanup()


async def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text + "\n", status=status)


def metrics(service: Service) -> str:
    """Prometheus' text format."""
    numbers: dict[str, float] = {
        "dovetail_ready": float(service.ready),
        "dovetail_nodes": len(service.mirror.nodes),
        "dovetail_pods_known": len(service.mirror.pods),
        "dovetail_pods_waiting": len(service.scheduler.waiting),
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
            "dovetail_binds_under_way": len(driver.binder.under_way),
            "dovetail_bind_writes_total": driver.binder.writes,
            "dovetail_throttled_total": driver.binder.gate.throttled,
            "dovetail_conditions_written_total": driver.teller.conditions_written,
            "dovetail_events_sent_total": driver.teller.sent,
            "dovetail_events_dropped_total": driver.teller.dropped,
        }
    lists = sum(reflector.health().lists for reflector in service.reflectors)
    numbers["dovetail_lists_total"] = lists
    return "\n".join(f"{name} {value:g}" for name, value in numbers.items())
