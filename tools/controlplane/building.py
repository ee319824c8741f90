"""Builds the programs of a recipe, once, into the user's cache. Only one build of a recipe runs at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.controlplane.recipes import FLAGS, Recipe, cache

QUIET_SECONDS = 2.0  # a shorter build prints no progress
BETWEEN_LINES = 5.0  # seconds between two lines of progress


class CannotBuild(Exception):
    """Go is missing, too old, or failed."""


def go_version(folder: Path) -> str:
    """The Go version that would build the module in `folder`, such as `go1.26.8`."""
    go = shutil.which("go")
    if go is None:
        raise CannotBuild(
            "Go is not installed, so the control plane cannot be built. Install Go 1.26 or newer, "
            "or point KUBEBUILDER_ASSETS at a folder with etcd, kube-apiserver and kubectl."
        )
    said = subprocess.run([go, "env", "GOVERSION"], cwd=folder, capture_output=True, text=True, env=_environment())
    if said.returncode != 0:
        raise CannotBuild(f"go env in {folder} failed:\n{said.stderr.strip()}")
    return said.stdout.strip()


def build(recipe: Recipe) -> Path:
    """The folder with the recipe's programs. Builds them if they are missing."""
    version = go_version(recipe.folder)
    home = recipe.home(version)
    if home.is_dir():
        return home
    cache().mkdir(parents=True, exist_ok=True)
    with _lock(cache() / f".{recipe.name}.lock", f"{recipe.name} {recipe.version}"):
        if not home.is_dir():  # the process that held the lock may have built the same programs
            _build_all(recipe, home, version)
    return home


def _build_all(recipe: Recipe, home: Path, version: str) -> None:
    _say(f"Building {recipe.name} {recipe.version} with {version}, once, into {home}")
    with tempfile.TemporaryDirectory(prefix=".building-", dir=cache()) as room:
        made = Path(room) / "bin"
        made.mkdir()
        for program, package in recipe.programs:
            _build_one(recipe, package, made / program)
        made.rename(home)  # atomic: a process that sees the folder sees every program in it


def _build_one(recipe: Recipe, package: str, target: Path) -> None:
    verb = ["test", "-c"] if recipe.tests else ["build", "-v"]
    command = ["go", *verb, *FLAGS, "-ldflags", recipe.link_flags, "-o", str(target), package]
    started = time.monotonic()
    child = subprocess.Popen(
        command, cwd=recipe.folder, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    said: list[str] = []  # `go build -v` prints each package when it is compiled
    reader = threading.Thread(target=lambda: said.extend(child.stderr or ()), daemon=True)
    reader.start()
    try:
        _report_while_running(child, target.name, said, started)
    except BaseException:
        child.kill()
        child.wait()
        raise
    finally:
        reader.join()
        if child.stderr is not None:
            child.stderr.close()
    if child.returncode != 0:
        raise CannotBuild(f"{' '.join(command)} failed:\n{''.join(said[-20:])}")
    _say(f"  {target.name}: {target.stat().st_size >> 20} MiB, {time.monotonic() - started:.0f} s")


def _report_while_running(child: subprocess.Popen[str], name: str, said: list[str], started: float) -> None:
    wait = QUIET_SECONDS
    while True:
        try:
            child.wait(wait)
            return
        except subprocess.TimeoutExpired:
            compiled = f", {len(said)} packages compiled" if said else ""
            _say(f"  {name}: {time.monotonic() - started:.0f} s{compiled}")
            wait = BETWEEN_LINES


@contextmanager
def _lock(path: Path, what: str) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"Waiting: {what} is being built by someone else")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _environment() -> dict[str, str]:
    """The environment of `go`.

    No cgo, so that the programs run wherever they are copied to. GOFLAGS is cleared: the user's flags might ask for a
    vendor folder.
    """
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
