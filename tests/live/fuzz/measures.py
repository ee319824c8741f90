"""What a run looks at while others attack: how long canaries wait, and how the scheduler's process is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from statistics import median

from tests.live.chaos.machines import CANARY, CANARY_TAINT
from tests.live.dovetail_process import Dovetail
from tests.live.faults import Alongside
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.objects import gpu_limits, pod

BLIND_SECONDS = 30.0  # a canary is given up after
HEALTH_SECONDS = 5.0  # /healthz must answer within
FIRST, LAST = (0.2, 0.4), (0.8, 1.0)  # parts of a run whose memory is compared
CANARIES: tuple[dict[str, str | int], ...] = ({"cpu": "10m"}, gpu_limits(1, memory=100, cores=1))


class Canaries(Alongside):
    """Pods of another tenant, with and without a GPU, one after the other on a node that takes nobody else's."""

    def __init__(self, api: Client) -> None:
        super().__init__()
        self._api, self._made = api, 0
        self.waits: list[float] = []  # seconds from the answer to the creation until it has a node
        self.server: list[float] = []  # seconds that the API server took for the creation
        self.blind: list[str] = []

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.one()
            except (ApiError, OSError, HTTPException) as error:
                self.blind.append(f"canary: {type(error).__name__}: {error}")
            self._stop.wait(0.1)

    def one(self) -> None:
        self._made += 1
        name = f"canary-{self._made}"
        only: Object = {"nodeSelector": {"kubernetes.io/hostname": CANARY}, "tolerations": [CANARY_TAINT]}
        sent = time.monotonic()
        self._api.create(pod(name, CANARIES[self._made % 2], namespace=CANARY, **only))
        created = time.monotonic()
        while not self._api.get("Pod", name, CANARY)["spec"].get("nodeName"):
            if time.monotonic() - created > BLIND_SECONDS:
                self.blind.append(f"blind: {name} still waits after {BLIND_SECONDS:.0f} s")
                break
            time.sleep(0.01)
        self.waits.append(time.monotonic() - created)
        self.server.append(created - sent)
        self._api.delete("Pod", name, CANARY, gracePeriodSeconds=0)


class Vitals(Alongside):
    """Memory and health of the scheduler twice a second; one that ended is started again, as kubelet would."""

    def __init__(self, dovetail: Dovetail, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._dovetail, self._tell = dovetail, tell
        self.memory: list[float] = []  # MiB
        self.slowest = 0.0  # seconds that /healthz took
        self.ended: list[str] = []
        self.sick: list[str] = []

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            process = self._dovetail.process
            if process is None or not process.running():
                code, last = (process.exit_code(), process.last_words(4)) if process else (None, "")
                self.ended.append(f"process: the scheduler ended with {code}: {last}")
                self._tell(f"  {self.ended[-1]}")
                self._dovetail.start(wait=False)
                self._stop.wait(5.0)
                continue
            self.memory.append(resident(process.pid))
            self._ask()

    def _ask(self) -> None:
        started = time.monotonic()
        status, _ = self._dovetail.get("/healthz")
        took = time.monotonic() - started
        self.slowest = max(self.slowest, took)
        if status != 200 or took > HEALTH_SECONDS:
            self.sick.append(f"healthz: {status} after {took:.1f} s")


def resident(pid: int) -> float:
    """MiB; 0 of a process that is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def part(samples: Sequence[float], between: tuple[float, float]) -> float:
    """The median of a part of the samples: `part(memory, (0.8, 1.0))` of the last fifth."""
    start, end = (int(len(samples) * share) for share in between)
    return median(samples[start : max(end, start + 1)] or [0.0])


def curve(samples: Sequence[float]) -> str:
    """The medians of ten parts, which show whether the samples level off."""
    return " ".join(f"{part(samples, (n / 10, (n + 1) / 10)):.0f}" for n in range(10))


def quantile(samples: Sequence[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))] if samples else 0.0
