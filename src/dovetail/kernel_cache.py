"""Where compiled kernels are kept between runs.

numba notices an edit only in the file of the function it compiles, not in the helpers it inlines, so the folder is
named by a hash of every source that may end up in a kernel. Call `prepare` before numba is imported.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import time
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

SOURCES = ("model", "policies", "engine")
FORGET_AFTER_DAYS = 30


def prepare() -> bool:
    """Point numba at our folder; False where there is no place to write, and kernels are compiled anew each time."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return True
    folder = home() / f"kernels-{fingerprint()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
        os.utime(folder)
    except OSError:
        return False
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    forget_old(folder)
    return True


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
    digest = hashlib.sha256(f"{version('numba')} {platform.python_version()} {platform.machine()}".encode())
    package = Path(__file__).parent
    for folder in SOURCES:
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def forget_old(current: Path) -> None:
    """Kernels of versions nobody ran for a month."""
    limit = time.time() - FORGET_AFTER_DAYS * 86_400
    for folder in current.parent.glob("kernels-*"):
        if folder != current and folder.stat().st_mtime < limit:
            shutil.rmtree(folder, ignore_errors=True)
