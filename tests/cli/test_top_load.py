"""`dovetail top`: measured load beside what is given to pods, and what is said where none is measured."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from dovetail.cli import board as boards
from dovetail.cli.board import Board, MeasuredLoad
from dovetail.cli.following import BoardStream
from dovetail.cli.measured_load import LoadMeter
from dovetail.cli.options import ClusterOptions
from dovetail.cli.top_view import TopChoice, frame
from dovetail.kube.api.retry import World
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.live.cluster_follower import ClusterFollower
from dovetail.kube.live.signal_sources import NODE_METRICS, SignalOptions
from dovetail.model.node import Node
from dovetail.model.signals import CardSignals, NodeSignals
from tests.builders import card, node
from tests.cli.answering import answering, kubeconfig
from tests.cli.conftest import Run
from tests.kube import manifests

HEAD = "apiVersion: dovetail.dev/v1\nkind: Config\n"
METRICS_API = "signals: {metricsApi: true}\n"


def cluster(path: str) -> bytes | None:
    """A node `n` with 8 cores, 32 GiB and two cards. Its CPU is measured, and of its cards GPU-a."""
    place, _, query = path.partition("?")
    if place == "/api/v1/nodes":
        there = manifests.node("n", manifests.card("GPU-a", index=0), manifests.card("GPU-b", index=1))
        return json.dumps({"metadata": {}, "items": [there]}).encode()
    if place == NODE_METRICS:
        now = datetime.now(UTC).isoformat()
        item = {"metadata": {"name": "n"}, "timestamp": now, "usage": {"cpu": "2", "memory": "8Gi"}}
        return json.dumps({"kind": "NodeMetricsList", "items": [item]}).encode()
    if place == "/api/v1/query":
        value = {"DCGM_FI_DEV_GPU_UTIL": "85", "FB_USED": "71"}
        found = next((text for name, text in value.items() if name in query), None)
        series = [{"metric": {"UUID": "GPU-a"}, "value": [datetime.now(UTC).timestamp(), found]}] if found else []
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}}).encode()
    return b'{"metadata": {}, "items": []}' if place == "/api/v1/pods" else None


def top(run: Run, folder: Path, config: str, address: str) -> list[str]:
    file = folder / "config.yaml"
    file.write_text(HEAD + config)
    done = run("top", "--once", "--kubeconfig", kubeconfig(folder, address), "--config", file, "--width", "160")
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_both_sources_are_shown(run: Run, tmp_path: Path) -> None:
    with answering(cluster) as address:
        prometheus = f"signals: {{metricsApi: true, prometheus: {{url: '{address}'}}}}\n"
        lines = top(run, tmp_path, prometheus, address)
    means = "GPUs 85 % · their memory 71 % · CPU 25 % · memory 25 %"  # 2 of 8 cores, 8 of 32 GiB
    assert lines[1] == f"measured load: {means} · of 1/1 nodes, 1 GPUs"
    assert "CPU 25 %, memory 25 %" in next(line for line in lines if line.startswith("n "))
    of_cards = [line for line in lines if "▕" in line]
    assert ["load  85 %  71 %" in line for line in of_cards] == [True, False]
    assert "load     -     -" in of_cards[1]


def test_no_source_is_said(run: Run, tmp_path: Path) -> None:
    with answering(cluster) as address:
        lines = top(run, tmp_path, "", address)
    assert lines[1].startswith("measured load: no source is configured; name the scheduler's configuration")
    assert not any("load" in line for line in lines[2:])


def test_a_source_that_does_not_answer_is_said(run: Run, tmp_path: Path) -> None:
    with answering(lambda path: None if path.startswith(NODE_METRICS) else cluster(path)) as address:
        lines = top(run, tmp_path, METRICS_API, address)
    assert lines[1].startswith("measured load: the metrics API: ")


def test_files_have_none(run: Run) -> None:
    lines = run("top", "--once", "-f", "examples/what-if").stdout.splitlines()
    assert lines[1] == "measured load: files have none, only a live cluster"


def test_means_are_of_what_is_measured() -> None:
    board = boards.read(ClusterOptions(filenames=("examples/what-if",)))
    uuids = [one.device.uuid for one in board.overview.nodes[0].cards[:2]]
    first = NodeSignals(1.0, cpu=300, cards=(CardSignals(uuids[0], 1000, 500), CardSignals(uuids[1], 500)))
    measured = MeasuredLoad({"gpu-a100-1": first, "gpu-a100-2": NodeSignals(1.0)}, "Prometheus: away")
    lines = [one.text for one in frame(dataclasses.replace(board, load=measured), TopChoice(), 160)]
    # GPUs: (100 + 50) / 2; their memory: of one GPU
    means = "GPUs 75 % · their memory 50 % · CPU 30 % · memory -"
    assert lines[1] == f"measured load: {means} · of 1/4 nodes, 2 GPUs · Prometheus: away"


async def test_the_sources_are_asked_once_in_their_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[list[str]] = []

    async def counted(self: Any) -> None:
        rounds.append(sorted(self._nodes))

    monkeypatch.setattr("dovetail.kube.live.signals.Signals.round", counted)
    clock = iter((100.0, 110.0, 115.0))
    world = World(now=lambda: next(clock))
    meter = LoadMeter(SignalOptions(metrics_api=True, every_seconds=15.0), cast(Any, None), world)
    for names in ("a", "ab", "b"):
        await meter.read([node(name, card(f"GPU-{name}")) for name in names])
    assert rounds == [["a"], ["b"]]  # at 100 s and at 115 s, of the nodes there are then


async def test_the_view_measures_again_where_nothing_else_changes() -> None:
    class Meter:
        pause, reads = 0.01, 0

        async def read(self, nodes: Iterable[Node]) -> MeasuredLoad:
            self.reads += 1
            return MeasuredLoad({"gpu-a100-1": NodeSignals(float(self.reads))})

    asked = ClusterOptions(filenames=("examples/what-if",))
    follower = ClusterFollower(cast(Any, None), DEFAULT_VENDORS)
    stream = BoardStream(asked, follower, (), cast(Any, Meter()))
    before: Board = await stream._measured(boards.read(asked))
    after = await stream.next()
    assert (before.load.nodes["gpu-a100-1"].measured_at, after.load.nodes["gpu-a100-1"].measured_at) == (1.0, 2.0)
    assert after.overview is before.overview
