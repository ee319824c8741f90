"""The one way out: whatever a command prints passes here, so that no text of other people can control a terminal.

A test holds that no other module of this folder prints (tests/cli/test_terminal.py); progress.py and logs.py clean
what they print themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from dovetail import own_folder
from dovetail.model.visible import visible, visible_lines

# What click.style makes of the styles that we use: bold, dim, a colour, and back to normal.
_STYLE = r"\x1b\[(?:0|1|2|3[0-7]|9[0-7])m"
_STYLED = re.compile(f"({_STYLE})")


def echo(text: str = "", err: bool = False) -> None:
    """Print text without colours: errors, file names, summaries. Of control characters, line feeds and tabs stay."""
    click.echo(visible_lines(text), err=err)


def say(line: str) -> None:
    """Print one line about what we do on stderr; stdout is for the findings."""
    click.echo(f"dovetail: {visible(line)}", err=True)


def tell_unused_folders() -> None:
    """Warn of cache folders that are not used because other users may write to them, once each."""
    for notice in own_folder.notices():
        say(f"warning: {notice}")


def echo_styled(text: str, err: bool = False) -> None:
    """Print text with our own colours in it. Text of objects was cleaned before (kube/files/visible_bodies.py)."""
    click.echo("".join(_parts(text, visible_lines)), err=err)


def one_line(text: str) -> str:
    """A cell of a table, on one line."""
    return text if text.isprintable() else "".join(_parts(text, visible))


def _parts(text: str, clean: Callable[[str], str]) -> list[str]:
    return [part if at % 2 else clean(part) for at, part in enumerate(_STYLED.split(text))]
