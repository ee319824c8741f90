"""A watch's stream → events in batches: the events of one read form one list. Bytes in, values out.

The events do not depend on how the network splits the stream: lines are put together first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from dovetail.kube.api.errors import Status, status_of
from dovetail.kube.api.typed import UNREADABLE, Ref, TypedReader, Unreadable, ref_of, version_of
from dovetail.kube.objects.problems import printable

T = TypeVar("T")
LONGEST_LINE = 32 * 2**20  # bytes; etcd keeps objects of 1.5 MiB


class Changed(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object as it is now, new or changed."""

    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object is gone. `object` is its last state, None where that cannot be read."""

    ref: Ref
    object: T | None


class Replaced(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """All objects as they are now. Other known objects are gone, except the unreadable ones, which exist."""

    items: list[T]
    unreadable: list[Unreadable]
    rewound: bool = False  # the server's newest state is older than what it sent before: etcd was restored


class NotServed(msgspec.Struct, frozen=True, gc=False):
    """There are no objects: the server does not have the resource (a CRD that is not installed), or we may not read it.

    The latter only where the resource is optional.
    """


Event = Changed[T] | Deleted[T] | Replaced[T] | Unreadable | NotServed


@dataclass(slots=True)
class Heard(Generic[T]):
    """The content of one read of the stream."""

    events: list[Event[T]] = field(default_factory=list)
    version: str = ""  # resourceVersion to continue from; "" = nothing new
    error: Status | None = None  # the server ended the watch with this Status: list again
    garbled: str = ""  # a line that is not an event; the lines after it were not read


class Garbled(Exception):
    """A line longer than any object can be."""


class Lines:
    """Joins the pieces of a stream into complete lines; each byte is copied at most once."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # of the incomplete line
        self._size = 0

    def feed(self, chunk: bytes) -> bytes:
        """All lines that are complete now, with their line ends; b"" if there is none."""
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            self._keep(chunk)
            return b""
        whole = chunk if end == len(chunk) else chunk[:end]
        if self._pieces:
            whole = b"".join((*self._pieces, whole))
            self._pieces.clear()
            self._size = 0
        if end < len(chunk):
            self._keep(chunk[end:])
        return whole

    def _keep(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > LONGEST_LINE:
            raise Garbled(f"a line of more than {LONGEST_LINE} bytes")


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class WatchReader(Generic[T]):
    """Reads complete lines of a watch. A bookmark has no spec, so an object is decoded after its envelope."""

    def __init__(self, reader: TypedReader[T]) -> None:
        self._reader = reader
        self.unreadable: dict[tuple[str, str], Unreadable] = {}  # namespace, name -> what is wrong with it

    def start(self, unreadable: Iterable[Unreadable]) -> None:
        """Start from a list, in which these objects could not be read."""
        self.unreadable = {(each.ref.namespace, each.ref.name): each for each in unreadable}

    def read(self, lines: bytes) -> Heard[T]:
        heard: Heard[T] = Heard()
        last: msgspec.Raw | None = None
        for envelope in _envelopes(lines, heard):
            kind, raw = envelope.type, envelope.object
            if kind == "ERROR":
                heard.error = status_of(raw)
                break
            if kind in ("ADDED", "MODIFIED"):
                heard.events.append(self._changed(raw))
            elif kind == "DELETED":
                heard.events.append(self._deleted(raw))
            last = raw  # a bookmark also carries the current version
        if last is not None:
            heard.version = version_of(last)
        return heard

    def _changed(self, raw: msgspec.Raw) -> Changed[T] | Unreadable:
        found = self._reader.object(raw)
        if isinstance(found, Unreadable):
            self.unreadable[found.ref.namespace, found.ref.name] = found
            return found
        if self.unreadable:
            self._forget(ref_of(raw))
        return Changed(found)

    def _deleted(self, raw: msgspec.Raw) -> Deleted[T]:
        found, ref = self._reader.object(raw), ref_of(raw)
        self._forget(ref)
        return Deleted(ref, None if isinstance(found, Unreadable) else found)

    def _forget(self, ref: Ref) -> None:
        self.unreadable.pop((ref.namespace, ref.name), None)


def _envelopes(lines: bytes, heard: Heard[T]) -> Iterator[_Envelope]:
    """All envelopes in one pass where all are valid, else one by one up to the invalid one."""
    try:
        yield from _ENVELOPE.decode_lines(lines)
        return
    except UNREADABLE:
        pass
    for line in lines.split(b"\n"):
        if not line.strip():
            continue
        try:
            yield _ENVELOPE.decode(line)
        except UNREADABLE as error:
            heard.garbled = f"a line that is no watch event: {printable(str(error), 300)}"
            return
