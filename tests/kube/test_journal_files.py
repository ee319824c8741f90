"""A journal on disk: bounds, rights, a full disk, a killed process, and files that are damaged or no journal at all."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from dovetail.engine.recorded import RecordedScheduler
from dovetail.kube.journal import writer as writing
from dovetail.kube.journal.files import UnreadableJournal, journal_files, open_journal, read_entries
from dovetail.kube.journal.recorder import NoJournal, Recorder
from dovetail.kube.journal.writer import MIB, Limits
from dovetail.kube.log import INFO, Level
from dovetail.model.calls import EngineSettings
from dovetail.model.events import GroupArrived, NodeChanged, PodGone
from dovetail.model.pod import Group
from dovetail.whatif.rerun import Begun, Recorded, Rerun
from tests.strategies import renamed, some_node, some_pod

LIMITS = Limits(16 * MIB, 86_400.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FLUSH_SECONDS", 0.01)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Run:
    """A recorded engine with four nodes, without a cluster."""

    def __init__(self, folder: Path, limits: Limits = LIMITS) -> None:
        self.clock = Clock()
        self.said: list[str] = []
        self.engine = RecordedScheduler(EngineSettings(device_resources=("nvidia.com/gpu",)))
        self.recorder = Recorder(self.engine, folder, limits, now=self.clock, log=self._log)
        self.count = 0
        for n in range(4):
            self.engine.handle(NodeChanged(self.clock.now, some_node(Random(n), f"n{n}")))

    def _log(self, text: str, level: Level = INFO, /, **fields: str | int | float | bool) -> None:
        self.said.append(text)

    def pods(self, count: int) -> None:
        """Pods that come and go."""
        for _ in range(count):
            self.count += 1
            self.clock.now += 1.0
            pod = renamed(some_pod(Random(self.count % 7), "p"), f"p{self.count}")
            self.engine.handle(GroupArrived(self.clock.now, Group(pod.key, (pod,))))
            if self.count > 5:
                self.engine.handle(PodGone(self.clock.now, f"uid-p{self.count - 5}"))

    def settle(self, true: Callable[[], object] | None = None) -> None:
        """Until the thread has written, or until this is true."""
        ends = time.monotonic() + 60
        while not (true() if true is not None else not self.recorder.writer.pending):
            assert time.monotonic() < ends
            time.sleep(0.01)


@contextmanager
def recording(folder: Path, limits: Limits = LIMITS) -> Iterator[Run]:
    run = Run(folder, limits)
    try:
        yield run
    finally:
        run.recorder.close()


def repeated(folder: Path, *, restores: bool = False) -> Rerun:
    rerun = Rerun(restores=restores)
    for path in journal_files(folder):
        one = open_journal(path)
        rerun.begin(Begun(one.header.settings, one.header.part == 1, one.header.run, path.name))
        for entry in read_entries(one):
            rerun.step(Recorded(*entry))
    return rerun


def test_what_is_written_is_private_and_repeats(tmp_path: Path) -> None:
    with recording(tmp_path / "j") as run:
        run.pods(100)
    found = repeated(tmp_path / "j").counts
    assert (found.calls, found.different, found.gaps) == (4 + 100 + 95, 0, 0)
    assert found.decisions >= 100
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "j").iterdir()} == {0o600}


def test_old_files_go_and_the_rest_repeats_from_its_checkpoint(tmp_path: Path) -> None:
    """16 files of 8,000 bytes: however long it runs, 128,000 bytes and two checkpoints are not exceeded."""
    folder, limits = tmp_path / "j", Limits(16 * 8_000, 86_400.0)
    with recording(folder, limits) as run:
        for _ in range(120):
            run.pods(20)
            run.settle()
            run.settle(lambda: run.recorder.writer.idle)
            run.recorder.step()
            run.settle(lambda: run.recorder.writer.idle)
    total = sum(path.stat().st_size for path in journal_files(folder))
    assert total <= limits.bytes + 2 * 10_000
    first = open_journal(journal_files(folder)[0])
    assert first.header.part > 1
    for restores in (False, True):
        found = repeated(folder, restores=restores).counts
        assert (found.different, found.gaps, found.skipped, found.notes) == (0, 0, 0, [])
        assert found.calls > 300


def test_a_full_disk_leaves_a_gap_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [True]
    write = os.write

    def failing(file: int, data: bytes) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    with recording(tmp_path / "j") as run:
        run.pods(20)
        run.settle(lambda: run.recorder.writer.idle)
        monkeypatch.setattr(os, "write", failing)
        run.pods(20)
        run.settle(lambda: run.recorder.writer.problem)
        run.recorder.step()
        run.pods(20)  # scheduling goes on
        assert "No space left on device" in run.said[-1]
        assert run.recorder.numbers()["dovetail_journal_failing"] == 1.0
        full[0] = False
        run.clock.now += 31.0
        run.recorder.step()
        run.pods(20)
        run.settle(lambda: run.recorder.writer.idle)
        run.recorder.step()
        assert run.said[-1] == "the journal is written again, after a gap"
        assert run.recorder.lost == 40
    found = repeated(tmp_path / "j").counts
    assert found.different == 0
    assert found.gaps == 1
    assert found.calls < 4 + 4 * 40


def test_what_changes_the_engine_past_its_doors_is_a_gap(tmp_path: Path) -> None:
    with recording(tmp_path / "j") as run:
        run.pods(10)
        run.recorder.disturbed("a group was set aside")
        run.engine.ledger.release("uid-p10")
        run.pods(5)
        run.settle(lambda: run.recorder.writer.idle)
        run.recorder.step()
        run.pods(10)
    found = repeated(tmp_path / "j").counts
    assert (found.different, found.gaps, found.restored) == (0, 1, 1)
    assert "a group was set aside (10 entries were dropped)" in found.notes[0]


def test_a_killed_process_leaves_an_incomplete_end(tmp_path: Path) -> None:
    with recording(tmp_path / "j") as run:
        run.pods(50)
        run.settle(lambda: run.recorder.writer.idle)
        run.pods(50)
    (path,) = journal_files(tmp_path / "j")
    path.write_bytes(path.read_bytes()[:-5])
    one = open_journal(path)
    assert 0 < len(list(read_entries(one))) < 4 + 50 + 45 + 100
    assert one.torn > 0
    assert one.damage == ""


def test_damage_is_named_with_its_place(tmp_path: Path) -> None:
    with recording(tmp_path / "j") as run:
        run.pods(50)
    (path,) = journal_files(tmp_path / "j")
    data = bytearray(path.read_bytes())
    data[-20] ^= 0xFF
    path.write_bytes(data)
    one = open_journal(path)
    assert len(list(read_entries(one))) < 4 + 50 + 45
    assert "damaged: its checksum is wrong" in one.damage
    assert "the block at byte" in one.damage


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "does not begin with 'dovetail journal 1'"),
        (b"apiVersion: v1\nkind: Pod\n", "is not a journal of dovetail"),
        (b"dovetail journal 7\n....", "has format 7 of a journal; this dovetail reads format 1"),
        (b"dovetail journal 1\n", "the header is missing"),
        (b"dovetail journal 1\n\xff\xff\xff\xff\0\0\0\0\0", "said to have 4,294,967,295 bytes"),
        (b"dovetail journal 1\n\0\0\0\1\0\0\0\0\0x", "its checksum is wrong"),
    ],
)
def test_foreign_files_are_refused_with_the_reason(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x.journal").write_bytes(content)
    with pytest.raises(UnreadableJournal, match=says.replace("(", r"\(")):
        open_journal(journal_files(tmp_path)[0])


def test_a_pipe_in_the_folder_is_refused_at_once(tmp_path: Path) -> None:
    """To open a FIFO without a writer blocks: `dovetail journal stat` never ended."""
    pipe = tmp_path / "1.journal"
    os.mkfifo(pipe)
    with pytest.raises(UnreadableJournal, match=r"1\.journal cannot be read: it is a named pipe"):
        open_journal(pipe)


def test_only_files_are_deleted_to_make_room(tmp_path: Path) -> None:
    """A link to nothing and a folder of this name made each write fail."""
    (tmp_path / "0.journal").symlink_to(tmp_path / "gone")
    (tmp_path / "1.journal").mkdir()
    run = Run(tmp_path)
    run.pods(3)
    run.recorder.close()
    assert run.said == []
    assert (tmp_path / "0.journal").is_symlink()
    assert [path.name for path in tmp_path.glob("*.journal") if path.is_file()]


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "j").chmod(0o777)
    with pytest.raises(NoJournal, match="other users may write to"):
        Run(tmp_path / "j")


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    with recording(tmp_path / "j"), pytest.raises(NoJournal, match="in use by another dovetail"):
        Run(tmp_path / "j")


def test_no_journal_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(UnreadableJournal, match=r"no file \*.journal is there"):
        journal_files(tmp_path)
    with pytest.raises(UnreadableJournal, match="no such file or folder"):
        journal_files(tmp_path / "absent")
