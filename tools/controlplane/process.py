"""A child process that never outlives us, whose output goes to a file, and that is stopped by its id."""

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

# Below the range from which the kernel takes the ports of outgoing connections (32768 and up): a port that is free
# while a server restarts must not be taken by a client, least of all by one that is trying to reach that server.
PORTS = range(20000, 32000)


class Failed(Exception):
    """A component did not start, or did not become ready; the message ends with what it said last."""


def _die_with(parent: int) -> Callable[[], None]:
    """Run in the child before it becomes the program: the kernel kills it when the thread that made it ends."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        if libc is not None:
            libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it ended before we asked
                os._exit(1)

    return prepare


class Process:
    """One component: started at once, in a session of its own, so that Ctrl-C in a terminal reaches us and not it."""

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
        """None while it runs; the negative number of the signal that ended it."""
        return self._child.poll()

    def last_words(self, lines: int = 20) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) or "(it said nothing)"

    def wait_until(self, ready: Callable[[], bool], seconds: float = 60.0) -> None:
        """Returns when `ready()`; raises with the last words when the process ends before that or time is up."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running():
                raise Failed(f"{self.name} ended with {self._child.returncode}; it said last:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} was not ready after {seconds:.0f} s; it said last:\n{self.last_words()}")
            time.sleep(0.05)

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Asks it to end, and ends it if it does not. `grace=0` ends it at once, as a crash would."""
        if self.running():
            self._child.terminate() if grace else self._child.kill()
            try:
                self._child.wait(grace or GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
        self._child.wait()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT freeze it and let it go on."""
        if self.running():
            self._child.send_signal(number)


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on."""
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
    """A temporary folder. One whose owner was killed is swept away when the next is made."""

    def __init__(self) -> None:
        _sweep()
        made = Path(tempfile.mkdtemp(prefix=f".{ROOMS}"))
        self._alive = (made / ".alive").open("w")
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))  # only now can a sweep see it

    def close(self) -> None:
        self._alive.close()
        shutil.rmtree(self.path, ignore_errors=True)


def _sweep() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{ROOMS}*/.alive"):
        try:
            with path.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:  # in use, or not ours
            continue
