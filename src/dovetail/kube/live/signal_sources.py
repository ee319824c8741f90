"""Where measured load comes from: the metrics API (metrics.k8s.io) of the API server, and a Prometheus server.

Each source is asked in turn by signals.py. An answer is bounded in size and time; an error is one text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError
from dovetail.kube.api.kubeconfig import Connection, KubeconfigError, Pem
from dovetail.kube.conversion.measured import (
    SERIES_LABELS,
    Answer,
    Kind,
    Labels,
    NoAnswer,
    Places,
    Value,
    of_metrics_api,
    of_prometheus,
)

NODE_METRICS = "/apis/metrics.k8s.io/v1beta1/nodes"
MAX_ANSWER_BYTES = 64 << 20
LARGE_ANSWER_BYTES = 256 << 10  # more is read beside the event loop
# Names of NVIDIA's DCGM exporter and of Prometheus' node exporter; every value is per cent.
QUERIES: Mapping[str, str] = {
    Kind.CARD.value: "DCGM_FI_DEV_GPU_UTIL",
    Kind.CARD_MEMORY.value: "100 * DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)",
    Kind.CPU.value: '100 * (1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m])))',
    Kind.CPU_DEVIATION.value: (
        '100 * stddev_over_time((1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[1m])))[15m:1m])'
    ),
    Kind.MEMORY.value: "100 * (1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)",
    Kind.MEMORY_DEVIATION.value: (
        "100 * stddev_over_time((1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)[15m:1m])"
    ),
}


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    url: str
    queries: Mapping[str, str] = field(default_factory=lambda: QUERIES)  # Kind -> PromQL, "" = do not ask
    labels: Labels = SERIES_LABELS
    token_file: Path | None = None
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class SignalOptions:
    """Which sources are asked, and how long a value counts."""

    metrics_api: bool = False
    prometheus: PrometheusOptions | None = None
    every_seconds: float = 15.0
    stale_seconds: float = 180.0
    window_seconds: float = 300.0  # over which mean and deviation are taken, where a source gives no deviation


NO_SIGNALS = SignalOptions()


class SignalSource(Protocol):
    name: str  # for messages

    async def read(self, places: Places, now: float) -> tuple[Answer, str]:
        """The values, and what went wrong ("" = nothing)."""

    async def close(self) -> None: ...


class MetricsApi:
    """NodeMetrics of the API server."""

    name = "the metrics API"

    def __init__(self, api: Api, stale: float) -> None:
        self._api, self._stale = api, stale

    async def read(self, places: Places, now: float) -> tuple[Answer, str]:
        try:
            body = await self._api.get_at_most(NODE_METRICS, None, MAX_ANSWER_BYTES)
            return of_metrics_api(body, places, now, self._stale), ""
        except (ApiError, NoAnswer) as error:
            return Answer(), str(error)

    async def close(self) -> None:
        """The connection is that of the scheduler."""


class Prometheus:
    """Instant queries of Prometheus' HTTP API, one for each kind of value."""

    def __init__(self, options: PrometheusOptions, stale: float, seconds: float) -> None:
        self.name = f"Prometheus {options.url}"
        self._options, self._stale = options, stale
        ca = Pem(path=options.ca_file) if options.ca_file is not None else None
        url = options.url.rstrip("/")
        connection = Connection(url, "signals.prometheus", ca=ca, token_file=options.token_file)
        self._api = Api(Credentials(connection), connections=4, timeout=seconds)

    async def read(self, places: Places, now: float) -> tuple[Answer, str]:
        values: list[Value] = []
        refused: list[str] = []
        unknown, wrong = 0, ""
        for name, query in self._options.queries.items():
            if not query:
                continue
            # Prometheus 2.x ignores lookback_delta where it does not know it, and looks back five minutes.
            asked = {"query": query, "lookback_delta": f"{self._stale:g}s"}
            try:
                body = await self._api.get_at_most("/api/v1/query", asked, MAX_ANSWER_BYTES)
                given = (body, Kind(name), self._options.labels, places, now, self._stale)
                is_large = len(body) > LARGE_ANSWER_BYTES
                answer = await asyncio.to_thread(of_prometheus, *given) if is_large else of_prometheus(*given)
            except (ApiError, NoAnswer, KubeconfigError, OSError) as error:
                wrong = wrong or f"{name}: {error}"
                continue
            values += answer.values
            refused += answer.refused
            unknown += answer.unknown
        return Answer(tuple(values), tuple(refused), unknown), wrong

    async def close(self) -> None:
        await self._api.close()


def sources_of(options: SignalOptions, api: Api, seconds: float) -> tuple[SignalSource, ...]:
    """The sources that are configured. Later ones win where two measure the same."""
    found: list[SignalSource] = []
    if options.metrics_api:
        found.append(MetricsApi(api, options.stale_seconds))
    if options.prometheus is not None:
        found.append(Prometheus(options.prometheus, options.stale_seconds, seconds))
    return tuple(found)
