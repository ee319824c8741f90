"""Every `dovetail` and `make` command that a page shows exists, with these options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dovetail.cli.main import cli

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
CODE = re.compile(r"(?m)^```\w*\n(?P<fenced>(?:.*\n)*?)^```$|^ {4,}(?P<indented>\S.*)$|`(?P<inline>[^`\n]+)`")
COMMAND = re.compile(r"(?:^|[|;&] *|\$ )(?:\.venv/bin/)?(?P<program>dovetail|make) (?P<rest>[^|;&>#\n]*)", re.MULTILINE)
TARGET = re.compile(r"(?m)^([a-z-]+):")
PLACEHOLDER = re.compile(r"[<…\[{$]|^\.\.\.$")


def shown(page: Path) -> Iterator[tuple[str, str]]:
    """(program, what follows it) of each command in code on the page."""
    for block in CODE.finditer(page.read_text(encoding="utf-8")):
        text = next(part for part in block.groups() if part is not None).replace("\\\n", " ")
        for command in COMMAND.finditer(text):
            yield command["program"], command["rest"].strip()


def words_of(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that the page leaves open
        return text.split()


def command_of(words: list[str]) -> tuple[click.Command | None, list[str]]:
    """The command that the words name, and the words after its name."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.commands.get(words[0])
        if found is None:
            return None, words
        command, words = found, words[1:]
    return command, words


def unknown_options(command: click.Command, words: list[str]) -> list[str]:
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [name for name in given if name not in known and name[:2] not in known]


def mistakes(program: str, rest: str) -> list[str]:
    words = words_of(rest)
    if not words or PLACEHOLDER.search(words[0]):
        return []
    if program == "make":
        targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
        return [] if words[0] in targets or "=" in words[0] else [f"make has no target {words[0]}"]
    command, left = command_of(words)
    if command is None:
        return [f"dovetail has no command {words[0]}"]
    return [f"{name} is no option of {command.name}" for name in unknown_options(command, left)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_the_page_exist(page: Path) -> None:
    wrong = [f"`{program} {rest}`: {what}" for program, rest in shown(page) for what in mistakes(program, rest)]
    assert wrong == []


def test_pages_show_commands() -> None:
    found = [command for page in PAGES for command in shown(page)]
    assert sum(program == "dovetail" for program, _ in found) > 50
    assert sum(program == "make" for program, _ in found) > 15


@pytest.mark.parametrize("text", ["dovetail plann -f x", "dovetail plan --nodes-policy spread", "make benchmark"])
def test_a_command_that_does_not_exist_is_found(text: str) -> None:
    program, _, rest = text.partition(" ")
    assert len(mistakes(program, rest)) == 1
