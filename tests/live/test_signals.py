"""Measured load on the real control plane: pods follow it; the sources die, return and lie, and placement goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail.policies.table import NODE_POLICIES
from tests.live.dovetail_process import Dovetail
from tests.live.load_sources import Exporter, MetricsApi, Prometheus, aggregated, find_prometheus, stopped
from tests.live.test_scheduling import placed
from tools.controlplane import objects
from tools.controlplane.access import SHIPPED, component, grant_dovetail
from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane

PART = objects.gpu_limits(1, memory=100)
SOON = 40.0
CONFIG = """apiVersion: dovetail.dev/v1
kind: Config
nodePolicy: {node}
gpuPolicy: {gpu}
signals: {{{source}, everySeconds: 1, staleAfterSeconds: 4, windowSeconds: {window}}}
"""


@contextmanager
def watching(
    plane: ControlPlane, folder: Path, source: str, node: str, gpu: str, window: int = 0
) -> Iterator[Dovetail]:
    """Dovetail with the tests' load-aware policies, the shipped rights, and this source."""
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(node=node, gpu=gpu, source=source, window=window))
    grant_dovetail(plane.client(), *SHIPPED, component("signals"))
    dovetail = Dovetail(plane, "--config", str(config))
    dovetail._command[:1] = [sys.executable, "-m", "tests.live.load_aware_dovetail"]
    try:
        dovetail.start()
        yield dovetail
    finally:
        dovetail.stop()


class Scene:
    """Places pods one by one, after the scheduler has heard what changed."""

    def __init__(self, api: Client, dovetail: Dovetail) -> None:
        self.api, self.dovetail, self._number = api, dovetail, 0

    def goes(self, **more: str) -> str:
        self._number += 1
        self.api.create(objects.pod(f"p{self._number}", {**PART, **more}))
        return placed(self.api, f"p{self._number}")[0]

    def card(self) -> str:
        """The card of the next pod."""
        self.goes()
        notes = self.api.get("Pod", f"p{self._number}")["metadata"]["annotations"]
        return str(notes["hami.io/vgpu-devices-allocated"]).partition(",")[0]

    def until_log(self, text: str, times: int = 1) -> None:
        self.api.wait_until(lambda: self.dovetail.words().count(text) >= times, f"the log says {text!r}", SOON)

    def until_metric(self, name: str, value: float) -> None:
        def is_so() -> bool:
            return self.dovetail.metric(name) == value

        self.api.wait_until(is_so, f"{name} is {value}", SOON)


def heard(api: Client, source: MetricsApi | Exporter, part: str) -> None:
    """Wait until the source was asked twice more: what the first answer said has arrived."""
    before = source.count(part)
    api.wait_until(lambda: source.count(part) >= before + 3, "the source is asked again", SOON)


