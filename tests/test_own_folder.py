"""Cached kernels are pickles: they are loaded only from folders that nobody else may write to."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail import kernel_cache, own_folder
from dovetail.sim.results_cache import ResultsCache
from tests.sim.small_runs import found, small_plan

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user, which only root may")
STRANGER = 12345


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("NUMBA_CACHE_DIR", "DOVETAIL_KERNELS", own_folder.PRIVATE_VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "home"))
    own_folder.notices()
    own_folder._told.clear()
    own_folder._refused.clear()
    yield
    own_folder._refused.clear()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_made_for_us_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "a" / "b" / "home"))
        assert kernel_cache.prepare()
    finally:
        os.umask(before)
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert folder.parent == tmp_path / "a" / "b" / "home"
    assert [mode(path) for path in (folder, *folder.parents[:3])] == [0o700] * 4
    assert own_folder.notices() == []


@pytest.mark.parametrize("wrong", [0o777, 0o770, 0o722, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, wrong: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(wrong)
    expect = home / f"kernels-{kernel_cache.fingerprint()}"
    if wrong & stat.S_ISVTX:  # as /tmp: what we make in it stays ours
        assert kernel_cache.prepare()
        assert own_folder.why_not_ours(home) != ""  # but nothing lies in the folder itself
        return
    assert not kernel_cache.prepare()
    assert "NUMBA_CACHE_DIR" not in os.environ
    said = f"other users may write to {home} (mode {wrong:04o}): chmod go-w {home}"
    assert own_folder.notices() == [f"nothing is loaded from or kept in {expect}: {said}"]
    assert own_folder.notices() == []  # once
    assert not expect.exists()


@ROOT_ONLY
def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    for owned in ("home", "home/kernels"):
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        path = home if owned == "home" else home / f"kernels-{kernel_cache.fingerprint()}"
        path.mkdir(exist_ok=True, mode=0o700)
        os.chown(path, STRANGER, STRANGER)
        assert not kernel_cache.prepare()
        [notice] = own_folder.notices()
        assert f"{path} belongs to user 12345, not to user 0" in notice
        os.chown(path, 0, 0)
        own_folder._told.clear()


EVIL = """
import os, sys
from pathlib import Path
from dovetail import kernel_cache
print(kernel_cache.prepare_for_now())
from dovetail.kube.live.warm import read, warm
warm([read("first-fit:first-fit")], on_disk=True)
print("ran" if Path(sys.argv[1]).exists() else "did not run")
"""


class Evil:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str, int, int]]:
        return os.open, (str(self.mark), os.O_CREAT | os.O_WRONLY, 0o600)


@pytest.mark.slow
def test_a_planted_pickle_runs_only_where_the_folder_is_ours(tmp_path: Path) -> None:
    """The attack: kernels are compiled once, and their index is replaced by a pickle that opens a file."""
    home, mark = tmp_path / "home", tmp_path / "mark"
    environment = {**os.environ, "DOVETAIL_CACHE_DIR": str(home), "DOVETAIL_PRIVATE_VOLUMES": ""}

    def run() -> str:
        command = [sys.executable, "-c", EVIL, str(mark)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        return done.stdout.split("\n")[1] if done.returncode == 0 else done.stderr

    assert run() == "did not run"
    indices = list(home.rglob("*.nbi"))
    assert indices
    for index in indices:
        index.write_bytes(pickle.dumps(Evil(mark), -1))
    home.chmod(0o777)
    assert run() == "did not run"
    home.chmod(0o755)
    run()
    assert mark.exists()  # so the pickle is a real one


def test_files_that_others_could_change_are_dropped_when_the_folder_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "home" / f"kernels-{kernel_cache.fingerprint()}"
    (folder / "deep").mkdir(parents=True)
    good, writable, link = folder / "good.nbi", folder / "deep" / "writable.nbi", folder / "deep" / "link.nbi"
    for path in (good, writable):
        path.write_bytes(b"x")
    writable.chmod(0o666)
    link.symlink_to(good)
    beside = tmp_path / "home" / "mine.txt"
    beside.write_text("not ours to drop")
    beside.chmod(0o666)
    assert kernel_cache.prepare()
    assert mode(folder) == 0o700
    assert (good.exists(), writable.exists(), link.is_symlink(), beside.exists()) == (True, False, False, True)
    writable.write_bytes(b"x")
    writable.chmod(0o664)  # as numba writes under umask 002: nobody else can reach it any more
    assert own_folder.use(folder) == folder
    assert writable.exists()


@ROOT_ONLY
def test_a_file_of_another_user_is_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "home" / f"kernels-{kernel_cache.fingerprint()}"
    folder.mkdir(parents=True, mode=0o700)
    planted = folder / "planted.nbi"
    planted.write_bytes(b"x")
    os.chown(planted, STRANGER, STRANGER)
    assert kernel_cache.prepare()
    assert not planted.exists()


def test_a_link_of_the_cache_is_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba is given the real path: to turn the link later changes nothing."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "link"))
    assert kernel_cache.prepare()
    assert Path(os.environ["NUMBA_CACHE_DIR"]).parent == tmp_path / "real"


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "taken"), [(0o755, 0o644, True), (0o777, 0o644, False), (0o755, 0o666, False)]
)
def test_kernels_of_the_image_are_taken_where_only_root_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder_mode: int, file_mode: int, taken: bool
) -> None:
    shipped = tmp_path / "image" / f"kernels-{kernel_cache.fingerprint()}"
    shipped.mkdir(parents=True)
    (shipped / "k.nbi").write_bytes(b"x")
    (shipped / "k.nbi").chmod(file_mode)
    shipped.chmod(folder_mode)
    monkeypatch.setenv("DOVETAIL_KERNELS", str(shipped.parent))
    assert kernel_cache.prepare()
    assert (Path(os.environ["NUMBA_CACHE_DIR"]) / "k.nbi").exists() is taken
    assert bool(own_folder.notices()) is not taken


def test_a_volume_of_the_pod_is_trusted_by_name_and_what_is_in_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emptyDir is root's with mode 0777; deploy/deployment.yaml names it."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    monkeypatch.setenv(own_folder.PRIVATE_VARIABLE, f"/tmp/other:{home}")
    folder = home / f"kernels-{kernel_cache.fingerprint()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert not kernel_cache.prepare()
    folder.rmdir()
    assert kernel_cache.prepare()
    assert mode(folder) == 0o700


def test_a_folder_named_to_numba_is_held_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(theirs))
    assert kernel_cache.prepare()
    assert Path(os.environ["NUMBA_CACHE_DIR"]).parent == tmp_path / "home"
    assert str(theirs) in own_folder.notices()[0]


def test_where_our_folder_is_not_ours_kernels_last_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o777)
    assert kernel_cache.prepare_for_now()
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert folder.name.startswith("dovetail-kernels-")
    assert mode(folder) == 0o700


def test_results_are_neither_read_from_nor_kept_in_a_folder_of_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    mine = ResultsCache(home)
    found(small_plan(), mine)
    assert found(small_plan(), ResultsCache(home)).remembered == 4
    home.chmod(0o777)
    assert found(small_plan(), ResultsCache(home)).remembered == 0
    assert len(own_folder.notices()) == 1


def test_plan_says_once_that_the_cache_is_not_used(tmp_path: Path, examples: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o777)
    files = [part for name in ("cluster", "demo-a") for part in ("-f", str(examples / "demo" / f"{name}.yaml"))]
    command = [sys.executable, "-m", "dovetail", "plan", *files, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if "nothing is loaded from or kept in" in line]
    assert len(lines) == 1
    assert lines[0].startswith("dovetail: warning: ")
