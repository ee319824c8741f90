"""What the user can put right: said in a line or two, without a traceback, exit code 2."""

from __future__ import annotations

from typing import IO, Any

import click

from dovetail.cli.output.terminal import say
from dovetail.model.visible import visible

ALL_PLACED, BAD_INPUT, SOMETHING_PENDING, BUG, INTERRUPTED = 0, 2, 3, 70, 130


class Refused(click.ClickException):
    """The input cannot be used. One line per thing that is wrong."""

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
