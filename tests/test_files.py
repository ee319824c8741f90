"""Files of other people: bombs cost bounded memory, special files never block, and the sentence says what to do."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dovetail import config, files
from dovetail.cli.errors import Refused
from dovetail.cli.settings import KNOWN, with_vendors
from dovetail.kube.api import kubeconfig
from dovetail.kube.files import documents
from dovetail.kube.objects.problems import InputError, Problems
from dovetail.sim import rows
from dovetail.sim.load import load_jobs
from dovetail.sim.orders import MOST_ARRIVALS, Orders
from dovetail.sim.trace import Job, Machine, Trace, TraceError

MIB = 2**20
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c}]}\n"


def bomb(path: Path, header: bytes, block: bytes, times: int) -> Path:
    """A gzip file of `header` and then `times` times `block`, made without holding the text."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with path.open("wb") as file:
        file.write(packer.compress(header))
        for _ in range(times):
            file.write(packer.compress(block))
        file.write(packer.flush())
    return path


MEASURE = """
import resource, sys
from pathlib import Path
from dovetail.sim.load import load_jobs
from dovetail.sim.trace import TraceError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load_jobs(Path(sys.argv[1]), skip_bad=sys.argv[2] == "skip")
except TraceError as error:
    print(error.lines[-1])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def measured(path: Path, skip: str, **env: str) -> tuple[str, int]:
    """What reading the jobs said last, and by how many MiB it grew the process."""
    command = [sys.executable, "-c", MEASURE, str(path), skip]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **env}, timeout=120)
    *said, grown = done.stdout.splitlines()
    return "\n".join(said), int(grown)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "header", "block", "says"),
    [
        # 256 MiB of text in 256 KiB of file; the limit is 64 MiB
        (
            "blank-lines.csv.gz",
            b"name\na\n",
            (b" " * 1023 + b"\n") * 1024,
            "holds more than 67,108,864 bytes once unpacked",
        ),
        ("one-line.csv.gz", b"name\n", b"a" * MIB, "one-line.csv.gz:2: is longer than 1,048,576 bytes"),
        ("no-line.jsonl.gz", b"", b"\0" * MIB, "no-line.jsonl.gz:1: is longer than 1,048,576 bytes"),
        ("bad-rows.csv.gz", b"name\n", b"a,b\n" * (MIB // 4), "bad-rows.csv.gz: more than 100,000 problems"),
        ("same-rows.jsonl.gz", b"", b'{"name":"a"}\n' * 80_000, "same-rows.jsonl.gz: more than 100,000 problems"),
    ],
)
def test_a_gzip_bomb_is_refused_and_costs_little_memory(
    tmp_path: Path, name: str, header: bytes, block: bytes, says: str
) -> None:
    path = bomb(tmp_path / name, header, block, 256)
    assert path.stat().st_size < 2 * MIB
    said, grown = measured(path, "skip", DOVETAIL_MAX_FILE_SIZE="64Mi")
    assert says in said
    assert grown < 128  # MiB; 100,000 problems that are kept take about 50; whole texts took four times 256


def test_the_limit_is_named_with_the_bytes_read_and_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_MAX_FILE_SIZE", "1Mi")
    path = bomb(tmp_path / "jobs.csv.gz", b"name\na\n", (b" " * 1023 + b"\n") * 1024, 4)
    with pytest.raises(TraceError) as caught:
        load_jobs(path)
    packed = path.stat().st_size  # small enough to be read in one go
    assert str(caught.value) == (
        f"{path}: cannot be read: it holds more than 1,048,576 bytes once unpacked (by then, {packed:,} packed bytes "
        "were read); split it, or set DOVETAIL_MAX_FILE_SIZE to more, such as 2Mi"
    )
    monkeypatch.setenv("DOVETAIL_MAX_FILE_SIZE", "8Mi")
    assert [job.name for job in load_jobs(path)[0]] == ["a"]


@pytest.mark.parametrize("text", ["much", "-1", "0", "1.5Gi", "8 GB", "9" * 30])
def test_a_limit_that_is_no_size_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DOVETAIL_MAX_FILE_SIZE", text)
    path = tmp_path / "jobs.csv"
    path.write_text("name\na\n")
    with pytest.raises(TraceError, match=r"DOVETAIL_MAX_FILE_SIZE is .* write bytes, such as 8589934592 or 8Gi"):
        load_jobs(path)


def test_sizes_are_read_in_kubernetes_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_MAX_FILE_SIZE", raising=False)
    assert files.max_bytes(7) == 7
    for text, size in (("4096", 4096), ("2Ki", 2048), ("3Mi", 3 * MIB), ("1Gi", 2**30), (" 1Ti ", 2**40)):
        monkeypatch.setenv("DOVETAIL_MAX_FILE_SIZE", text)
        assert files.max_bytes(7) == size
        assert files.size_in_words(size).strip() in (text.strip(), "4Ki")


def test_more_lines_than_any_trace_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_LINES", 10)
    path = tmp_path / "jobs.csv"
    path.write_text("name\na\n" + "\n" * 9)
    with pytest.raises(TraceError, match="more than 10 lines; split it"):
        load_jobs(path)


def test_a_byte_that_is_no_utf8_is_counted_from_the_begin_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(b"\xef\xbb\xbfname\r\na\r\nb\xff\r\n")  # 3 + 6 + 3 + 1
    with pytest.raises(TraceError, match=r"is not UTF-8 text \(byte 13\)"):
        load_jobs(path)


def test_a_manifest_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(POD % "a" + "#" * MIB)
    monkeypatch.setenv("DOVETAIL_MAX_FILE_SIZE", "1Mi")
    assert said_of(path) == [
        f"{path}: cannot be read: it holds more than 1,048,576 bytes; split it, or set DOVETAIL_MAX_FILE_SIZE to more, "
        "such as 2Mi"
    ]


def test_a_large_limit_costs_nothing_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(POD % "a")
    monkeypatch.setenv("DOVETAIL_MAX_FILE_SIZE", "999999Ti")
    assert said_of(path) == []


def test_an_order_that_unpacks_to_more_than_any_order_has(tmp_path: Path) -> None:
    path = tmp_path / "orders.npz"
    np.savez_compressed(path, arrivals_1=np.zeros(2 * MOST_ARRIVALS, np.int64), nodes_1=np.zeros(1, np.int64))
    assert path.stat().st_size < MIB  # 80 MB of zeros
    trace = Trace("t", (Machine("m", 1, 1),), (Job("j"),))
    with pytest.raises(TraceError, match=r"arrivals_1 cannot be read: it holds 80,000,128 bytes once unpacked"):
        Orders.open(path).order(1, trace)
    np.savez_compressed(path, arrivals_1=np.zeros(2 * MOST_ARRIVALS, np.int8), nodes_1=np.zeros(1, np.int64))
    with pytest.raises(TraceError, match="arrivals_1 has 10,000,000 entries, more than 5,000,000"):
        Orders.open(path).order(1, trace)


def said_of(*paths: Path) -> list[str]:
    """What reading manifests complains about; empty where it works."""
    problems = Problems()
    try:
        documents.read([str(path) for path in paths], problems)
    except InputError as error:
        return [str(problem) for problem in error.problems if problem.severity == "error"]
    return []


@pytest.fixture(params=["FIFO", "socket", "device", "FIFO behind a link"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A path that ends in .yaml, and what it is. Nobody writes to the FIFO: to open it would wait for ever."""
    path = tmp_path / "folder" / "x.yaml"
    path.parent.mkdir()
    if request.param.startswith("FIFO"):
        target = path if request.param == "FIFO" else tmp_path / "pipe"
        os.mkfifo(target)
        if target != path:
            path.symlink_to(target)
        yield path, "a named pipe (FIFO)"
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            folder = os.open(path.parent, os.O_RDONLY)  # a socket's path may have 108 bytes only
            server.bind(f"/proc/self/fd/{folder}/x.yaml")
            os.close(folder)
            yield path, "a socket"
    else:
        path.symlink_to("/dev/zero")
        yield path, "a device"


