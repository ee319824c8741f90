"""Components end with whoever started them, and say why they did not start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane, Options
from tools.controlplane.process import Failed, Process, Room, free_ports

ROOT = Path(__file__).parent.parent.parent
OWNER = """
import sys, time
from pathlib import Path
from tools.controlplane.process import Process
child = Process("sleeper", ["sleep", "3600"], Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(3600)
"""


def is_running(pid: int) -> bool:
    """A process that has ended counts as gone, also while nobody has asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent died")
def test_a_component_dies_with_its_owner(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert is_running(pid)
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        Client.wait_until(lambda: not is_running(pid), "the component is gone")


def test_a_component_that_ignores_the_request_is_ended(tmp_path: Path) -> None:
    deaf = Process("deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], tmp_path / "log")
    deaf.wait_until(lambda: "ready" in deaf.last_words())
    deaf.stop(grace=0.1)
    assert not deaf.running()


def test_a_component_that_does_not_start_says_why(tmp_path: Path) -> None:
    broken = Process("broken", ["sh", "-c", "echo no such flag; exit 3"], tmp_path / "log")
    with pytest.raises(Failed, match=r"broken ended with 3; it said last:\nno such flag"):
        broken.wait_until(lambda: False)


def test_an_api_server_that_does_not_start_says_why(control_plane: ControlPlane) -> None:
    plane = ControlPlane(control_plane.binaries, Options(api_server=["--no-such-flag"]))
    with pytest.raises(Failed, match="unknown flag: --no-such-flag"), plane:
        pass
    assert not plane.path.exists()


def test_the_folder_of_a_dead_owner_is_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "dovetail-controlplane-left"
    left.mkdir()
    (left / ".alive").touch()  # and nobody holds it
    first = Room()
    second = Room()
    assert not left.exists()
    assert first.path.exists()
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_ports_are_not_those_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32768
