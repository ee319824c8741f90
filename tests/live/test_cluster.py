"""`make cluster` as a person uses it: the commands of the examples, a kill, a second one beside it, Ctrl-C."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.test_processes import is_running
from tools.cluster import TO_TRY
from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import free_ports

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.slow


class Cluster:
    """The tool as a process, and a shell with what it says to export."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process, self._output = process, output

    def said(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def wait_for(self, text: str, seconds: float = 90.0) -> str:
        def found() -> bool:
            assert self.process.poll() is None or text in self.said(), self.said()
            return text in self.said()

        Client.wait_until(found, f"{text!r} in what it prints", seconds)
        return self.said()

    def shell(self, command: str, codes: tuple[int, ...] = (0,)) -> str:
        (exports,) = re.findall(r"(?m)^  (export .*)$", self.said())
        done = subprocess.run(["sh", "-c", f"{exports}\n{command}"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode in codes, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def nodes_of_pods(self, app: str, count: int) -> list[str]:
        """Nodes of the app's pods, once all of them run."""
        path = '{range .items[?(@.status.phase=="Running")]}{.spec.nodeName}{"\\n"}{end}'
        query = f"kubectl get pods -l app={app} -o jsonpath='{path}'"

        def nodes() -> list[str]:
            found = self.shell(query).split()
            return found if len(found) == count else []

        return Client.wait_until(nodes, f"{count} pods of {app} run", 60)


@contextmanager
def cluster(home: Path, *options: str) -> Iterator[Cluster]:
    home.mkdir(parents=True, exist_ok=True)
    output = home.with_suffix(".out")
    with output.open("wb") as out:
        command = [sys.executable, "-m", "tools.cluster", "--home", str(home), *options]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    running = Cluster(process, output)
    try:
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def readme_commands(folder: str) -> list[str]:
    text = (ROOT / "examples" / folder / "README.md").read_text(encoding="utf-8")
    return re.findall(r"(?m)^    (kubectl (?!get nodes,pods -A).*)$", text)


def as_hamis_users_write_it(running: Cluster) -> None:
    """A Deployment without schedulerName that asks for a whole GPU."""
    make = "kubectl create deployment whole --image=example --dry-run=client -o yaml"
    running.shell(f"{make} | kubectl set resources -f - --limits=nvidia.com/gpu=1 --local -o yaml | kubectl apply -f -")
    running.nodes_of_pods("whole", 1)
    read = "{.items[0].spec.schedulerName} {.items[0].spec..limits}"
    stored = running.shell(f"kubectl get pods -l app=whole -o jsonpath='{read}'")
    assert stored.startswith("dovetail ")
    assert '"nvidia.com/gpucores":"100"' in stored


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_person_walks_through(control_plane: ControlPlane, tmp_path: Path) -> None:
    """What is printed works as printed; a killed Dovetail is back, and its logs stay; Ctrl-C ends everything."""
    home = tmp_path / "home"
    with cluster(home, "--replicas", "2") as running:
        running.wait_for("Ctrl-C ends it all")
        assert "2 nodes with 8 GPUs" in running.said()
        for command, _ in TO_TRY[:3]:
            assert command in running.said()
            running.shell(command)
        assert [len(running.nodes_of_pods(f"demo-{letter}", 4)) for letter in "abcd"] == [4, 4, 4, 4]
        running.shell(TO_TRY[3][0])
        running.nodes_of_pods("demo-a", 8)
        assert "GPU memory short" in running.shell(TO_TRY[4][0], codes=(0, 3))

        leader = int((home / "dovetail-1.pid").read_text())
        os.kill(leader, signal.SIGKILL)
        running.wait_for("dovetail-1 was killed by signal 9")
        running.wait_for("dovetail-1 runs again")
        assert int((home / "dovetail-1.pid").read_text()) != leader
        running.shell("kubectl delete deployment --all && kubectl apply -f examples/demo/demo-b.yaml")
        assert len(running.nodes_of_pods("demo-b", 4)) == 4
        as_hamis_users_write_it(running)

        second = subprocess.run(
            [sys.executable, "-m", "tools.cluster", "--home", str(home)], cwd=ROOT, capture_output=True, text=True
        )
        assert second.returncode == 1
        assert f"a cluster runs in {home} already (process {running.process.pid})" in second.stderr
        parts = children(running.process.pid)
        assert len(parts) == 5  # etcd, the API server, the controller manager, two Dovetails
    assert running.process.returncode == 0
    assert running.said().endswith(f"Stopped. The logs are in {next(home.glob('logs-*'))}\n")
    assert not [pid for pid in parts if is_running(pid)]
    (logs,) = home.glob("logs-*")
    names = {path.name for path in logs.iterdir()}
    assert {"dovetail-1.1.log", "dovetail-1.2.log", "dovetail-2.1.log", "etcd.log", "kube-apiserver.log"} <= names
    said = [(logs / f"dovetail-{replica}.1.log").read_text() for replica in (1, 2)]
    assert any("ready: 2 nodes" in text for text in said)  # either replica may lead first


def test_the_examples_work_as_they_are(control_plane: ControlPlane, tmp_path: Path) -> None:
    config = ROOT / "examples" / "koordinator" / "config" / "dovetail.yaml"
    with cluster(tmp_path / "home", "--config", str(config)) as running:
        running.wait_for("Ctrl-C ends it all")
        for folder in ("demo", "koordinator", "what-if"):
            for command in readme_commands(folder):
                running.shell(command)
        assert [len(running.nodes_of_pods(f"demo-{letter}", 4)) for letter in "abcd"] == [4, 4, 4, 4]
        jobs = running.nodes_of_pods("vgpu-job-3", 3) + running.nodes_of_pods("vgpu-job-5", 5)
        assert sorted(map(jobs.count, {*jobs})) == [4, 4]  # eight dongles on each worker, two a pod
        query = f"{readme_commands('what-if')[-1]} -o jsonpath='{{.items[*].message}}'"
        Client.wait_until(lambda: "GPU" in running.shell(query), "the two new pods say why they wait", 60)
        running.shell("kubectl delete deployment --all; kubectl delete --wait=false -f examples/what-if/cluster.yaml")
        for command in readme_commands("guide"):
            running.shell(command)
        assert {*running.nodes_of_pods("node-spread", 5)} == {"gpu-node-1", "gpu-node-2"}


def test_nodes_and_gpus_are_options_and_a_port_in_use_is_named(control_plane: ControlPlane, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with cluster(tmp_path / "one", "--nodes", "3", "--gpus", "8", "--replicas", "0", "--port", str(port)) as running:
        running.wait_for(f"at https://127.0.0.1:{port}: 3 nodes with 24 GPUs in all")
        assert running.shell("kubectl get nodes -o name").split() == ["node/gpu-1", "node/gpu-2", "node/gpu-3"]
        assert "Dovetail does not run" in running.wait_for("pods will wait")
        with cluster(tmp_path / "two", "--port", str(port)) as second:
            second.process.wait(30)
            assert second.process.returncode == 1
            assert f"port {port} of 127.0.0.1 is in use" in second.said()
            assert "Traceback" not in second.said()


def test_a_wrong_configuration_ends_it_with_the_reason(control_plane: ControlPlane, tmp_path: Path) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text("apiVersion: dovetail.dev/v1\nkind: Config\nnodePolicy: nonsense\n", encoding="utf-8")
    with cluster(tmp_path / "home", "--config", shlex.quote(str(config))) as running:
        running.process.wait(60)
        assert running.process.returncode == 1
        assert "nonsense" in running.said()
        assert "Traceback" not in running.said()
