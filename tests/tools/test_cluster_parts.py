"""The parts of `make cluster` that need no control plane: restarts with growing pauses, the folder, the options."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from tools.cluster import TO_TRY, Wanted, generated_nodes, read_arguments, to_try
from tools.controlplane import objects
from tools.controlplane.client import ApiError, Client
from tools.controlplane.process import Failed, is_free
from tools.home import KEPT, Home, InUse
from tools.supervisor import LONG_RUN, Ending, Replica

ROOT = Path(__file__).parent.parent.parent
NOW = datetime(2026, 1, 31, 12, 0, 0)
ENDS = ("sh", "-c", "echo run; exit 1")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ending(replica: Replica) -> Ending:
    return Client.wait_until(replica.look, "the run ends", 10)


def test_pauses_grow_while_runs_are_short_and_every_run_has_its_log(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    clock = Clock()
    replica = Replica("dovetail-1", ENDS, logs, clock)
    pauses = []
    for run in range(1, 8):
        assert replica.look() is None  # it is due: started
        assert replica.runs == run
        end = ending(replica)
        assert end.log.read_text() == "run\n"
        pauses.append(end.pause)
        clock.now += end.pause - 0.1
        assert replica.look() is None
        assert replica.runs == run  # not before its time
        clock.now += 0.2
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert sorted(path.name for path in logs.iterdir()) == [f"dovetail-1.{run}.log" for run in range(1, 8)]


def test_after_a_long_run_the_pause_is_short_again(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    clock = Clock()
    replica = Replica("dovetail-1", ("sh", "-c", "exec sleep 3600"), logs, clock)
    pauses = []
    for seconds in (1.0, 1.0, LONG_RUN):
        replica.look()
        clock.now += seconds
        assert replica.pid is not None
        os.kill(replica.pid, signal.SIGKILL)
        end = ending(replica)
        assert str(end).startswith(f"dovetail-1 was killed by signal 9; its log is {end.log}; the next run starts in")
        pauses.append(end.pause)
        clock.now += end.pause
    assert pauses == [1, 2, 1]


def test_a_wrong_configuration_is_not_tried_again(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    replica = Replica("dovetail-1", ("sh", "-c", "echo no such policy >&2; exit 2"), logs)
    replica.look()
    with pytest.raises(Failed, match="exit code 2; it said last:\nno such policy"):
        ending(replica)


def test_a_folder_in_use_names_the_process(tmp_path: Path) -> None:
    second = Home(tmp_path, NOW)
    with Home(tmp_path, NOW), pytest.raises(InUse, match=rf"\(process {os.getpid()}\).*CLUSTER_HOME="):
        second.__enter__()
    with second:  # it is free afterwards
        assert second.logs.is_dir()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InUse, match="file/cluster cannot be used: Not a directory"):
        Home(tmp_path / "file" / "cluster", NOW).__enter__()


def test_the_logs_stay_and_old_ones_go(tmp_path: Path) -> None:
    for day in range(1, 10):
        with Home(tmp_path, NOW.replace(day=day)) as home:
            home.kubeconfig.touch()
            (home.path / "dovetail-1.pid").touch()
            (home.logs / "etcd.log").touch()
        assert (home.logs / "etcd.log").exists()
        assert not home.kubeconfig.exists()
        assert not list(home.path.glob("*.pid"))
    assert sorted(path.name for path in tmp_path.glob("logs-*")) == [
        f"logs-202601{day:02}-120000" for day in range(10 - KEPT, 10)
    ]


def test_generated_nodes_have_their_cards_and_zones() -> None:
    nodes = generated_nodes(3, 8)
    assert [node["metadata"]["name"] for node in nodes] == ["gpu-1", "gpu-2", "gpu-3"]
    assert {node["status"]["allocatable"][objects.GPU] for node in nodes} == {"80"}  # 8 cards, ten pods each
    assert len({node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes}) == 2
    assert objects.GPU not in generated_nodes(1, 0)[0]["status"]["allocatable"]


def test_options() -> None:
    assert read_arguments([]) == Wanted()
    wanted = read_arguments(["--nodes", "4", "--gpus", "8", "--replicas", "2", "--port", "6443"])
    assert (wanted.nodes, wanted.gpus, wanted.replicas, wanted.port) == (4, 8, 2, 6443)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "0"], "'0' is not a whole number from 1 to 1000"),
        (["--gpus", "many"], "'many' is not a whole number from 0 to 16"),
        (["--replicas", "-1"], "'-1' is not a whole number from 0 to 9"),
        (["--config", "/none.yaml"], "--config /none.yaml: no such file"),
    ],
)
def test_wrong_options_say_what_to_write(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_arguments([f"{arguments[0]}={arguments[1]}"])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ((), ""),
        (("NODES=4", "GPUS=8", "REPLICAS=2"), " --nodes 4 --gpus 8 --replicas 2"),
        (("CONFIG=a.yaml", "API_PORT=6443", "CLUSTER_HOME=/x y"), " --config a.yaml --port 6443 --home '/x y'"),
    ],
)
def test_make_hands_its_variables_on_but_not_those_of_the_environment(typed: tuple[str, ...], given: str) -> None:
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # the tests may run under make themselves
    env = {key: value for key, value in os.environ.items() if key not in outer}
    env |= {"NODES": "99", "CONFIG": "other.yaml"}
    command = ["make", "-n", "--no-print-directory", "cluster", *typed]
    printed = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
    line = printed[printed.index("-m tools.cluster") :].replace("\\\n", " ")
    assert " ".join(line.replace("'", "").split()) == f"-m tools.cluster{given}".replace("'", "")


def test_five_commands_are_worth_trying() -> None:
    assert to_try(True, 8) == TO_TRY
    assert to_try(False, 32)[3][0].endswith("--replicas=68")  # two on each of 32 cards, and four more
    assert len(TO_TRY) == len(to_try(False, 32)) == 5
    for command, _ in (*TO_TRY, *to_try(False, 32)):
        for word in command.split():
            assert not word.startswith("examples/") or (ROOT / word).exists(), word


def test_a_port_that_is_taken_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_the_tool_runs_without_a_control_plane_and_says_how_to_get_one(tmp_path: Path) -> None:
    env = {**os.environ, "KUBEBUILDER_ASSETS": str(tmp_path)}
    command = [sys.executable, "-m", "tools.cluster", "--home", str(tmp_path / "home")]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "where there is no etcd" in done.stderr
    assert "Traceback" not in done.stderr


class TrailingAdmission(Client):
    """A client of an API server whose admission sees a new PriorityClass only at the third try."""

    def __init__(self, refusal: str) -> None:
        self.refusal, self.tries = refusal, 0

    def request(self, *_words: object, **_query: object) -> tuple[int, object]:
        self.tries += 1
        return (403, {"message": self.refusal}) if self.tries < 3 else (201, {"metadata": {"name": "polite"}})


def test_a_pod_is_created_once_admission_has_seen_its_priority_class() -> None:
    api = TrailingAdmission('pods "polite" is forbidden: no PriorityClass with name polite was found')
    assert api.create(objects.pod("polite"))["metadata"]["name"] == "polite"
    assert api.tries == 3


def test_any_other_refusal_of_a_create_is_final() -> None:
    api = TrailingAdmission('pods "greedy" is forbidden: exceeded quota')
    with pytest.raises(ApiError, match="exceeded quota"):
        api.create(objects.pod("greedy"))
    assert api.tries == 1
