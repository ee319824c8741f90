"""One HTTP/1.1 response, put together from pieces of any size. Bytes in, values out: no sockets.

httptools (Node's llhttp) parses. This module adds limits, and accepts no bytes beyond the response. A connection is
used again: bytes read as part of the wrong response would be the answer to another pod's Binding. ADR 17 has the
measurements behind this choice.
"""

from __future__ import annotations

from typing import NamedTuple

import httptools

MAX_HEAD_BYTES = 2**16
MAX_BODY_BYTES = 2**26


class Garbage(Exception):
    """The bytes are not a response that can be read safely; the connection must be closed."""


class HttpResponse(NamedTuple):
    status: int
    headers: dict[bytes, bytes]  # names in lower case; values of several headers of one name are joined with commas
    body: bytes
    reusable: bool  # another request may follow on the same connection

    def header(self, name: bytes) -> str | None:
        """The header's value; `name` is in lower case."""
        found = self.headers.get(name)
        return found.decode("latin-1") if found is not None else None


class Parser:
    """Parses responses.

    `feed` it the bytes as they arrive; it returns each complete response. Bytes beyond it are an error.
    """

    __slots__ = ("_answer", "_body", "_body_bytes", "_fed", "_head_bytes", "_headers", "_in_body", "_parser")

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer: HttpResponse | None = None  # complete, and not returned yet
        self._fed = 0  # bytes since the last complete response
        self._start()

    def _start(self) -> None:
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0  # in `_headers`
        self._in_body = False
        self._body: list[bytes] = []
        self._body_bytes = 0  # in `_body`

    @property
    def idle(self) -> bool:
        return self._fed == 0

    def feed(self, data: bytes) -> HttpResponse | None:
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise Garbage(str(error.__context__)) from error  # one of our own errors, raised below
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise Garbage(str(error)) from error
        answer, self._answer = self._answer, None
        if answer is not None:
            self._fed = 0
        elif not self._in_body and self._fed > MAX_HEAD_BYTES:
            raise Garbage(f"headers of more than {MAX_HEAD_BYTES} bytes")
        return answer

    def end(self) -> HttpResponse | None:
        """Note that the connection ended. Returns the response, if its body ends there."""
        if not self._in_body or b"content-length" in self._headers or b"transfer-encoding" in self._headers:
            return None
        self._complete(reusable=False)
        answer, self._answer, self._fed = self._answer, None, 0
        return answer

    def _complete(self, reusable: bool) -> None:
        status, body = self._parser.get_status_code(), self._body
        if status >= 200:  # 1xx: the final response follows
            self._answer = HttpResponse(status, self._headers, body[0] if len(body) == 1 else b"".join(body), reusable)
        self._start()

    # ---- what httptools calls -----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answer is not None:
            raise Garbage("more bytes than the response has")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise Garbage(f"headers of more than {MAX_HEAD_BYTES} bytes")
        if self._in_body:  # a trailer: not used here
            return
        headers, value = self._headers, value.rstrip(b" \t")
        headers[name] = headers[name] + b"," + value if name in headers else value

    def on_headers_complete(self) -> None:
        self._in_body = True
        if self._parser.get_status_code() < 100:
            raise Garbage("a status below 100")
        if self._headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise Garbage("a transfer-encoding other than chunked")
        length = self._headers.get(b"content-length")
        if length is not None and int(length) > MAX_BODY_BYTES:
            raise Garbage(f"a body of more than {MAX_BODY_BYTES} bytes")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            raise Garbage(f"a body of more than {MAX_BODY_BYTES} bytes")
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._complete(self._parser.should_keep_alive())