def test_pods_follow_the_metrics_api_which_dies_returns_and_lies(
    plane: ControlPlane, api: Client, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        api.create(objects.node(name, gpus=4))  # 32 cores
    stub = MetricsApi(plane)
    stub.cpu = {"a": "16", "b": "3200m"}
    with aggregated(api, stub), watching(plane, tmp_path, "metricsApi: true", "coolest", "spread") as dovetail:
        scene = Scene(api, dovetail)
        scene.until_metric("dovetail_nodes_measured", 2)
        assert scene.goes() == "b"  # 500 v 100 per mille
        stub.cpu = {"a": "1600m", "b": "16"}
        heard(api, stub, "/nodes")
        assert scene.goes() == "a"  # 50 v 500
        for lie, why in (
            ("-5", "is negative (-15.62 %)"),
            ("320000", "is 1,000,000 %, more than"),
            ("NaN", "is no number"),
        ):
            stub.cpu = {"a": "1600m", "b": lie}
            scene.until_log(f"cpu of node b {why}")
            assert f"cpu of node b {why}" in dovetail.get("/readyz")[1]
            scene.goes()
            stub.cpu = {"a": "1600m", "b": "16"}
            scene.until_metric("dovetail_signal_sources_failing", 0)
        scene.until_log("measured load from the metrics API is well again", times=3)
        stub.age = timedelta(hours=1)
        scene.until_metric("dovetail_nodes_measured", 0)  # everything is stale
        scene.goes()
        stub.age = timedelta(seconds=1)
        scene.until_metric("dovetail_nodes_measured", 2)
        assert scene.goes() == "a"
        stub.stop()
        scene.until_metric("dovetail_nodes_measured", 0)
        scene.until_metric("dovetail_signal_sources_failing", 1)
        assert dovetail.get("/readyz")[0] == 200
        scene.goes()
        stub.start()
        scene.until_metric("dovetail_signal_sources_failing", 0)
        scene.until_metric("dovetail_nodes_measured", 2)
        assert scene.goes() == "a"
        assert dovetail.metric("dovetail_objects_set_aside_total") == 0


def test_looking_for_a_prometheus_never_fails_the_build() -> None:
    script = Path(__file__).parent.parent.parent / ".ci" / "prometheus"
    nothing = {"PATH": "/nonexistent"}  # neither a Prometheus nor a package manager
    done = subprocess.run(["/bin/sh", str(script)], capture_output=True, text=True, env=nothing, check=True)
    assert done.stdout == "No prometheus here: the test of measured load with Prometheus will be skipped\n"


@pytest.mark.skipif("target-load" not in NODE_POLICIES, reason="the policy is not there yet")
def test_target_load_fills_up_to_40_per_cent(plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    for name in ("a", "b"):
        api.create(objects.node(name, gpus=4, resources={"cpu": "10"}))
    stub = MetricsApi(plane)
    stub.cpu = {"a": "4", "b": "3"}
    with aggregated(api, stub), watching(plane, tmp_path, "metricsApi: true", "target-load", "spread") as dovetail:
        scene = Scene(api, dovetail)
        scene.until_metric("dovetail_nodes_measured", 2)
        assert scene.goes(cpu="1") == "b"  # with the pod: 50 % scores 33, 40 % scores 100
        stub.cpu = {"a": "1", "b": "6"}
        heard(api, stub, "/nodes")
        assert scene.goes(cpu="1") == "a"  # 20 % scores 70; 60 % and two pods that are not shown yet score 13


@pytest.mark.skipif("load-variation" not in NODE_POLICIES, reason="the policy is not there yet")
def test_load_variation_takes_the_steady_node(plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    for name in ("a", "b"):
        api.create(objects.node(name, gpus=4, resources={"cpu": "10"}))
    stub = MetricsApi(plane)
    stub.cpu = {"a": ("1", "7"), "b": "5"}
    source = "metricsApi: true"
    with aggregated(api, stub), watching(plane, tmp_path, source, "load-variation", "spread", 60) as dovetail:
        for _ in range(3):
            heard(api, stub, "/nodes")
        # a: mean 40 %, deviation 30 %: 100 × (1 − (0.5 + 0.3) / 2) = 60; b: steady 50 %: 100 × (1 − 0.6 / 2) = 70.
        assert Scene(api, dovetail).goes(cpu="1") == "b"


def test_pods_follow_prometheus_which_dies_returns_and_lies(plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    find_prometheus()
    api.create(objects.node("a", gpus=3))
    exporter = Exporter()
    prometheus = Prometheus(exporter, tmp_path)
    exporter.says(a0=80, a1=10, a2=50)
    with stopped(prometheus, exporter):
        exporter.start()
        prometheus.start()
        only = "queries: {cpu: '', cpuDeviation: '', memory: '', memoryDeviation: '', gpuMemory: ''}"
        source = f"prometheus: {{url: 'http://127.0.0.1:{prometheus.port}', {only}}}"
        with watching(plane, tmp_path, source, "binpack", "cool-card") as dovetail:
            scene = Scene(api, dovetail)
            scene.until_metric("dovetail_nodes_measured", 1)
            assert scene.card() == "GPU-a-1"
            exporter.says(a0=5, a1=90, a2=50)
            heard(api, exporter, "/metrics")
            api.wait_until(lambda: scene.card() == "GPU-a-0", "pods go to the card with 5 %", SOON)
            for lie, why in (("-3", "is negative (-3 %)"), ("NaN", "is no number"), ("1200", "is 1,200 %, more than")):
                exporter.says(a0=5, a1=90, a2=lie)
                scene.until_log(f"gpu of card GPU-a-2 of node a {why}")
                scene.card()
                exporter.says(a0=5, a1=90, a2=50)
                scene.until_metric("dovetail_signal_sources_failing", 0)
            exporter.says(a0=95, a1=90, a2=2)
            scene.until_metric("dovetail_signal_sources_failing", 0)
            api.wait_until(lambda: scene.card() == "GPU-a-2", "pods go to the card with 2 %", SOON)
            exporter.stop()  # Prometheus drops the series with the next scrape
            scene.until_metric("dovetail_nodes_measured", 0)
            scene.card()
            exporter.start()
            scene.until_metric("dovetail_nodes_measured", 1)
            prometheus.stop()
            scene.until_metric("dovetail_signal_sources_failing", 1)
            scene.until_metric("dovetail_nodes_measured", 0)
            scene.card()
            prometheus.start()
            scene.until_metric("dovetail_signal_sources_failing", 0)
            scene.until_metric("dovetail_nodes_measured", 1)
            assert scene.card() == "GPU-a-2"


def test_without_the_right_to_read_metrics_the_scheduler_says_so_and_places(
    plane: ControlPlane, api: Client, tmp_path: Path
) -> None:
    api.create(objects.node("a", gpus=1))
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(node="binpack", gpu="spread", source="metricsApi: true", window=0))
    grant_dovetail(api)
    dovetail = Dovetail(plane, "--config", str(config))
    try:
        dovetail.start()
        assert Scene(api, dovetail).goes() == "a"
        assert "measured load from the metrics API" in dovetail.words()
        assert dovetail.get("/readyz")[0] == 200
    finally:
        dovetail.stop()
