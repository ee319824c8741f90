"""An HTTP/1.1 answer, put together from bytes that are cut anywhere. Bytes in, values out; knows no sockets.

As much of RFC 9112 as answers to small requests need: Content-Length, chunks, and bodies that end with the connection.
"""

from __future__ import annotations

from typing import NamedTuple

LONGEST_HEAD = 2**16  # bytes
LONGEST_BODY = 2**26
_END = b"\r\n\r\n"


class Garbage(Exception):
    """What came is no answer."""


class Answer(NamedTuple):
    status: int
    head: bytes  # status line and headers, in lower case
    body: bytes
    reusable: bool  # another request may follow on the same connection

    def header(self, name: bytes) -> str | None:
        """`name` is in lower case, and so is the value."""
        found = _header(self.head, name)
        return found.decode("latin-1") if found is not None else None


class Parser:
    """`feed` whatever comes; it returns the answer once it is whole. Bytes beyond it are an error."""

    __slots__ = ("_body", "_buffer", "_chunked", "_head", "_length")

    def __init__(self) -> None:
        self._buffer = b""
        self._head = b""  # once it is whole
        self._length: int | None = None  # of the body; None = up to the end of the connection
        self._chunked = False
        self._body: list[bytes] = []  # chunks so far

    @property
    def idle(self) -> bool:
        return not self._buffer and not self._head

    def feed(self, data: bytes) -> Answer | None:
        self._buffer = self._buffer + data if self._buffer else data
        if not self._head and not self._read_head():
            return None
        if self._chunked:
            return self._chunks()
        if self._length is None or len(self._buffer) < self._length:
            if len(self._buffer) > LONGEST_BODY:
                raise Garbage(f"an answer of more than {LONGEST_BODY} bytes")
            return None
        if len(self._buffer) > self._length:
            raise Garbage("more bytes than the answer's length")
        return self._done(self._buffer, reusable=_header(self._head, b"connection") != b"close")

    def end(self) -> Answer | None:
        """The connection ended: the answer, if that is how it says that it is whole."""
        if self._head and not self._chunked and self._length is None:
            return self._done(self._buffer, reusable=False)
        return None

    def _read_head(self) -> bool:
        while True:
            end = self._buffer.find(_END)
            if end < 0:
                if len(self._buffer) > LONGEST_HEAD:
                    raise Garbage(f"headers of more than {LONGEST_HEAD} bytes")
                return False
            head, self._buffer = self._buffer[:end].lower(), self._buffer[end + 4 :]
            if not head.startswith(b"http/1.") or not head[9:12].isdigit():
                raise Garbage("no HTTP/1.1 answer")
            if head[9:10] != b"1":
                break  # 1xx: the answer itself follows
        self._head = head
        self._chunked = b"chunked" in (_header(head, b"transfer-encoding") or b"")
        self._length = self._stated_length(head)
        return True

    def _stated_length(self, head: bytes) -> int | None:
        if head[9:12] in (b"204", b"304"):
            return 0
        length = _header(head, b"content-length")
        if length is None:
            return None
        if not length.isdigit() or int(length) > LONGEST_BODY:
            raise Garbage("a content-length that is none, or too large")
        return int(length)

    def _chunks(self) -> Answer | None:
        while True:
            end = self._buffer.find(b"\r\n")
            if end < 0:
                if len(self._buffer) > 1024:
                    raise Garbage("no length of a chunk")
                return None
            size = _size(self._buffer[:end])
            if size == 0:
                return self._trailer(end)
            if len(self._buffer) < end + size + 4:
                return None
            self._body.append(self._buffer[end + 2 : end + 2 + size])
            self._buffer = self._buffer[end + 4 + size :]

    def _trailer(self, end: int) -> Answer | None:
        """After the last chunk: headers that nobody asked for, and an empty line."""
        rest = self._buffer[end:]
        if rest[:4] == _END:
            if len(rest) > 4:
                raise Garbage("more bytes than the answer's last chunk")
        elif not rest.endswith(_END):
            if len(rest) > LONGEST_HEAD:
                raise Garbage("an answer without end")
            return None
        return self._done(b"".join(self._body), reusable=_header(self._head, b"connection") != b"close")

    def _done(self, body: bytes, *, reusable: bool) -> Answer:
        head, self._head, self._buffer, self._body = self._head, b"", b"", []
        return Answer(int(head[9:12]), head, body, reusable and head.startswith(b"http/1.1"))


def _header(head: bytes, name: bytes) -> bytes | None:
    start = head.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()


def _size(line: bytes) -> int:
    text = line.partition(b";")[0].strip()
    try:
        size = int(text, 16) if text.isalnum() else -1
    except ValueError:
        size = -1
    if not 0 <= size <= LONGEST_BODY:
        raise Garbage("a chunk's length that is none, or too large")
    return size