def at_once(call: object) -> None:
    """Fails instead of hanging where the call blocks."""
    thread = threading.Thread(target=call, daemon=True)  # type: ignore[arg-type]
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it blocks"


def test_special_files_are_refused_at_once(special: tuple[Path, str]) -> None:
    path, kind = special
    expected = f"{path}: cannot be read: it is {kind}, not a file; `-f -` reads standard input"
    said: list[list[str]] = []
    at_once(lambda: said.extend((said_of(path), said_of(path.parent))))
    assert said == [[expected], [expected]]


def test_special_files_are_refused_wherever_a_file_is_named(special: tuple[Path, str], tmp_path: Path) -> None:
    path, kind = special
    trace = tmp_path / "jobs.csv"
    trace.symlink_to(path)
    said: list[str] = []

    def read_all() -> None:
        for call in (
            lambda: load_jobs(trace),
            lambda: Orders.open(path),
            lambda: config.load(path),
            lambda: with_vendors(KNOWN, str(path), Problems()),
            lambda: kubeconfig.read_file(path),
        ):
            try:
                call()
            except (TraceError, config.ConfigError, kubeconfig.KubeconfigError, Refused) as error:
                said.append(str(error))

    at_once(read_all)
    assert len(said) == 5
    assert all(f"it is {kind}, not a file" in each for each in said)


