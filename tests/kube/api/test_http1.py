"""Responses cut anywhere, and hostile ones: what is read must be the response to our request, whole and nothing else.

HOSTILE was drawn up with h11 0.16 beside it: both refuse the same responses, but for those that say so.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.api.http1 import MAX_BODY_BYTES, MAX_HEAD_BYTES, Garbage, HttpResponse, Parser

OK = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
LINE = b"HTTP/1.1 200 OK\r\n"
CHUNKS = LINE + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKED = CHUNKS + b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"
TRAILED = CHUNKED[:-2] + b"X-Trailer: yes\r\n\r\n"
LENGTH = b"Content-Length: 2\r\n\r\n{}"


def whole(text: bytes) -> HttpResponse | None:
    """The response to which the server adds nothing: it waits for the next request."""
    return Parser().feed(text)


def byte_by_byte(text: bytes) -> HttpResponse | None:
    parser, found = Parser(), None
    for at in range(len(text)):
        if found is not None:
            raise Garbage("bytes after the response")  # `Wire` closes a connection on which nothing was asked
        found = parser.feed(text[at : at + 1])
    return found


READ = {  # response -> status, body, whether another request may follow
    OK: (201, b"{}", True),
    CHUNKED: (200, b"hello world", True),
    TRAILED: (200, b"hello world", True),
    b"HTTP/1.1 204 No Content\r\n\r\n": (204, b"", True),
    b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n": (204, b"", True),
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n": (304, b"", True),
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK: (201, b"{}", True),
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Type: text/plain\r\n\r\n" + OK: (201, b"{}", True),
    b"HTTP/1.1 200\r\n" + LENGTH: (200, b"{}", True),
    b"HTTP/1.0 200 OK\r\n" + LENGTH: (200, b"{}", False),
    LINE + b"transfer-encoding:\tChunked \r\n\r\n2;a=b;c\r\n{}\r\n0;d\r\n\r\n": (200, b"{}", True),
    LINE + b"Connection: close\r\n" + LENGTH: (200, b"{}", False),
    LINE + b"Connection: keep-alive, Close\r\n" + LENGTH: (200, b"{}", False),
    LINE + b"Connection: keep-alive\r\nConnection: close\r\n" + LENGTH: (200, b"{}", False),
    LINE + b"X: \xe9\r\n" + LENGTH: (200, b"{}", True),
    LINE + b"X: " + b"x" * 9_000 + b"\r\n" + LENGTH: (200, b"{}", True),
}


@given(st.sampled_from(list(READ)), st.lists(st.integers(1, 12)))
def test_however_a_response_is_cut_it_is_the_same(text: bytes, cuts: list[int]) -> None:
    expected = READ[text]
    parser, found = Parser(), None
    for size in [*cuts, len(text)]:
        piece, text = text[:size], text[size:]
        if piece:
            assert found is None
            found = parser.feed(piece)
    assert found is not None
    assert (found.status, found.body, found.reusable) == expected
    assert parser.idle


@pytest.mark.parametrize("text", READ)
def test_a_response_may_come_byte_by_byte_or_at_once(text: bytes) -> None:
    for found in (whole(text), byte_by_byte(text)):
        assert found is not None
        assert (found.status, found.body, found.reusable) == READ[text]


HOSTILE = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n",
    "HTTP/1.10": b"HTTP/1.10 200 OK\r\n" + LENGTH,
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n" + LENGTH,
    "a status of two digits": b"HTTP/1.1 20 OK\r\n" + LENGTH,
    "a status below 100": b"HTTP/1.1 099 OK\r\n" + LENGTH,
    "a status in letters": b"HTTP/1.1 abc\r\n\r\n",
    "a tab before the status": b"HTTP/1.1\t200 OK\r\n" + LENGTH,
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "two lengths": LINE + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "a list of lengths": LINE + b"Content-Length: 2, 3\r\n\r\n{}x",
    "the same length twice, which h11 accepts": LINE + b"Content-Length: 2\r\n" + LENGTH,
    "a length with a sign": LINE + b"Content-Length: +2\r\n\r\n{}",
    "a negative length": LINE + b"Content-Length: -1\r\n\r\n",
    "a length in words": LINE + b"Content-Length: many\r\n\r\n",
    "no length at all": LINE + b"Content-Length:\r\n\r\n{}",
    "a length beyond the limit": LINE + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
    "a length of 5,000 digits": LINE + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n",
    "length and chunks, of which h11 believes the chunks": LINE
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks and length, likewise": LINE
    + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "another coding": LINE + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunked twice": LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a coding that only ends in chunked": LINE + b"Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a size with 0x": CHUNKS + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a size after a space": CHUNKS + b" 5\r\nhello\r\n0\r\n\r\n",
    "a size before a space": CHUNKS + b"5 ; a=b\r\nhello\r\n0\r\n\r\n",
    "a size with an underscore": CHUNKS + b"0_5\r\nhello\r\n0\r\n\r\n",
    "a negative size": CHUNKS + b"-5\r\n",
    "a size in other letters": CHUNKS + b"zz\r\n",
    "a size of 17 digits": CHUNKS + b"f" * 17 + b"\r\n",
    "no size": CHUNKS + b"\r\nhello\r\n0\r\n\r\n",
    "a size line without end": CHUNKS + b"1" * 2_000,
    "a chunk that is longer than its size": CHUNKS + b"5\r\nhelloXX0\r\n\r\n",
    "a chunk without its line end": CHUNKS + b"5\r\nhello0\r\n\r\n",
    "a malformed trailer": CHUNKS + b"5\r\nhello\r\n0\r\nX y\r\n\r\n",
    "a response after a trailer": CHUNKS + b"0\r\nX: y\r\n\r\n" + OK,
    "a response after chunks": CHUNKED + OK,
    "a response after a length": OK + OK,
    "bytes after a length": OK + b"and more",
    "bytes after chunks": CHUNKED + b"and more",
    "a space before the colon": LINE + b"Content-Length : 2\r\n\r\n{}",
    "a space before the name": LINE + b" Content-Length: 2\r\n\r\n{}",
    "a header without a colon": LINE + b"Content-Length 2\r\n\r\n{}",
    "a header without a name": LINE + b": 2\r\n" + LENGTH,
    "a name that is not ASCII": LINE + "é: 1\r\n".encode() + LENGTH,
    "a null byte": LINE + b"X: a\0b\r\n" + LENGTH,
    "a bare carriage return": LINE + b"X: a\rContent-Length: 9\r\n" + LENGTH,
    "a bare line feed": LINE + b"X: a\nContent-Length: 9\r\n" + LENGTH,
    "a folded header, which h11 unfolds": LINE + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a long header": LINE + b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n" + LENGTH,
    "a header without end": LINE + b"X: " + b"x" * MAX_HEAD_BYTES,
    "many headers": LINE + b"Name: value\r\n" * (MAX_HEAD_BYTES // 9 + 1) + LENGTH,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_safe_response_is_refused(text: bytes) -> None:
    with pytest.raises(Garbage) as caught:
        whole(text)
    assert str(caught.value)
    with pytest.raises(
        (Garbage, AssertionError)
    ):  # AssertionError: bytes after a complete response, see `byte_by_byte`
        byte_by_byte(text)


def test_a_body_in_chunks_has_the_same_limit_as_one_with_a_length() -> None:
    """64 chunks of 1 MiB are 64 MiB, the limit; the 65th is refused."""
    parser = Parser()
    chunk = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
    parser.feed(CHUNKS)
    for _ in range(MAX_BODY_BYTES // 2**20):
        assert parser.feed(chunk) is None
    with pytest.raises(Garbage, match="a body of more than 67108864 bytes"):
        parser.feed(chunk)


def test_a_body_that_ends_with_the_connection_is_whole_only_then() -> None:
    parser = Parser()
    assert parser.feed(LINE + b"\r\nall of") is None
    assert parser.feed(b" it") is None
    assert parser.end() == HttpResponse(200, {}, b"all of it", False)
    assert parser.idle


@pytest.mark.parametrize("text", [b"", LINE, LINE + b"Content-Length: 5\r\n\r\n{}", CHUNKS + b"5\r\nhel", CHUNKED[:-2]])
def test_a_response_that_was_cut_off_is_none(text: bytes) -> None:
    parser = Parser()
    parser.feed(text)
    assert parser.end() is None


def test_headers_are_found_by_their_names_in_lower_case_and_trailers_are_not_headers() -> None:
    found = whole(CHUNKS[:-2] + b"Retry-After: 3 \r\nX: a\r\nx: B\r\n\r\n0\r\nRetry-After: 99\r\n\r\n")
    assert found is not None
    assert (found.header(b"retry-after"), found.header(b"x"), found.header(b"y")) == ("3", "a,B", None)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_response_or_garbage_or_not_yet_either(text: bytes) -> None:
    try:
        found = whole(LINE + text)
    except Garbage:
        return
    assert found is None or isinstance(found, HttpResponse)
