"""Traces of pods, as an OTLP collector on loopback gets them; a collector that is away or slow costs nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest

from dovetail.kube.live.metrics.latencies import Latencies
from dovetail.kube.live.tracing import MAX_ATTRIBUTE, MAX_TRACED_PODS, OtlpTracing, tracing
from dovetail.kube.log import INFO, Field, Level
from dovetail.model.decision import Decision
from dovetail.model.events import Bind, Wait
from dovetail.model.reason import Reason
from tests.builders import ask, pod

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


class Collector:
    """An OTLP/HTTP receiver: /v1/traces, protobuf. `slow`: it answers only when it is stopped."""

    def __init__(self, slow: bool = False) -> None:
        outer = self
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.end = Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if slow:
                    outer.end.wait(60)
                outer.take(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"

    def take(self, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            self.resources.append(_attributes(group.resource))
            self.spans += [span for scope in group.scope_spans for span in scope.spans]


@contextmanager
def collecting(slow: bool = False) -> Iterator[Collector]:
    made = Collector(slow)
    thread = Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.end.set()
        made.server.shutdown()
        made.server.server_close()


def _attributes(of: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in of.attributes}


class Lines:
    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, message: str, level: Level = INFO, /, **fields: Field) -> None:
        self.said.append(message)


def _traced(address: str, sample: float = 1.0) -> tuple[Latencies, OtlpTracing]:
    made = tracing(address, sample, {}, Lines())
    assert isinstance(made, OtlpTracing)
    latencies = Latencies()
    latencies.tracing = made
    return latencies, made


def _story(latencies: Latencies, name: str) -> None:
    """A pod waits for memory, is placed on node a, and bound."""
    one = pod(name, ask(1), scheduler="dovetail")
    latencies.arrived([one])
    began = latencies.clock()
    latencies.decided(began, [Wait(one, Decision(one.uid, None, (), Reason.NO_NODES, 1))])
    bind = Bind(one, Decision(one.uid, "a", (), Reason.OK, 2))
    latencies.decided(latencies.clock(), [bind])
    latencies.placed(one.uid)
    latencies.bound(one.uid)


def test_the_spans_of_one_pod() -> None:
    with collecting() as collector:
        latencies, made = _traced(collector.address)
        _story(latencies, "train-0")
        made.close()
        spans = collector.spans
    assert [span.name for span in spans] == ["decide", "decide", "bind", "schedule pod"]
    waited, placed, bind, root = spans
    assert {span.trace_id for span in spans} == {root.trace_id}
    assert {span.parent_span_id for span in (waited, placed, bind)} == {root.span_id}
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert _attributes(root) == {
        "k8s.namespace.name": "default",
        "k8s.pod.name": "train-0",
        "k8s.pod.uid": "uid-train-0",
        "dovetail.scheduler_name": "dovetail",
        "dovetail.outcome": "bound",
    }
    assert _attributes(waited) == {"dovetail.profile": "binpack × spread", "dovetail.reason": "NoNodes"}
    assert _attributes(placed) == {"dovetail.profile": "binpack × spread", "k8s.node.name": "a"}
    assert _attributes(bind) == {"k8s.node.name": "a", "dovetail.outcome": "bound"}
    assert collector.resources[0]["service.name"] == "dovetail-scheduler"


def test_a_collector_that_is_away_or_silent_costs_nothing() -> None:
    """20,000 spans are made while no collector takes them: more than the queue holds."""
    with collecting(slow=True) as silent:
        for address in ("http://127.0.0.1:9/v1/traces", silent.address):
            latencies, made = _traced(address)
            began = time.monotonic()
            for number in range(5_000):
                _story(latencies, f"p{number}")
            assert time.monotonic() - began < 20, address
            assert made.pods == 0
            silent.end.set()
            made.close()


def test_a_part_of_the_pods_is_traced() -> None:
    """The digest of the UID decides, so that a pod is traced as a whole: of 400 pods, a quarter or so."""
    with collecting() as collector:
        latencies, made = _traced(collector.address, 0.25)
        for number in range(400):
            _story(latencies, f"p{number}")
        made.close()
        roots = [span for span in collector.spans if span.name == "schedule pod"]
    assert 60 < len(roots) < 140
    assert len(collector.spans) == 4 * len(roots)


def test_pods_and_attributes_have_a_bound() -> None:
    with collecting() as collector:
        latencies, made = _traced(collector.address)
        for number in range(MAX_TRACED_PODS + 5):
            made.arrived(f"uid-{number}", f"ns/{'x' * 300}", "dovetail")
        assert made.pods == MAX_TRACED_PODS
        latencies.gone("uid-0")
        made.close()
        found = _attributes(collector.spans[0])
    assert len(found["k8s.pod.name"]) == MAX_ATTRIBUTE
    assert found["dovetail.outcome"] == "gone"


@pytest.mark.parametrize(
    ("endpoint", "sample", "environ"),
    [
        (None, 1.0, {}),
        ("http://c:4318/v1/traces", 0.0, {}),
        ("http://c:4318/v1/traces", 1.0, {"OTEL_SDK_DISABLED": "true"}),
    ],
)
def test_nothing_is_traced_unless_asked_for(endpoint: str | None, sample: float, environ: dict[str, str]) -> None:
    assert tracing(endpoint, sample, environ, Lines()) is None


def test_the_environment_names_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address may hold a password, which the log does not show."""
    with collecting() as collector:
        base = collector.address.removesuffix("/v1/traces")
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": base, "OTEL_SERVICE_NAME": "gpu-scheduler"}
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", base)
        lines = Lines()
        made = tracing(None, 1.0, environ, lines)
        assert made is not None
        latencies = Latencies()
        latencies.tracing = made
        _story(latencies, "p")
        made.close()
        assert collector.resources[0]["service.name"] == "gpu-scheduler"
    assert lines.said == [f"traces of pods are sent to {base}"]
    secret = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:hunter2@127.0.0.1:9"}
    tracing(None, 1.0, secret, lines)
    assert lines.said[-1] == "traces of pods are sent to http://127.0.0.1:9"
