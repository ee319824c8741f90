"""Opens files from users: regular files only, without blocking, and with a limit on their size.

It is outside the layers, beside `kernel_cache.py`. Errors are OSErrors whose `strerror` says what is wrong.
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
MAX_TRACE_BYTES = 4 * GIB  # unpacked text of a trace; it is read line by line, so this limits time, not memory
MAX_MANIFEST_BYTES = GIB  # a file of manifests; its objects take 5 to 25 times as much memory
PORTION_BYTES = 2**20
MAX_SETTINGS_BYTES = 16 * 2**20  # of a kubeconfig with certificates, or HAMi's device configuration

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
    """The environment variable for the limit is not a size."""

    def __init__(self, text: str) -> None:
        super().__init__(0, f"{LIMIT_VARIABLE} is {text[:40]!r}; write bytes, such as 8589934592 or 8Gi")


def max_bytes(default: int) -> int:
    """The limit in bytes: `DOVETAIL_MAX_FILE_SIZE` if it is set, else `default`."""
    given = os.environ.get(LIMIT_VARIABLE)
    if not given:
        return default
    match = _SIZE.fullmatch(given.strip())
    if match is None or not int(match[1]):
        raise BadLimit(given)
    return int(match[1]) * _UNITS[match[2]]


def size_in_words(size: int) -> str:
    """`8Gi` for a whole number of a unit, else the number of bytes."""
    unit = next((unit for unit in ("Ti", "Gi", "Mi", "Ki") if not size % _UNITS[unit]), None)
    return f"{size // _UNITS[unit]}{unit or ''}"


def open_input(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; raise OSError at once for anything else.

    Descriptors that the caller opened (`/dev/stdin`, `/dev/fd/63` of a process substitution) may be pipes: they end
    when their writer ends. A FIFO with another name may have no writer, and opening it would block.
    """
    inherited = _INHERITED.fullmatch(os.fspath(path)) is not None
    if not inherited:
        _check(os.stat(path).st_mode)  # before opening: opening a device can start it
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        if not inherited:
            _check(os.fstat(descriptor).st_mode)  # the file may have been replaced in between
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
    """All bytes of a file. Raises TooLarge beyond the limit."""
    with open_input(path) as file:
        return bytes(read_at_most(file, limit))


def read_at_most(file: IO[bytes], limit: int) -> bytearray:
    """All bytes of a stream. Raises TooLarge after reading little more than the limit.

    It reads in portions: `read(limit)` would allocate the whole limit first.
    """
    data = bytearray()
    while portion := file.read(PORTION_BYTES):
        data += portion
        if len(data) > limit:
            raise TooLarge(limit)
    return data
