"""The files of a journal: blocks of entries, each with its length and a checksum.

A file is the line MAGIC and then blocks: length and CRC-32 of the payload (4 bytes each, big-endian), one byte that is
1 if the payload is compressed by zlib, payload. The payload is entries, each behind its length (4 bytes). The first
block has the header alone.

A process that is killed leaves an incomplete last block: that is expected, and reported. A block with a wrong checksum,
or with more blocks behind it, is damage.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dovetail.files import open_input
from dovetail.kube.journal.codec import FileHeader, JournalEntry, NotOurs, decode, decode_header

MAGIC = b"dovetail journal 1\n"
SUFFIX = ".journal"
MAX_BLOCK = 256 * 2**20  # bytes: a longer one is refused, compressed or not
COMPRESS_FROM = 256  # bytes; shorter payloads are written as they are
LEVEL = 6  # of zlib: level 1 takes a third less time and a quarter more room
_HEAD, _LENGTH = struct.Struct(">IIB"), struct.Struct(">I")


class UnreadableJournal(Exception):
    """A file that cannot be read as a journal: what is wrong, where, and what to do."""


@dataclass(slots=True)
class JournalFile:
    """A file and what was found out about it while it was read."""

    path: Path
    header: FileHeader
    bytes: int
    torn: int = 0  # bytes of an incomplete last block
    damage: str = ""  # why reading stopped before the end; "" = it did not
    entries: int = field(default=0)


def block(entries: Iterable[bytes]) -> bytes:
    payload = b"".join(part for entry in entries for part in (_LENGTH.pack(len(entry)), entry))
    packed = 0
    if len(payload) >= COMPRESS_FROM:
        payload, packed = zlib.compress(payload, LEVEL), 1
    return _HEAD.pack(len(payload), zlib.crc32(payload), packed) + payload


def journal_files(place: Path) -> list[Path]:
    """The files of a journal, oldest first: of a folder, or the one file. Raises UnreadableJournal."""
    if place.is_dir():
        found = sorted(path for path in place.iterdir() if path.name.endswith(SUFFIX))
        if not found:
            raise UnreadableJournal(f"{place}: no file *{SUFFIX} is there; give the folder of scheduler --journal")
        return found
    if not place.exists():
        raise UnreadableJournal(f"{place}: there is no such file or folder")
    return [place]


def open_journal(path: Path) -> JournalFile:
    """The file with its header. Raises UnreadableJournal."""
    try:
        with open_input(path) as file:
            if (start := file.read(len(MAGIC))) != MAGIC:
                raise UnreadableJournal(_foreign(path, start))
            data, problem = _next_block(file.read)
            if data is None:
                raise UnreadableJournal(f"{path}: the header is {problem or 'missing'}; the file cannot be used")
            return JournalFile(path, decode_header(next(_entries(data))), path.stat().st_size)
    except OSError as error:
        raise UnreadableJournal(f"{path} cannot be read: {error.strerror}") from error
    except (NotOurs, StopIteration) as error:
        raise UnreadableJournal(f"{path}: the header cannot be read: {error}") from error


def _foreign(path: Path, start: bytes) -> str:
    if start.startswith(b"dovetail journal "):
        version = start[17:].split(b"\n")[0].decode("ascii", "replace")
        return f"{path} has format {version} of a journal; this dovetail reads format 1: use the version that wrote it"
    return f"{path} is not a journal of dovetail: it does not begin with {MAGIC.decode().strip()!r}"


def read_entries(journal: JournalFile) -> Iterator[JournalEntry]:
    """The entries up to the end, or up to damage; `journal` then says which."""
    with open_input(journal.path) as file:
        file.seek(len(MAGIC))
        position = file.tell()
        first = True
        while True:
            data, problem = _next_block(file.read)
            if data is None:
                left = journal.bytes - position
                if problem == "incomplete":
                    journal.torn = left
                elif problem:
                    journal.damage = f"the block at byte {position:,} is {problem}; {left:,} bytes are not read"
                return
            try:
                for entry in [] if first else list(map(decode, _entries(data))):
                    journal.entries += 1
                    yield entry
            except NotOurs as error:
                left = journal.bytes - position
                journal.damage = (
                    f"the block at byte {position:,} cannot be decoded: {error}; {left:,} bytes are not read"
                )
                return
            position, first = file.tell(), False


def _next_block(read: object) -> tuple[bytes | None, str]:
    """The payload of the next block; None at the end, with what is wrong there."""
    assert callable(read)
    head = read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None, "incomplete" if head else ""
    length, checksum, packed = _HEAD.unpack(head)
    if length > MAX_BLOCK or packed > 1:
        return None, f"said to have {length:,} bytes, which no journal has"
    payload = read(length)
    if len(payload) < length:
        return None, "incomplete"
    if zlib.crc32(payload) != checksum:
        return None, "damaged: its checksum is wrong"
    if not packed:
        return payload, ""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(payload, MAX_BLOCK)
    except zlib.error as error:
        return None, f"damaged: {error}"
    return (None, f"longer than {MAX_BLOCK:,} bytes when unpacked") if unpacker.unconsumed_tail else (data, "")


def _entries(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        end = position + _LENGTH.size
        if end > len(data):
            raise NotOurs("an entry ends before its length")
        (length,) = _LENGTH.unpack_from(data, position)
        if end + length > len(data):
            raise NotOurs("an entry ends before its length says")
        yield data[end : end + length]
        position = end + length


def create(path: Path) -> int:
    """A new file that only this user can read, as a descriptor."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    return os.open(path, flags, 0o600)