def test_pipes_that_the_caller_opened_are_read(tmp_path: Path) -> None:
    """`-f -`, `-f /dev/stdin` and process substitution, which is /dev/fd/63."""
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {allocatable: {pods: 10, cpu: 4}}\n")
    base = [sys.executable, "-m", "dovetail", "plan", "-f", str(nodes), "-f"]
    for name in ("-", "/dev/stdin", "/proc/self/fd/0"):
        done = subprocess.run([*base, name], input=POD % "web", capture_output=True, text=True, timeout=60)
        assert (done.returncode, "1 placed" in done.stdout) == (0, True), done.stderr
    read, write = os.pipe()
    os.write(write, (POD % "web").encode())
    os.close(write)
    done = subprocess.run([*base, f"/dev/fd/{read}"], capture_output=True, text=True, timeout=60, pass_fds=(read,))
    os.close(read)
    assert (done.returncode, "1 placed" in done.stdout) == (0, True), done.stderr


def test_links_in_a_circle_and_links_to_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    (tmp_path / "up").symlink_to(tmp_path)  # a folder that holds itself: not followed
    (tmp_path / "pod.yaml").write_text(POD % "web")
    said = said_of(tmp_path)
    assert [line.partition(": ")[0] for line in said] == [str(tmp_path / f"{name}.yaml") for name in ("a", "b", "gone")]
    assert all("cannot be read: " in line for line in said)


AS_ANOTHER_USER = """
import os, sys
from dovetail.kube.files.documents import read
from dovetail.kube.objects.problems import InputError, Problems
os.setegid(12345), os.seteuid(12345)
try:
    read([sys.argv[1]], Problems())
except InputError as error:
    print(*error.problems, sep="\\n")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root may")
def test_what_may_not_be_read_is_named_and_not_left_out() -> None:
    """As a user who may enter the folder, but neither read one file nor list one folder in it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "secret.yaml").write_text(POD % "a")
        (folder / "secret.yaml").chmod(0)
        (folder / "closed").mkdir(mode=0o700)
        (folder / "closed" / "b.yaml").write_text(POD % "b")
        done = subprocess.run([sys.executable, "-c", AS_ANOTHER_USER, name], capture_output=True, text=True, timeout=60)
    assert sorted(done.stdout.splitlines()) == [
        f"{folder / 'closed'}: cannot be read: Permission denied",
        f"{folder / 'secret.yaml'}: cannot be read: Permission denied",
    ]


@pytest.mark.slow
def test_a_folder_of_a_hundred_thousand_files(tmp_path: Path) -> None:
    for number in range(100_000):
        (tmp_path / f"{number}.json").write_text(
            f'{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p{number}"}}}}'
        )
    found = documents.read([str(tmp_path)], Problems())
    assert len(found) == 100_000
    open_files = len(os.listdir("/proc/self/fd"))
    assert open_files < 1_000  # each was closed


def test_a_gzip_file_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(b"name,gpus\r\n\r\na,1\r\nb,2"))
    jobs, problems = load_jobs(path)
    assert ([(job.name, job.gpus) for job in jobs], problems) == ([("a", 1), ("b", 2)], [])
