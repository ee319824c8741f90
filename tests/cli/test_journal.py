"""`dovetail journal` and `dovetail shadow --report` on files: what people type wrong, and a comparison by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.cli.main import cli
from dovetail.engine.recorded import RecordedScheduler
from dovetail.kube.journal.codec import FileHeader, encode_header
from dovetail.kube.journal.files import MAGIC, block
from dovetail.kube.journal.recorder import Recorder
from dovetail.kube.journal.writer import MIB, Limits
from dovetail.kube.log import silent
from dovetail.model.calls import EngineSettings
from dovetail.model.device import Device
from dovetail.model.events import Bind, GroupArrived, NodeChanged, PodBound, PodGone, PodObserved
from dovetail.model.node import Node
from dovetail.model.pod import Container, DeviceAsk, Group, Pod, Profile, RunningPod
from dovetail.sim.load import load_trace

HOUR, START = 3600.0, 1_795_000_000.0


def node(name: str) -> Node:
    cards = tuple(Device(f"{name}-{n}", n, "NVIDIA", "NVIDIA A100", 80_000) for n in range(2))
    return Node(name, {"cpu": 64_000, "memory": 2**40, "pods": 110}, cards)


def pod(name: str, count: int = 1) -> Pod:
    asks = (DeviceAsk("NVIDIA", count, 0, 100, 1000),)
    return Pod("ml", name, f"uid-{name}", containers=(Container("main", asks=asks),), created=START)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Two nodes of two GPUs. `spread` puts a and b on two nodes: `pair`, which wants two GPUs, waits an hour."""
    engine = RecordedScheduler(EngineSettings(device_resources=("nvidia.com/gpu",)))
    recorder = Recorder(engine, tmp_path / "j", Limits(16 * MIB), now=lambda: START, log=silent)
    for name in ("n0", "n1"):
        engine.handle(NodeChanged(START, node(name)))
    for number, name in enumerate(("a", "b", "pair")):
        one = replace(pod(name, 2 if name == "pair" else 1), profile=Profile("spread"))
        for effect in engine.handle(GroupArrived(START + number, Group(one.key, (one,)))):
            if isinstance(effect, Bind):
                engine.handle(PodBound(START + number, one.uid))
    for uid in ("uid-a", "uid-b"):
        for effect in engine.handle(PodGone(START + HOUR, uid)):
            if isinstance(effect, Bind):
                engine.handle(PodBound(START + HOUR, effect.pod.uid))
    engine.handle(PodGone(START + 2 * HOUR, "uid-pair"))
    recorder.close()
    return str(tmp_path / "j")


