"""OpenTelemetry traces of pods, if they are asked for: arrival, decisions and binding, sent as OTLP over HTTP.

The loop only makes spans and puts them into a bounded queue. A thread of OpenTelemetry sends them. Spans are dropped
when the queue is full: a collector that is slow or away never slows the loop. The extra `tracing` has the libraries.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from dovetail import __version__
from dovetail.kube.log import WARNING, Log

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MAX_TRACED_PODS = 10_000  # that wait; further pods are not traced until some of them are bound or gone
MAX_QUEUED_SPANS = 8_192  # that wait to be sent; further ones are dropped
MAX_ATTRIBUTE = 256  # characters
BETWEEN_SENDS = 2_000  # milliseconds
LONGEST_SEND = 5  # seconds for one request to the collector
AT_END = 2_000  # milliseconds for what is left when the process ends
WHOLE = 1 << 32


class Tracing(Protocol):
    """What the driver tells of each pod."""

    def arrived(self, uid: str, key: str, scheduler: str) -> None: ...

    def decided(self, uid: str, began: float, node: str, profile: str, reason: str) -> None:
        """The decision that began at `began` (time.time) has ended; `node` "" = the pod waits, because of `reason`."""

    def bound(self, uid: str) -> None: ...

    def gone(self, uid: str) -> None: ...


class _Traced:
    """A pod that is not bound yet."""

    __slots__ = ("binding", "root")

    def __init__(self, root: Span) -> None:
        self.root = root
        self.binding: Span | None = None


class OtlpTracing:
    """Makes a trace for each pod: `schedule pod` with `decide` for each decision, and `bind`."""

    def __init__(self, provider: TracerProvider, sample: float) -> None:
        self._provider, self._sample = provider, int(sample * WHOLE)
        self._tracer = provider.get_tracer("dovetail", __version__)
        self._pods: dict[str, _Traced] = {}  # by uid

    def arrived(self, uid: str, key: str, scheduler: str) -> None:
        if uid in self._pods or len(self._pods) >= MAX_TRACED_PODS or zlib.crc32(uid.encode()) >= self._sample:
            return
        namespace, _, name = key.partition("/")
        about = {"k8s.namespace.name": namespace, "k8s.pod.name": name, "k8s.pod.uid": uid}
        about["dovetail.scheduler_name"] = scheduler
        root = self._tracer.start_span("schedule pod", attributes=_short(about))
        self._pods[uid] = _Traced(root)

    def decided(self, uid: str, began: float, node: str, profile: str, reason: str) -> None:
        traced = self._pods.get(uid)
        if traced is None:
            return
        about = {"dovetail.profile": profile, "k8s.node.name": node} if node else {"dovetail.profile": profile}
        if reason:
            about["dovetail.reason"] = reason
        parent, now = _below(traced.root), time.time_ns()
        start = int(began * 1e9)
        span = self._tracer.start_span("decide", parent, attributes=_short(about), start_time=start)
        span.end(max(now, start))
        if node:
            self._end_binding(traced, "placed again")
            traced.binding = self._tracer.start_span("bind", parent, attributes=_short({"k8s.node.name": node}))

    def bound(self, uid: str) -> None:
        self._end(uid, "bound")

    def gone(self, uid: str) -> None:
        self._end(uid, "gone")

    def _end(self, uid: str, outcome: str) -> None:
        traced = self._pods.pop(uid, None)
        if traced is not None:
            self._end_binding(traced, outcome)
            traced.root.set_attribute("dovetail.outcome", outcome)
            traced.root.end()

    def _end_binding(self, traced: _Traced, outcome: str) -> None:
        if traced.binding is not None:
            traced.binding.set_attribute("dovetail.outcome", outcome)
            traced.binding.end()
            traced.binding = None

    @property
    def pods(self) -> int:
        """How many pods are traced at the moment."""
        return len(self._pods)

    def close(self) -> None:
        """Send what is left, for a bounded time."""
        self._provider.force_flush(AT_END)


def tracing(endpoint: str | None, sample: float, environ: Mapping[str, str], log: Log) -> OtlpTracing | None:
    """Tracing to this address, or to that of the environment; none if neither is given or the libraries are missing."""
    if sample == 0 or not (endpoint or any(environ.get(name) for name in ENDPOINTS)):
        return None
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        log(f"no traces: {error.name} is not installed: pip install 'dovetail[tracing]'", WARNING)
        return None
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it would print a traceback for each failed send
    resource = Resource.create({"service.name": environ.get("OTEL_SERVICE_NAME") or "dovetail-scheduler"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=LONGEST_SEND)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=MAX_QUEUED_SPANS, schedule_delay_millis=BETWEEN_SENDS)
    )
    log(f"traces of pods are sent to {_address(endpoint, environ)}")
    return OtlpTracing(provider, sample)


def _address(endpoint: str | None, environ: Mapping[str, str]) -> str:
    """The address for the log, without user and password."""
    text = endpoint or next(environ[name] for name in ENDPOINTS if environ.get(name))
    scheme, sign, rest = text.partition("://")
    return f"{scheme}{sign}{rest.rpartition('@')[2]}"


def _below(span: Span) -> Context:
    from opentelemetry.trace import set_span_in_context

    return set_span_in_context(span)


def _short(about: Mapping[str, str]) -> dict[str, str]:
    return {name: value[:MAX_ATTRIBUTE] for name, value in about.items()}
