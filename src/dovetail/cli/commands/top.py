"""`dovetail top`: a live view of nodes, GPUs and waiting pods in the terminal. It only reads."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli.ending import ends_soon
from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions, board_options
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import echo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dovetail.cli.board import Board

PIPE_WIDTH = 120  # columns where the output is no terminal


@click.command(short_help="A live view of nodes, GPUs and waiting pods.")
@board_options
@click.option("--once", is_flag=True, help="Print one frame as plain text, and end.")
@click.option("--width", type=click.IntRange(40, 1000), metavar="COLUMNS", help="Of the frame of --once.")
@click.pass_context
def top(
    context: click.Context, /, once: bool, width: int | None, namespace: str | None, all_namespaces: bool, **source: Any
) -> None:
    """Show all nodes with a bar for each GPU, and the pods that wait, as they change.

    The bars are memory that is given to pods. Measured load stands beside it where the scheduler's configuration
    (--config) names a source under `signals`. Keys: s sorts, / filters, c hides GPUs, ? helps, q quits. Works over ssh,
    from 80×24 on. Needs the extra top: pip install 'dovetail[top]'. --once does not need it.

    \b
    Examples:
      dovetail top
      dovetail top --context production --config dovetail.yaml
      dovetail top --once | head -20
      dovetail top -f cluster.json.gz

    Exit codes: 0 done, 2 the cluster cannot be read.
    """
    if namespace or all_namespaces:
        raise Refused("top shows all namespaces; filter with / in the view")
    asked = ClusterOptions(**source, live=not source["filenames"])
    if once:
        context.with_resource(ends_soon())
        with progress("Reading the cluster"):
            from dovetail.cli import board as boards
            from dovetail.cli import top_view

            board = boards.read(asked)
            if asked.live:
                from dovetail.cli.measured_load import measured_once

                nodes = [use.node for use in board.overview.nodes]
                board = dataclasses.replace(board, load=measured_once(asked, nodes))
        columns = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH)
        echo("\n".join(line.text for line in top_view.frame(board, top_view.TopChoice(), columns)))
        return
    if not sys.stdout.isatty():
        raise Refused("the output is no terminal; --once prints one frame as text")
    _run(asked)


def _run(asked: ClusterOptions) -> None:
    try:
        from dovetail.cli.top_app import TopApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        message = f"{error.name} is not installed: pip install 'dovetail[top]'; --once prints one frame without it"
        raise Refused(message) from error
    from dovetail.cli.sources import refusals

    app = TopApp(lambda: _boards(asked))
    with refusals():
        app.run()
        if app.failure is not None:
            raise app.failure


async def _boards(asked: ClusterOptions) -> AsyncIterator[Board]:
    if asked.filenames:
        from dovetail.cli import board as boards

        yield boards.read(asked)
        return
    from dovetail.cli.following import following
    from dovetail.cli.measured_load import metering

    async with metering(asked) as meter, following(asked, meter) as stream:
        while True:
            yield await stream.next()
