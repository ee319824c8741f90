"""Renders aligned text tables of strings with colours."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dovetail.cli.output.terminal import one_line

GAP = "  "


def render(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "") -> str:
    """The table.

    Columns are as wide as their widest cell; columns whose position is in `right` are aligned to the right.
    """
    lines = [tuple(click.style(title, bold=True) for title in header), *(tuple(map(one_line, row)) for row in rows)]
    widths = [max(_width(line[at]) for line in lines) for at in range(len(header))]
    return "\n".join(indent + _line(line, widths, right) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    padded = []
    for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        space = " " * (width - _width(cell))
        padded.append(space + cell if at in right else cell + space)
    return GAP.join(padded).rstrip()


def _width(text: str) -> int:
    return len(click.unstyle(text))