def ran(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize(
    ("settings", "says"), [(EngineSettings(order="newest"), "order 'newest'"), (EngineSettings(queue="x"), "queue 'x'")]
)
@pytest.mark.parametrize("command", ["stat", "replay", "diff"])
def test_a_journal_with_an_order_that_this_version_does_not_have(
    tmp_path: Path, settings: EngineSettings, says: str, command: str
) -> None:
    """As a later version may write one; `replay` ended with a stack."""
    header = FileHeader(run="r", part=1, at=START, version="9.9", python="3.12", settings=settings)
    path = tmp_path / "1.journal"
    path.write_bytes(MAGIC + block([encode_header(header)]))
    done = CliRunner().invoke(cli, ["journal", command, str(path)])
    assert done.exit_code == 2
    assert f"1.journal: the header cannot be used: {says}" in done.stderr
    assert "use the version that wrote it" in done.stderr


def test_replay_says_that_all_are_the_same(folder: str) -> None:
    assert "all are the same" in ran("journal", "replay", folder)


def test_explain_tells_why_it_waited_and_why_it_got_its_place(folder: str) -> None:
    waited = json.loads(ran("journal", "explain", "ml/pair", folder, "--at", "2026-11-18T12:00", "-o", "json"))
    placed = json.loads(ran("journal", "explain", "ml/pair", folder, "-o", "json"))
    assert (waited["state"], placed["state"], placed["node"]) == ("pending", "placed", "n0")
    assert len(waited["nodes"]) == 2


def test_packing_saves_an_hour_of_waiting(folder: str) -> None:
    """Packed, a and b share n0, and `pair` starts at once on n1: it waits 0 instead of 3,598 s."""
    found = json.loads(ran("journal", "diff", folder, "--policy", "binpack/binpack", "-o", "json"))
    assert (found["pods"], found["earlier"], found["later"]) == (3, 1, 0)
    (pair,) = [one for one in found["differing"] if one["pod"] == "ml/pair"]
    assert (pair["realWait"], pair["otherWait"], pair["otherNode"]) == (HOUR - 2, 0.0, "n1")
    # two GPUs were free for 3,598 s while `pair` wanted two: 2 × 3,598 / 3,600 GPU-hours
    assert found["recorded"]["idleWhileWantedHours"] == pytest.approx(2 * 3598 / 3600, abs=1e-3)
    assert found["other"]["idleWhileWantedHours"] == 0
    # a and b run an hour on one GPU each; `pair` runs an hour on two
    assert found["other"]["gpuHours"] == pytest.approx((3600 + 3599 + 2 * 3600) / 3600, abs=1e-3)


def test_the_same_policies_change_nothing(folder: str) -> None:
    found = json.loads(ran("journal", "diff", folder, "-o", "json"))
    assert (found["samePlace"], found["elsewhere"], found["differing"]) == (3, 0, [])
    assert found["recorded"] == found["other"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("journal", "replay", "/nowhere"), "there is no such file or folder"),
        (("journal", "diff", "FOLDER", "--node-policy", "bestest"), "bestest"),
        (("journal", "explain", "ml/none", "FOLDER"), "no decision about pod ml/none is recorded"),
        (("journal", "show", "FOLDER", "--since", "yesterday"), "'yesterday' is no time"),
        (("shadow", "--report", "/nowhere"), "there is no such file or folder"),
    ],
)
def test_mistakes_are_named(folder: str, words: tuple[str, ...], says: str) -> None:
    assert says in ran(*(folder if word == "FOLDER" else word for word in words), code=2)


def test_a_journal_becomes_a_trace(folder: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = ran("trace", "import", "--journal", folder, "-o", str(out))
    assert said.startswith("3 jobs of 3 pods, 4 GPU-hours")  # 1 + 1 + 2 × 1 GPUs for an hour
    trace, _ = load_trace(out / "nodes.csv", out / "jobs.csv")
    # All were created at once; b got its GPU a second after a, and both ended after an hour. Then came the pair's hour.
    assert [(job.name, job.arrival, job.duration, job.gpus) for job in trace.jobs] == [
        ("ml/a", 0, HOUR, 1),
        ("ml/b", 0, HOUR - 1, 1),
        ("ml/pair", 0, HOUR, 2),
    ]
    assert [(one.name, one.gpus, one.gpu_memory_mib) for one in trace.machines] == [
        ("n0", 2, 80_000),
        ("n1", 2, 80_000),
    ]
    files = ("--nodes", str(out / "nodes.csv"), "--pods", str(out / "jobs.csv"), "--mode", "time", "-o", "json")
    # Spread repeats the wait of an hour (b runs a second less); binpack leaves a node for the pair at once.
    spread = json.loads(ran("replay", *files, "--policy", "spread"))
    packed = json.loads(ran("replay", *files, "--policy", "binpack"))
    assert (spread["finished"], spread["makespan"]) == (3, 2 * HOUR - 1)
    assert (packed["finished"], packed["makespan"]) == (3, HOUR)


def test_a_pod_that_runs_when_the_journal_ends_runs_until_then(tmp_path: Path) -> None:
    engine = RecordedScheduler(EngineSettings())
    recorder = Recorder(engine, tmp_path / "j", Limits(16 * MIB), now=lambda: START, log=silent)
    engine.handle(NodeChanged(START, node("n0")))
    there = replace(pod("there"), created=START - HOUR)  # placed by somebody, half an hour before the journal
    engine.handle(PodObserved(START, RunningPod(there, "n0", None, placed=START - HOUR / 2)))
    engine.handle(NodeChanged(START + HOUR, node("n1")))
    recorder.close()
    for running, expected in (("until-now", 1.5 * HOUR), ("forever", None)):
        out = tmp_path / running
        ran("trace", "import", "--journal", str(tmp_path / "j"), "--running", running, "-o", str(out))
        trace, _ = load_trace(out / "nodes.csv", out / "jobs.csv")
        assert [(job.name, job.duration) for job in trace.jobs] == [("ml/there", expected)]
