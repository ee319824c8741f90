"""The log of `dovetail scheduler`: levels, fields, repeats, and nothing that breaks a line."""

from __future__ import annotations

import json
import sys

import pytest

from dovetail.cli.options import LOG_LEVELS
from dovetail.cli.output.logs import HIDDEN, REPEAT_SECONDS, Logger, without_secrets
from dovetail.kube.api.errors import error_of
from dovetail.kube.log import DEBUG, ERROR, INFO, WARNING, Level
from dovetail.kube.objects.problems import printable


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_text_has_time_level_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    log = Logger(clock=Clock())
    log("ready", nodes=2)
    log("a pod waits", WARNING, pod="ml/a")
    log("lost", ERROR)
    assert lines(capsys) == [
        "2023-11-14T22:13:20.000Z info    ready",
        "2023-11-14T22:13:20.000Z warning a pod waits",
        "2023-11-14T22:13:20.000Z error   lost",
    ]


def test_json_has_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log = Logger(DEBUG, as_json=True, clock=Clock())
    log("placed ml/a on n", DEBUG, pod="ml/a", node="n", count=3)
    assert json.loads(lines(capsys)[0]) == {
        "time": "2023-11-14T22:13:20.000Z",
        "level": "debug",
        "message": "placed ml/a on n",
        "pod": "ml/a",
        "node": "n",
        "count": 3,
    }


def test_a_field_does_not_replace_time_or_level(capsys: pytest.CaptureFixture[str]) -> None:
    Logger(as_json=True, clock=Clock())("x", INFO, level="none", time="never", message="y")
    assert json.loads(lines(capsys)[0]) == {"time": "2023-11-14T22:13:20.000Z", "level": "info", "message": "x"}


@pytest.mark.parametrize(("lowest", "printed"), [(DEBUG, 4), (INFO, 3), (WARNING, 2), (ERROR, 1)])
def test_messages_below_the_level_are_left_out(lowest: Level, printed: int, capsys: pytest.CaptureFixture[str]) -> None:
    log = Logger(lowest)
    for level in (DEBUG, INFO, WARNING, ERROR):
        log(f"at {level}", level)
    assert len(lines(capsys)) == printed


def test_the_command_line_knows_every_level() -> None:
    assert tuple(level.name.lower() for level in Level) == LOG_LEVELS


def test_repeats_are_counted_and_the_count_names_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    log = Logger(clock=clock)
    for _ in range(4):
        log("again", WARNING)
    log("other")
    log("again", WARNING)
    clock.now += REPEAT_SECONDS
    log("again", WARNING)
    assert [line.split(maxsplit=1)[1] for line in lines(capsys)] == [
        "warning again",
        "warning 3 times more: again",
        "info    other",
        "warning again",
        "warning again",
    ]


def test_repeats_of_the_last_message_are_printed_by_flush(capsys: pytest.CaptureFixture[str]) -> None:
    log = Logger(as_json=True)
    log("again")
    log("again")
    log.flush()
    log.flush()
    assert [json.loads(line).get("repeats") for line in lines(capsys)] == [None, 1]


def test_a_message_stays_on_one_line_without_replacement_characters(capsys: pytest.CaptureFixture[str]) -> None:
    Logger()("404 page not found\n\tat /apis\r\n")
    (line,) = lines(capsys)
    assert line.endswith("404 page not found at /apis")


HOSTILE = ("two\nlines", "\x00\x1b[2J", "\ud800", '"}', "\u2028", "x" * 10_000, "\u202e", "")


@pytest.mark.parametrize("text", HOSTILE)
def test_each_line_is_one_json_object_whatever_a_message_or_a_field_holds(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Logger(DEBUG, as_json=True)
    log(text, WARNING, pod=text, seconds=float("nan"), count=2**70)
    log("after", pod="ml/a")
    first, second = (json.loads(line) for line in lines(capsys))
    assert list(first) == ["time", "level", "message", "pod", "seconds", "count"]
    assert [type(value) for value in first.values()] == [str, str, str, str, type(None), int]
    assert second["message"] == "after"


SECRET = "s3cr3t-Value_x"
TOKEN = "eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "text",
    [
        f"401 for Authorization: Bearer {SECRET}",
        f"GET https://reader:{SECRET}@prometheus:9090/api: refused",
        f"invalid token {TOKEN.replace('c2lnbmF0dXJl', SECRET)}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",  # cut
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_that_an_error_quotes_are_hidden(text: str, as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    Logger(as_json=as_json)(f"before {text}", WARNING, object=text)
    said = capsys.readouterr().err
    assert SECRET not in said
    assert "before " in said
    assert HIDDEN in said


@pytest.mark.parametrize(
    "text",
    [
        "https://10.0.0.1:6443/api/v1/pods: refused",
        "node gpu-7 at 10.0.0.1:6443, asked by a@b",
        "eyJ",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("letter", ["é", "€", "😀"])
@pytest.mark.parametrize("more", range(4))
def test_a_plain_text_answer_is_cut_between_two_characters(letter: str, more: int) -> None:
    error = error_of(502, b"x" * more + letter.encode() * 5_000 + b"\n", "GET /api")
    assert "\N{REPLACEMENT CHARACTER}" not in error.message
    assert error.message.endswith(f"{letter}…")


def test_what_go_answers_where_there_is_no_such_path_ends_with_its_last_word() -> None:
    assert error_of(404, b"404 page not found\n", "GET /apis/x").message.endswith("404 page not found")


def test_controls_are_replaced_and_the_ends_are_stripped() -> None:
    assert printable(" a\x00b\x1b[0m\nc \n") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[0m c"


def test_a_closed_stderr_does_not_end_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def __init__(self) -> None:
            self.tries = 0

        def write(self, text: str) -> int:
            self.tries += 1
            raise BrokenPipeError

        def flush(self) -> None: ...

    closed = Closed()
    monkeypatch.setattr(sys, "stderr", closed)
    Logger()("lost")
    assert closed.tries
