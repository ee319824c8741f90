"""A scheduler with every metric there is: a real engine, and stand-ins for the parts that only count."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.admission.counts import WebhookCounts
from dovetail.kube.api.reflector import Health
from dovetail.kube.api.request_counts import RequestCounts
from dovetail.kube.extender.extender import Extender, ExtenderOptions
from dovetail.kube.live.evictor import EvictionCounts
from dovetail.kube.live.gang_releases import ReleaseCounts
from dovetail.kube.live.health import readiness
from dovetail.kube.live.kernels import KernelCounts
from dovetail.kube.live.known import Known
from dovetail.kube.live.metrics.hami import HamiMetricsOptions
from dovetail.kube.live.metrics.latencies import Latencies
from dovetail.kube.live.metrics.page import Metrics
from dovetail.kube.live.metrics.text import Page
from dovetail.kube.live.metrics.webhook import webhook_metrics
from dovetail.kube.live.service import LiveScheduler
from dovetail.kube.log import silent

NOW = 1_000.0
WELL = Health(synced=True, served=True, connected=True, quiet=1, age=1.5, failures=0, lists=2, broken=7, error="")


def engine() -> Scheduler:
    return Scheduler({}, (), "interpreted", ("nvidia.com/gpu",), True)


def driver(bound: int = 0, **parts: Any) -> SimpleNamespace:
    made = {
        "counts": SimpleNamespace(placed=bound, bound=bound, conflicts=1, refused=2, rescued=0),
        "set_aside": SimpleNamespace(total=0),
        "binder": SimpleNamespace(under_way=(), writes=bound, gate=SimpleNamespace(throttled=3)),
        "teller": SimpleNamespace(conditions_written=1, sent=2, dropped=0),
        "audit": SimpleNamespace(rounds=4, differences=0, rebuilds=0),
        "preemptions": SimpleNamespace(evictor=SimpleNamespace(counts=EvictionCounts(evicted=5, refused=1))),
        "releases": SimpleNamespace(counts=ReleaseCounts(gangs=1, pods=2)),
        "latencies": Latencies(),
        "on_the_way": {},
    }
    return SimpleNamespace(**{**made, **parts})


def extender_page() -> Page:
    """The metrics of an extender that leads, and that nobody has asked yet."""
    extender = Extender(cast(LiveScheduler, SimpleNamespace()), ExtenderOptions(), silent)
    parts = SimpleNamespace(reserved=[], made=0, expired=0)
    extender._parts = cast(Any, (None, parts, None, None))
    return extender.page()


def service(
    scheduler: Scheduler | None = None, pods: dict[str, Known] | None = None, health: Health = WELL, **parts: Any
) -> LiveScheduler:
    reflectors = [SimpleNamespace(path="/api/v1/pods", health=lambda: health)]
    made = {
        "reflectors": reflectors,
        "signals": SimpleNamespace(remarks=[], measured_nodes=2, states=[SimpleNamespace(trouble="", refused=1)]),
        "ready": True,
        "state": "ready",
        "mirror": SimpleNamespace(nodes={}, pods=pods or {}, records_changed=0),
        "scheduler": scheduler or engine(),
        "driver": driver(),
        "kernels": SimpleNamespace(counts=KernelCounts(compiled=1, seconds=12.25)),
        "peers": SimpleNamespace(refused="", elsewhere=0),
        "election": SimpleNamespace(is_sure=lambda: True),
        "api": SimpleNamespace(counts=RequestCounts()),
        "seals_records": True,
        "recorder": None,
        "sources": SimpleNamespace(unrouted=SimpleNamespace(by_state={("waiting",): 1, ("bound",): 2})),
        "more_metrics": (lambda: webhook_metrics(WebhookCounts()), extender_page),
        "now": lambda: NOW,
    }
    return cast(LiveScheduler, SimpleNamespace(**{**made, **parts}))


def metrics(of: LiveScheduler, hami: HamiMetricsOptions | None = None) -> str:
    """The text of /metrics."""
    return asyncio.run(Metrics(of, lambda: readiness(of)[0], hami).text())


def sample(text: str, series: str) -> float:
    """The value of one series, written as in the text."""
    found = [line for line in text.splitlines() if line.startswith(f"{series} ")]
    assert len(found) == 1, (series, found)
    return float(found[0].rpartition(" ")[2])


def series(text: str, name: str) -> Counter[str]:
    """All series of a metric: labels -> value."""
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
    return Counter({left.removeprefix(name): int(float(value)) for left, _, value in lines})
