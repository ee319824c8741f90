"""What becomes of errors: the user's are said in a line, ours ask for a report, an interrupt is quiet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from dovetail.cli.errors import Refused
from dovetail.cli.main import cli, main


def ends_with(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command `broken` that raises what the test is parametrised with."""

    @click.command()
    def command() -> None:
        raise request.param

    monkeypatch.setitem(cli.commands, "broken", command)


@pytest.mark.parametrize("broken", [ZeroDivisionError("oh no")], indirect=True)
@pytest.mark.usefixtures("broken")
def test_a_bug_is_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with("broken") == 70
    said = capsys.readouterr().err
    assert "a bug of ours: ZeroDivisionError: oh no" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("broken", [ZeroDivisionError("oh no")], indirect=True)
@pytest.mark.usefixtures("broken")
def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ends_with("--debug", "broken") == 70
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("DOVETAIL_DEBUG", "1")
    assert ends_with("broken") == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("broken", [KeyboardInterrupt()], indirect=True)
@pytest.mark.usefixtures("broken")
def test_an_interrupt_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with("broken") == 130
    assert capsys.readouterr().err.strip() == ""


@pytest.mark.parametrize("broken", [Refused("a.yaml: is not YAML", "b.yaml: neither")], indirect=True)
@pytest.mark.usefixtures("broken")
def test_the_users_errors_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with("broken") == 2
    assert capsys.readouterr().err == "dovetail: a.yaml: is not YAML\ndovetail: b.yaml: neither\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("plann",), "plann"),
        (("plan",), "no cluster to read: name manifests or a snapshot with -f, or say --live"),
        (("plan", "-f", "x.yaml", "-o", "xml"), "'xml' is not one of 'table', 'wide', 'json', 'yaml'"),
        (("explain", "-f", "x.yaml"), "Missing argument"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(*arguments) == 2
    assert says in capsys.readouterr().err


def test_no_arguments_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with() == 0
    assert "dovetail demo" in capsys.readouterr().out


def test_whoever_stops_reading_gets_no_complaint(examples: Path) -> None:
    command = f'"{sys.executable}" -m dovetail.cli plan -o json -f "{examples}/demo" | head -n 1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_no_bug_of_ours(examples: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "dovetail.cli", "plan", "-f", f"{examples}/demo"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("dovetail: the output could not be written: No space left on device")


@pytest.mark.parametrize("arguments", [["-f", "{}/demo"], ["-f", "{}/demo", "-o", "json"]])
def test_all_that_was_printed_arrives_in_a_file(arguments: list[str], examples: Path, tmp_path: Path) -> None:
    """`plan` ends at once, without freeing anything: its output was written before."""
    command = [sys.executable, "-m", "dovetail", "plan", *(argument.format(examples) for argument in arguments)]
    with (tmp_path / "out").open("w") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL).returncode
    piped = subprocess.run(command, capture_output=True, text=True)
    assert code == piped.returncode
    assert (tmp_path / "out").read_text() == piped.stdout != ""
