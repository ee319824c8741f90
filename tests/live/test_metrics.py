"""The metrics of a real scheduler on a real control plane, as a real Prometheus reads and evaluates them."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.kube.live.metrics.table import METRICS
from tests.live.dovetail_process import Dovetail, scheduling
from tests.live.load_sources import Prometheus, find_prometheus, stopped
from tests.live.test_scheduling import placed
from tests.monitoring import ALERTS, DASHBOARDS, queries_of
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

SCRAPE = """global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: dovetail-scheduler
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""
# An alert that HAMi users have: a card is nearly full.
HAMI_ALERT = (
    'max by (node, device_uuid) (hami_gpu_memory_allocated_bytes{zone="vGPU"}'
    ' / on(node, device_uuid) hami_gpu_memory_limit_bytes{zone="vGPU"}) > 0.9'
)
OLD_ALERT = 'sum by (nodeid) (GPUDeviceMemoryAllocated{zone="vGPU"}) / sum by (nodeid) (GPUDeviceMemoryLimit) > 0.4'
CONFIG = """apiVersion: dovetail.dev/v1
kind: Config
queues:
  - {name: research, namespaces: [default], guarantee: {gpus: 4}, ceiling: {gpus: 4}}
"""


class Scraper(Prometheus):
    """Prometheus that scrapes a scheduler, with the shipped rules."""

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(_Target(port), folder)  # type: ignore[arg-type]
        rules = folder / "rules.yaml"
        rules.write_text(yaml.safe_dump({"groups": ALERTS}))
        (folder / "prometheus.yml").write_text(SCRAPE.format(rules=rules, port=port))

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        found: list[dict[str, Any]] = self.get("query", query=query)["result"]
        return found

    def get(self, path: str, **params: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(params)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        assert not said.get("warnings"), said
        return said["data"]

    def value(self, query: str) -> float | None:
        found = self.ask(query) if self.is_up() else []
        return float(found[0]["value"][1]) if found else None

    def is_up(self) -> bool:
        try:
            return bool(self.ask('up{job="dovetail-scheduler"} == 1'))
        except OSError:
            return False


class _Target:
    def __init__(self, port: int) -> None:
        self.port = port


@pytest.fixture
def scraped(plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path) -> Iterator[tuple[Dovetail, Scraper]]:
    """Two nodes of two cards; a pod with 95 % of a card, one with two cards, one that fits nowhere; two are bound."""
    find_prometheus()
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    for name in ("a", "b"):
        api.create(node(name, gpus=2))
    with scheduling(plane, "--config", str(config), "--hami-metrics", "legacy") as dovetail:
        api.create(pod("part", gpu_limits(1, memory=14_600, cores=50)))
        api.create(pod("whole", gpu_limits(2)))
        api.create(pod("huge", gpu_limits(3)))
        placed(api, "part", "whole")
        prometheus = Scraper(dovetail.port, tmp_path)
        with stopped(prometheus):
            prometheus.start()
            api.wait_until(prometheus.is_up, "Prometheus scrapes the scheduler", 60)
            bound = 'dovetail_pods_bound_total and on() (sum(dovetail_waiting_pods{reason=~"Queue[BC].+"}) == 1)'
            api.wait_until(lambda: prometheus.value(bound) == 2, "two pods bound, one waits with its reason", 60)
            yield dovetail, prometheus


def test_prometheus_reads_every_metric_and_evaluates_every_panel_and_alert(scraped: tuple[Dovetail, Scraper]) -> None:
    dovetail, prometheus = scraped
    _types_and_values(dovetail, prometheus)
    for query in {query for path in DASHBOARDS for query in queries_of(path)}:
        prometheus.ask(query)
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == sum(len(group["rules"]) for group in ALERTS)
    assert [rule for rule in rules if rule.get("lastError")] == []
    found = {series["metric"]["device_uuid"] for series in prometheus.ask(HAMI_ALERT)}
    assert len(found) == 3  # one card at 14,600 of 15,360 MiB, and two whole cards
    # 14,600 of 30,720 MiB on one node, all of the other: both above 40 %
    assert {series["metric"]["nodeid"] for series in prometheus.ask(OLD_ALERT)} == {"a", "b"}


def _types_and_values(dovetail: Dovetail, prometheus: Scraper) -> None:
    told = prometheus.get("targets/metadata", match_target='{job="dovetail-scheduler"}')
    types = {one["metric"]: one["type"] for one in told}
    text = dovetail.get("/metrics")[1]
    served = set(re.findall(r"(?m)^# TYPE (\S+) ", text))
    beside = {name for name in METRICS if name.startswith(("dovetail_webhook_", "dovetail_extender_"))}
    assert set(METRICS) - served == beside  # every line of docs/metrics.md, but what is not served beside it
    assert types == {name: METRICS[name].kind if name in METRICS else "gauge" for name in served}
    model = '{model="NVIDIA Tesla T4"}'
    for query, value in {
        f"dovetail_gpus{model}": 4,
        f"dovetail_gpus_in_use{model}": 3,
        f"dovetail_gpus_whole_free{model}": 1,
        f"dovetail_gpus_largest_free_block{model}": 1,
        "sum(dovetail_gpus_held_idle)": 0,
        "dovetail_leader": 1,
        'sum(dovetail_waiting_pods{reason="QueueCeiling"} or dovetail_waiting_pods{reason="QueueBorrowing"})': 1,
        "dovetail_ready": 1,
        "dovetail_pod_scheduling_seconds_count": 2,
        "dovetail_bind_seconds_count": 2,
        'dovetail_decision_seconds_count{result="placed"}': 2,
        'dovetail_api_requests_total{verb="create",resource="pods/binding",code="201"}': 2,
        'dovetail_queue_used{queue="research",resource="gpus"}': 2.951,  # 14,600 / 15,360 is 0.951, and two
        'dovetail_queue_ceiling{queue="research",resource="gpus"}': 4,
    }.items():
        assert prometheus.value(query) == value, query


def test_readyz_names_each_check(plane: ControlPlane, api: Client) -> None:
    with scheduling(plane) as dovetail:
        code, text = dovetail.get("/readyz?verbose")
        assert code == 200
        assert text.startswith("[+]state ok: ready\n[+]lease ok\n")
        assert "\n[+]watch /api/v1/pods ok\n" in text
        assert text.endswith("readyz check passed\n")
        assert dovetail.get("/livez") == (200, "ok\n")
