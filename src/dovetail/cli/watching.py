"""`get --watch`: the list, then a line for each item that is added, changes or goes, until Ctrl-C or a closed pipe."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from dovetail.cli.following import following
from dovetail.cli.listing import ListChoice, chosen
from dovetail.cli.options import ClusterOptions
from dovetail.cli.output import listing
from dovetail.cli.output.encoding import visible_json
from dovetail.cli.output.list_view import Item, ListView
from dovetail.cli.output.terminal import echo, one_line
from dovetail.cli.sources import refusals
from dovetail.model.visible import visible_lines

IS_LISTED, IS_ADDED, IS_CHANGED, IS_GONE = "LISTED", "ADDED", "CHANGED", "GONE"
CLOCKS = ("ageSeconds", "waitSeconds")  # fields that change although nothing happens
Seen = dict[str, Item]  # name of the item -> the item
Change = tuple[str, Item]


def watch(asked: ClusterOptions, kind: str, choice: ListChoice, output: str, header: bool) -> None:
    """Print until interrupted. Raises Refused if the cluster cannot be read."""
    try:
        with refusals():
            asyncio.run(_follow(asked, kind, choice, output, header))
    except BrokenPipeError:  # the reader has enough: the end of the watch, and no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _follow(asked: ClusterOptions, kind: str, choice: ListChoice, output: str, header: bool) -> None:
    view = listing.VIEWS[kind]
    printer = WatchPrinter(view, output, header)
    seen: Seen | None = None
    async with following(asked) as boards:
        while True:
            board = await boards.next(explained=kind in ("pods", "queue"))
            now = {view.name(item): item for item in chosen(view, board, choice)}
            printer.show([(IS_LISTED, item) for item in now.values()] if seen is None else list(changes(seen, now)))
            seen = now


def changes(before: Mapping[str, Item], now: Mapping[str, Item]) -> Iterator[Change]:
    """What is new or different, in the order of the list, then what is gone."""
    for name, item in now.items():
        if name not in before:
            yield IS_ADDED, item
        elif _still(item) != _still(before[name]):
            yield IS_CHANGED, item
    yield from ((IS_GONE, item) for name, item in before.items() if name not in now)


def _still(item: Item) -> Item:
    return {key: value for key, value in item.items() if key not in CLOCKS}


class WatchPrinter:
    """Prints rows whose columns stay as wide as they were, or JSON with one object on each line."""

    def __init__(self, view: ListView, output: str, header: bool) -> None:
        self._view, self._output, self._header = view, output, header
        self._widths: list[int] = []

    def show(self, changed: list[Change]) -> None:
        if self._output in ("json", "yaml"):
            for what, item in changed:
                echo(visible_json(json.dumps({"type": what, "object": item}, ensure_ascii=False)))
        elif self._output == "name":
            for _, item in changed:
                echo(self._view.name(item))
        else:
            self._table(changed)
        sys.stdout.flush()

    def _table(self, changed: list[Change]) -> None:
        titles, rows, right = listing.rows(self._view, [item for _, item in changed], self._output == "wide")
        cells = [[what, *map(one_line, row)] for (what, _), row in zip(changed, rows, strict=True)]
        lines = [["EVENT", *titles], *cells] if self._header else cells
        self._header = False
        self._widen(lines)
        for line in lines:
            echo(visible_lines(self._line(line, right)))

    def _widen(self, lines: Iterable[list[str]]) -> None:
        for line in lines:
            lengths = [*self._widths, *(0 for _ in range(len(line) - len(self._widths)))]
            self._widths = [max(before, len(cell)) for before, cell in zip(lengths, line, strict=True)]

    def _line(self, line: list[str], right: list[int]) -> str:
        cells = [
            cell.rjust(width) if at - 1 in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, self._widths, strict=True))
        ]
        return "  ".join(cells).rstrip()
