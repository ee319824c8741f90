"""How files that other people wrote are opened: regular files only, never waiting, and no more bytes than a limit.

Stands outside the layers, beside `kernel_cache.py`. Errors are OSErrors whose `strerror` says what to do.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import IO, BinaryIO

LIMIT_VARIABLE = "DOVETAIL_MAX_FILE_SIZE"
GIB = 2**30
MAX_TRACE_BYTES = 4 * GIB  # text of a trace, unpacked; it is read line by line, so this bounds time, not memory
MAX_MANIFEST_BYTES = GIB  # a file of manifests; its objects take five to twenty-five times as much memory
PORTION_BYTES = 2**20
MAX_SETTINGS_BYTES = 16 * 2**20  # a kubeconfig with certificates in it, HAMi's device configuration

_SIZE = re.compile(r"([0-9]{1,15})(Ki|Mi|Gi|Ti)?", re.ASCII)
_UNITS = {None: 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_INHERITED = re.compile(r"/dev/(stdin|fd/[0-9]+)|/proc/self/fd/[0-9]+", re.ASCII)
_KINDS = (
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotAFile(OSError):
    """A FIFO, socket or device where a file was expected."""

    def __init__(self, kind: str) -> None:
        super().__init__(0, f"it is {kind}, not a file")


class TooLarge(OSError):
    """A file that holds more than the limit."""

    def __init__(self, limit: int, packed: int | None = None) -> None:
        unpacked = "" if packed is None else f" once unpacked (by then, {packed:,} packed bytes were read)"
        super().__init__(0, f"it holds more than {limit:,} bytes{unpacked}")
        self.advice = f"split it, or set {LIMIT_VARIABLE} to more, such as {size_in_words(2 * limit)}"


class BadLimit(OSError):
    """What the environment says about the limit is no size."""

    def __init__(self, text: str) -> None:
        super().__init__(0, f"{LIMIT_VARIABLE} is {text[:40]!r}; write bytes, such as 8589934592 or 8Gi")


def max_bytes(default: int) -> int:
    """The limit in bytes: `DOVETAIL_MAX_FILE_SIZE` where it is set, else `default`."""
    given = os.environ.get(LIMIT_VARIABLE)
    if not given:
        return default
    match = _SIZE.fullmatch(given.strip())
    if match is None or not int(match[1]):
        raise BadLimit(given)
    return int(match[1]) * _UNITS[match[2]]


def size_in_words(size: int) -> str:
    """`8Gi` where it is a whole number of a unit, else the bytes."""
    unit = next((unit for unit in ("Ti", "Gi", "Mi", "Ki") if not size % _UNITS[unit]), None)
    return f"{size // _UNITS[unit]}{unit or ''}"


def open_input(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; raise OSError at once for anything else.

    Descriptors that the caller opened for us (`/dev/stdin`, `/dev/fd/63` of a process substitution) may be pipes: they
    end when their writer ends. A FIFO by another name may have no writer at all, and opening it would wait for one.
    """
    inherited = _INHERITED.fullmatch(os.fspath(path)) is not None
    if not inherited:
        _check(os.stat(path).st_mode)  # before opening: to open a device can start it
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        if not inherited:
            _check(os.fstat(descriptor).st_mode)  # it may have been replaced meanwhile
        elif hasattr(os, "set_blocking"):
            os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise NotAFile(next((words for is_kind, words in _KINDS if is_kind(mode)), "something special"))


def read_input(path: str | Path, limit: int) -> bytes:
    """All bytes of a file; raises TooLarge beyond the limit, having read no more than that."""
    with open_input(path) as file:
        return bytes(read_at_most(file, limit))


def read_at_most(file: IO[bytes], limit: int) -> bytearray:
    """All bytes of a stream; raises TooLarge beyond the limit, having read little more than that.

    In portions: `read(limit)` would take the memory of the whole limit first.
    """
    data = bytearray()
    while portion := file.read(PORTION_BYTES):
        data += portion
        if len(data) > limit:
            raise TooLarge(limit)
    return data
