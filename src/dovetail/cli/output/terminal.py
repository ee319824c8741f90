"""Prints the output of all commands, cleaned so that text from other sources cannot control the terminal.

No other module of this folder may print (tests/cli/test_terminal.py). The exceptions are progress.py and logs.py, which
clean their text themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from dovetail import own_folder
from dovetail.model.visible import visible, visible_lines

# The escapes that click.style makes for the styles in use: bold, dim, a colour, and reset.
_STYLE = r"\x1b\[(?:0|1|2|3[0-7]|9[0-7])m"
_STYLED = re.compile(f"({_STYLE})")


def echo(text: str = "", err: bool = False) -> None:
    """Print text without colours: errors, file names, summaries.

    Of the control characters, only line feeds and tabs stay.
    """
    click.echo(visible_lines(text), err=err)


def say(line: str) -> None:
    """Print one line about the activity to stderr; stdout is for results."""
    click.echo(f"dovetail: {visible(line)}", err=True)


def tell_unused_folders() -> None:
    """Warn once about each cache folder that is not used because other users may write to it."""
    for notice in own_folder.notices():
        say(f"warning: {notice}")


def echo_styled(text: str, err: bool = False) -> None:
    """Print text with our own colours. The text of objects was cleaned before (kube/files/visible_bodies.py)."""
    click.echo("".join(_parts(text, visible_lines)), err=err)


def one_line(text: str) -> str:
    """The text on one line, for a table cell."""
    return text if text.isprintable() else "".join(_parts(text, visible))


def _parts(text: str, clean: Callable[[str], str]) -> list[str]:
    return [part if at % 2 else clean(part) for at, part in enumerate(_STYLED.split(text))]
