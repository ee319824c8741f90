"""Whose time a canary's wait is: the scheduler's or the API server's, told by what neither of them can colour.

A bare watch of all pods says when the canary's pod could be known, the API server's audit log when the scheduler's
Binding reached it. What lies between is the scheduler's part. Shares of the processors come from /proc.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.live.chaos.machines import CANARY
from tests.live.faults import Alongside
from tools.controlplane.binaries import Binaries
from tools.controlplane.client import ApiError, Client
from tools.controlplane.plane import ControlPlane, Options

POLICY: dict[str, Any] = {  # of the audit log: the canaries' Bindings, and nothing else
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "namespaces": [CANARY],
            "resources": [{"group": "", "resources": ["pods/binding"]}],
        },
        {"level": "None"},
    ],
}
RECEIVED = "requestReceivedTimestamp"
HEAD = 600  # bytes of a watch event that name its object and its version
SEEN = re.compile(rb'"type":"ADDED".*"name":"(canary-\d+)","namespace":"%b"' % CANARY.encode())
VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def audited(binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane whose API server writes down when Bindings of canaries reach it."""
    with tempfile.TemporaryDirectory() as folder:
        policy, log = Path(folder) / "policy.json", Path(folder) / "audit.log"
        policy.write_text(json.dumps(POLICY), encoding="utf-8")
        flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}")
        with ControlPlane(binaries, Options(api_server=flags)) as plane:
            yield plane


def audit_log(plane: ControlPlane) -> Path | None:
    """None: this control plane has none."""
    paths = [flag.partition("=")[2] for flag in plane.options.api_server if flag.startswith("--audit-log-path=")]
    return Path(paths[0]) if paths else None


def bindings(log: str) -> dict[str, float]:
    """Canary -> when the first Binding for it reached the API server, in seconds since 1970."""
    reached: dict[str, float] = {}
    for line in log.splitlines():
        with suppress(ValueError, KeyError):
            said = json.loads(line)
            reached.setdefault(said["objectRef"]["name"], datetime.fromisoformat(said[RECEIVED]).timestamp())
    return reached


class BareWatch(Alongside):
    """A watch of all pods, as the scheduler's, that does nothing but note when a canary's pod is first told."""

    def __init__(self, api: Client) -> None:
        super().__init__()
        self._api = api
        self.told: dict[str, float] = {}  # canary -> seconds since 1970
        self._version: str | None = None  # that the next watch begins at; None = with all pods that are there

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for line in self._api.watch_lines("Pod", self._version, namespace=None, seconds=600):
                    self.hear(line[:HEAD])
                    if self._stop.is_set():
                        return
            except (OSError, ApiError, HTTPException):
                self._stop.wait(0.1)

    def hear(self, head: bytes) -> None:
        """The first bytes of one event. A watch that the API server ends goes on from the last version."""
        if found := SEEN.search(head):
            self.told.setdefault(found[1].decode(), time.time())
        version = VERSION.search(head)
        self._version = version[1].decode() if version is not None and b'"type":"ERROR"' not in head else None


def of_the_scheduler(told: Mapping[str, float], reached: Mapping[str, float]) -> list[float]:
    """Seconds from when each canary could be known until its Binding reached the API server."""
    return [max(0.0, reached[name] - at) for name, at in told.items() if name in reached]


class Processors(Alongside):
    """Shares of the processors that processes take while the block runs: {"scheduler": 0.4, …}, 1 = one processor."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        """`pids`: name -> process."""
        super().__init__()
        self._pids, self._since = dict(pids), time.monotonic()
        self._before, self._all = {name: _ticks(pid) for name, pid in pids.items()}, _busy()
        self.shares: dict[str, float] = {}

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            self._look()

    def _look(self) -> None:
        """What a process took until it ended counts."""
        seconds = time.monotonic() - self._since
        for name, pid in self._pids.items():
            if ticks := _ticks(pid):
                self.shares[name] = (ticks - self._before[name]) / TICKS / seconds
        self.shares["the whole machine"] = (_busy() - self._all) / TICKS / seconds


def _ticks(pid: int) -> int:
    """User and system time of a process; 0 of one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _busy() -> int:
    """Of all processors: everything but idling and waiting for disks."""
    fields: Sequence[str] = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(map(int, fields[:8])) - int(fields[3]) - int(fields[4])
