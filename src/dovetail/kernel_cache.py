"""Where compiled kernels are kept between runs.

numba notices a change only in the file of the function that it compiles, not in the helpers that it inlines. So the
folder's name is a hash of every source that may become part of a kernel. Call `prepare` before numba is imported.

An image may contain kernels in a read-only folder (`DOVETAIL_KERNELS`). numba needs a folder that it can write to, so
they are copied. numba also separates code by the name and features of the processor. So such an image sets
`NUMBA_CPU_NAME=generic` when it is built and when it runs; otherwise numba finds none of its kernels.

Kernels are pickles: folders that another user may write to are not used (own_folder.py).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dovetail import own_folder

SOURCES = ("model", "policies", "engine")
FORGET_AFTER_DAYS = 30


def prepare() -> bool:
    """Set numba's cache to our folder. True if kernels are kept between runs.

    False if the folder cannot be written, or if other users may write to it: then kernels are compiled each time.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given is not None:
        if own_folder.may_write_to(Path(given)):
            return True
        del os.environ["NUMBA_CACHE_DIR"]
    try:
        folder = own_folder.use(home() / f"kernels-{fingerprint()}")
        if folder is None:
            return False
        probe = folder / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
        os.utime(folder)
    except OSError:
        return False
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    with suppress(OSError):
        _take_along(folder)
    forget_old(folder)
    return True


def prepare_for_now() -> bool:
    """Like `prepare`; if our folder cannot be used, take a temporary one that is deleted at the end.

    Without either, numba would write beside the sources, and would not notice when they change.
    """
    if prepare():
        return True
    try:
        folder = Path(tempfile.mkdtemp(prefix="dovetail-kernels-"))
    except OSError:
        return False
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if not own_folder.may_write_to(folder):
        return False
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    with suppress(OSError):
        _take_along(folder)
    return True


def _take_along(folder: Path) -> None:
    """Copy the kernels of the image.

    Another process may read at the same time. So each file appears complete, and an index (`.nbi`) after the code that
    it refers to (`.nbc`).
    """
    given = os.environ.get("DOVETAIL_KERNELS")
    shipped = Path(given) / f"kernels-{fingerprint()}" if given else None
    if shipped is None or shipped == folder or not shipped.is_dir() or not own_folder.may_read_from(shipped):
        return
    for path in sorted(shipped.rglob("*"), key=lambda path: (path.suffix == ".compiled", path.suffix, path)):
        target = folder / path.relative_to(shipped)
        if path.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f"{target.name}.{os.getpid()}")
            shutil.copyfile(path, part)
            part.replace(target)


def is_warm(kernel: str) -> bool:
    """True if an earlier run compiled this kernel."""
    return _mark(kernel).exists()


def remember(kernel: str) -> None:
    """Record for the next run that this kernel is compiled."""
    with suppress(OSError):
        _mark(kernel).touch()


def _mark(kernel: str) -> Path:
    """The file that says that a kernel is compiled, for this installation.

    numba keeps the code of each folder of sources apart. With one mark for two installations of the same version, the
    second one finds no code, and compiles in the middle of its work.
    """
    folder = Path(os.environ.get("NUMBA_CACHE_DIR", os.devnull))
    return folder / f"{fingerprint()}-{hashlib.sha256(f'{kernel} {_package()}'.encode()).hexdigest()[:16]}.compiled"


def _package() -> Path:
    """The folder of our sources, as numba names it: links are not followed."""
    return Path(os.path.abspath(__file__)).parent


def home() -> Path:
    given = os.environ.get("DOVETAIL_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dovetail"


@cache
def fingerprint() -> str:
    """A hash that changes with any source of a kernel, with numba and with Python."""
    digest = hashlib.sha256(f"{_numba()} {platform.python_version()} {platform.machine()}".encode())
    package = Path(__file__).parent
    for folder in SOURCES:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _numba() -> str:
    """numba's version. Without numba, all kernels are interpreted and the folder stays empty."""
    try:
        return version("numba")
    except PackageNotFoundError:
        return "none"


def forget_old(current: Path) -> None:
    """Remove the kernels of versions that were not used for FORGET_AFTER_DAYS."""
    limit = time.time() - FORGET_AFTER_DAYS * 86_400
    for folder in current.parent.glob("kernels-*"):
        if folder != current and folder.stat().st_mtime < limit:
            shutil.rmtree(folder, ignore_errors=True)
