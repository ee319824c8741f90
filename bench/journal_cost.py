"""What the journal costs: CPU time of the process for each pod, with and without, and bytes for each pod.

    .venv/bin/python -m bench.journal_cost

Pods arrive, are bound, are observed and end, as in a live run, without a cluster. The thread that writes is included.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from dovetail.engine.recorded import RecordedScheduler
from dovetail.kube.journal.recorder import Recorder
from dovetail.kube.journal.writer import MIB, Limits
from dovetail.kube.log import silent
from dovetail.model.calls import EngineSettings
from dovetail.model.device import Device
from dovetail.model.events import Bind, GroupArrived, NodeChanged, PodBound, PodGone, PodObserved
from dovetail.model.node import Node
from dovetail.model.pod import Container, DeviceAsk, Group, Pod, RunningPod

NODES, PODS, LIVING = 200, 20_000, 800


def main() -> None:
    plain = min(_run(None)[0] for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        runs = [_run(Path(folder) / str(n)) for n in range(3)]
    cpu, size = min(runs)
    print(f"{NODES} nodes, {PODS:,} pods, 4 events each")
    print(f"without: {plain / PODS * 1e6:.0f} µs of CPU for each pod, {PODS / plain:,.0f} pods/s")
    print(f"with:    {cpu / PODS * 1e6:.0f} µs of CPU for each pod, {PODS / cpu:,.0f} pods/s")
    print(f"journal: {size / PODS:.0f} bytes for each pod")


def _run(folder: Path | None) -> tuple[float, int]:
    engine = RecordedScheduler(EngineSettings(device_resources=("nvidia.com/gpu",)))
    recorder = Recorder(engine, folder, Limits(512 * MIB), now=time.time, log=silent) if folder else None
    began = time.process_time()
    for n in range(NODES):
        cards = tuple(Device(f"GPU-{n}-{i}", i, "NVIDIA", "NVIDIA A100", 81_920) for i in range(8))
        room = {"cpu": 96_000, "memory": 2**40, "pods": 110}
        engine.handle(NodeChanged(1.0, Node(f"node-{n}", room, cards)))
    for n in range(PODS):
        _live(engine, n)
        if recorder is not None and n % 1_000 == 0:  # a live scheduler is slower than the engine alone
            while not recorder.writer.idle:
                time.sleep(0.001)
    if recorder is not None:
        recorder.close()
    size = sum(path.stat().st_size for path in folder.glob("*.journal")) if folder else 0
    return time.process_time() - began, size


def _live(engine: RecordedScheduler, n: int) -> None:
    asks = (DeviceAsk("NVIDIA", 1, 20_480, None, 250),)
    labels = {"app": f"job-{n % 50}", "pod-template-hash": "6d4cf56db6"}
    name = f"job-{n % 50}-{n}"
    pod = Pod(
        "ml", name, f"0b8f9a3e-{n:012d}", {"cpu": 4_000}, containers=(Container("main", asks=asks),), labels=labels
    )
    at = 1_795_000_000.0 + n
    effects = engine.handle(GroupArrived(at, Group(pod.key, (pod,))))
    for effect in effects:
        if isinstance(effect, Bind):
            engine.handle(PodBound(at + 0.1, pod.uid))
            running = RunningPod(pod, str(effect.decision.node), effect.decision.shares, placed=at)
            engine.handle(PodObserved(at + 0.2, running))
    if n >= LIVING:
        engine.handle(PodGone(at, f"0b8f9a3e-{n - LIVING:012d}"))


if __name__ == "__main__":
    main()
