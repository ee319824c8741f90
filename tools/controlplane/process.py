"""A child process that ends with this process, writes its output to a file, and is stopped by its id."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
GRACE_SECONDS = 10.0
ROOMS = "dovetail-controlplane-"

# Below the range from which the kernel takes ports for outgoing connections (32768 and up). While a server restarts,
# its port is free; a client, for example one that tries to reach this server, must not get that port.
PORTS = range(20000, 32000)


class Failed(Exception):
    """A component did not start or did not become ready. The message ends with its last output."""


def _die_with(parent: int) -> Callable[[], None]:
    """A function for the child to run before exec: the kernel then kills it when the thread that made it ends."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        if libc is not None:
            libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # the parent ended before the call
                os._exit(1)

    return prepare


class Process:
    """One component.

    It starts at once, in its own session, so that Ctrl-C in a terminal reaches this process and not the component.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, **environment: str) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **environment},
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def running(self) -> bool:
        return self._child.poll() is None

    def exit_code(self) -> int | None:
        """The exit code; None while it runs; the negative signal number if a signal ended it."""
        return self._child.poll()

    def last_words(self, lines: int = 20) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) or "(it said nothing)"

    def wait_until(self, ready: Callable[[], bool], seconds: float = 60.0) -> None:
        """Return when `ready()` is true. Raises Failed with the last output if the process ends first or time is up."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running():
                raise Failed(f"{self.name} ended with {self._child.returncode}; it said last:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} was not ready after {seconds:.0f} s; it said last:\n{self.last_words()}")
            time.sleep(0.05)

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Ask the process to end, and kill it after `grace` seconds. `grace=0` kills it at once, like a crash."""
        if self.running():
            self._child.terminate() if grace else self._child.kill()
            try:
                self._child.wait(grace or GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
        self._child.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP freezes the process, SIGCONT continues it."""
        if self.running():
            self._child.send_signal(number)


def is_free(port: int) -> bool:
    """True if a server could listen on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Loopback ports on which no process listens."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


class Room:
    """A temporary folder. The folder of a killed process is deleted when the next one is made."""

    def __init__(self) -> None:
        _sweep()
        made = Path(tempfile.mkdtemp(prefix=f".{ROOMS}"))
        self._alive = (made / ".alive").open("w")
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))  # from now on `_sweep` can see it

    def close(self) -> None:
        self._alive.close()
        shutil.rmtree(self.path, ignore_errors=True)


def _sweep() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{ROOMS}*/.alive"):
        try:
            with path.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:  # in use, or of another user
            continue
