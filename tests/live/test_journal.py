"""The journal of a live run with faults repeats to the same decisions; its commands answer questions about it."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.live.dovetail_process import DOVETAIL, scheduling
from tests.live.eventful import eventful_run
from tests.live.faults import more
from tools.controlplane import objects
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane

OFTEN = ("--journal-days", str(more(1, 4) / 1000))  # a new file, and so a checkpoint, every 5 s; 21 s in a soak


def asked(*words: str, code: int = 0) -> Any:
    done = subprocess.run([DOVETAIL, "journal", *words, "-o", "json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    return json.loads(done.stdout)


def until_a_checkpoint(api: Client, folder: Path) -> None:
    """Let pods come, one by one, until the running scheduler has written a checkpoint, and one more."""
    api.create(objects.node("first", gpus=8))
    names = (f"before-{number}" for number in itertools.count())

    def written() -> bool:
        api.create(objects.pod(next(names), objects.gpu_limits(1, memory=1_000)))
        return "Checkpoint" in asked("stat", str(folder))["kinds"]

    api.wait_until(written, "the journal has a checkpoint", 240)
    written()


def test_a_run_with_faults_is_repeated_exactly(
    plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    pods, folder = more(200, 1_000), tmp_path / "journal"
    with scheduling(plane, "--journal", str(folder), *OFTEN) as dovetail:

        def kill_and_start() -> None:
            dovetail.kill()
            dovetail.start()

        until_a_checkpoint(api, folder)  # during a preemption a checkpoint would wait
        eventful_run(plane, api, pods, kill_and_start)
        placed = next(item for item in api.list("Pod") if item["metadata"]["name"].startswith("high-"))
    found, repeated = asked("stat", str(folder)), asked("replay", str(folder))
    print({key: found[key] for key in ("bytes", "entries", "podsArrived", "placed", "bytesPerPod", "kinds")})
    print({key: repeated[key] for key in ("calls", "decisions", "checkpoints", "gaps", "different", "notes", "torn")})
    assert repeated["different"] == 0, repeated
    assert repeated["gaps"] == 0, repeated["notes"]
    assert repeated["decisions"] > pods
    assert repeated["checkpoints"] > 0
    assert repeated["damage"] == []
    assert {len(found["files"]) >= 3, found["podsArrived"] >= pods} == {True}
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.iterdir())
    again = asked("replay", str(folder), "--from-checkpoints")
    assert again["different"] == 0, again
    why = asked("explain", placed["metadata"]["name"], str(folder))
    assert (why["node"], why["state"]) == (placed["spec"]["nodeName"], "placed")
    assert len(why["nodes"]) >= 11
