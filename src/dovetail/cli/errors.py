"""Errors that the user can fix: printed as one or more lines, without a traceback, with exit code 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from dovetail.cli.output.terminal import say
from dovetail.model.visible import visible

ALL_PLACED, BAD_INPUT, SOMETHING_PENDING, BUG, INTERRUPTED = 0, 2, 3, 70, 130


class Refused(click.ClickException):
    """The input cannot be used. One line per problem."""

    exit_code = BAD_INPUT

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def show(self, file: IO[Any] | None = None) -> None:
        for line in self.lines:
            if file is None:
                say(line)
            else:
                file.write(f"dovetail: {visible(line)}\n")


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports of what the extra `name` of the wheel installs. Raises Refused."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Refused(f"{error.name} is not installed: pip install 'dovetail[{name}]'") from error
