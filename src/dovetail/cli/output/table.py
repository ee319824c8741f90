"""Renders aligned text tables of strings with colours."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dovetail.cli.output.terminal import one_line

GAP = "  "
ESCAPE = "\x1b"


def render(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "") -> str:
    """The table.

    Columns are as wide as their widest cell; columns whose position is in `right` are aligned to the right.
    """
    lines = [tuple(click.style(title, bold=True) for title in header), *(tuple(map(one_line, row)) for row in rows)]
    padded = [_padded(cells, at in right) for at, cells in enumerate(zip(*lines, strict=True))]
    return "\n".join(indent + GAP.join(cells).rstrip() for cells in zip(*padded, strict=True))


def _padded(cells: Sequence[str], right: bool) -> list[str]:
    """The cells of one column in the width of the widest."""
    widths = [_width(cell) for cell in cells]
    most = max(widths)
    if right:
        return [" " * (most - width) + cell for cell, width in zip(cells, widths, strict=True)]
    return [cell + " " * (most - width) for cell, width in zip(cells, widths, strict=True)]


def _width(text: str) -> int:
    return len(click.unstyle(text)) if ESCAPE in text else len(text)
