"""`dovetail scheduler` as a process of its own, against a control plane, as user `dovetail` with the shipped rights."""

from __future__ import annotations

import itertools
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.controlplane.access import grant_dovetail
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Process, free_ports

_numbers = itertools.count()
DOVETAIL = str(Path(sys.executable).parent / "dovetail")


class Dovetail:
    """Start, kill and start again; the log goes on in one file."""

    def __init__(self, plane: ControlPlane, *options: str, interpreted: bool = True) -> None:
        self._plane = plane
        self.port = free_ports(1)[0]
        quick = ["--interpreted"] if interpreted else []
        command = [
            *(DOVETAIL, "--debug", "scheduler", "--kubeconfig", str(plane.kubeconfig("dovetail"))),
            *("--listen", f"127.0.0.1:{self.port}", "--identity", "test", *quick, *options),
        ]
        self.runs(command, plane.path / f"dovetail-{next(_numbers)}.log")

    def runs(self, command: list[str], log: Path) -> None:
        """What is started, and where its log goes."""
        self._command, self.log = command, log
        self.process: Process | None = None
        self._lock = threading.RLock()  # tests start and kill, and `kept_alive` starts again

    def start(self, wait: bool = True) -> None:
        with self._lock:
            process = self.process = Process("dovetail", self._command, self.log)
        if wait:
            process.wait_until(self.is_ready, 60.0)

    def start_again(self) -> None:
        """If it has ended by itself: one that was stopped stays away."""
        with self._lock:
            if self.process is not None and not self.process.running():
                self.start(wait=False)

    def run_code_of(self, checkout: Path) -> None:
        """From the next start on, run the code of another checkout, with the packages of this environment."""
        where = f"PYTHONPATH={checkout.resolve() / 'src'}"
        self._command[:1] = ["env", where, sys.executable, "-m", "dovetail"]

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def is_alive(self) -> bool:
        return self.get("/healthz")[0] == 200

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise KeyError(name)

    def kill(self) -> None:
        """kill -9."""
        self.stop(grace=0)

    def stop(self, grace: float = 20.0) -> None:
        with self._lock:
            if self.process is not None:
                self.process.stop(grace)
                self.process = None

    def words(self) -> str:
        return Path(self.log).read_text() if Path(self.log).exists() else ""


AUDITED = ("--audit-seconds", "3")  # for runs whose log is searched for differences of the ledger
ALONE = ("--no-preemption",)  # for runs whose pods end only when the test ends them


def wrong_ledger(text: str) -> list[str]:
    """What the scheduler's own audit found wrong with its ledger, by its log."""
    return [f"ledger: {line[-300:]}" for line in text.splitlines() if " ledger: " in line or "ledger is wrong" in line]


@contextmanager
def scheduling(plane: ControlPlane, *options: str, interpreted: bool = True) -> Iterator[Dovetail]:
    grant_dovetail(plane.client())
    dovetail = Dovetail(plane, *options, interpreted=interpreted)
    try:
        dovetail.start()
        yield dovetail
    finally:
        dovetail.stop()
