"""Where compiled kernels are kept between runs.

numba notices an edit only in the file of the function it compiles, not in the helpers it inlines, so the folder is
named by a hash of every source that may end up in a kernel. Call `prepare` before numba is imported.

An image may bring kernels along in a read-only folder (`DOVETAIL_KERNELS`). numba insists on a folder it
can write to, so they are copied. numba also keeps code apart by the name and features of the processor it was made
for: such an image sets `NUMBA_CPU_NAME=generic` when it is built and when it runs, or nothing in the folder is found.

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
    """Point numba at our folder; False where there is no place to write, or where others may write to it, too, and
    kernels are compiled anew each time."""
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
    """As `prepare`; where our folder cannot be written to, one that is deleted at the end. Without either, numba would
    write beside the sources, and not notice when they change."""
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
    """Copy the kernels that came with the image. Each file appears whole, an index after what it speaks of (`.nbc`
    before `.nbi`), as another process may be reading."""
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
    """True where an earlier run left this kernel behind."""
    return _mark(kernel).exists()


def remember(kernel: str) -> None:
    """For the next run: this kernel need not be compiled."""
    with suppress(OSError):
        _mark(kernel).touch()


def _mark(kernel: str) -> Path:
    folder = Path(os.environ.get("NUMBA_CACHE_DIR", os.devnull))
    return folder / f"{fingerprint()}-{hashlib.sha256(kernel.encode()).hexdigest()[:16]}.compiled"


def home() -> Path:
    given = os.environ.get("DOVETAIL_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dovetail"


@cache
def fingerprint() -> str:
    """Changes with any source a kernel is made of, with numba and with Python."""
    digest = hashlib.sha256(f"{_numba()} {platform.python_version()} {platform.machine()}".encode())
    package = Path(__file__).parent
    for folder in SOURCES:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _numba() -> str:
    """numba's version. Without numba everything is interpreted, and the folder stays empty."""
    try:
        return version("numba")
    except PackageNotFoundError:
        return "none"


def forget_old(current: Path) -> None:
    """Kernels of versions nobody ran for a month."""
    limit = time.time() - FORGET_AFTER_DAYS * 86_400
    for folder in current.parent.glob("kernels-*"):
        if folder != current and folder.stat().st_mtime < limit:
            shutil.rmtree(folder, ignore_errors=True)
