"""`top` in a terminal (Textual): the frame, refreshed as the cluster changes, with keys to sort, filter, scroll."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Input, Static

from dovetail.cli import top_view
from dovetail.cli.board import Board
from dovetail.cli.top_view import NODE_ORDERS, StyledLine, TopChoice

STYLES = {
    "": "",
    "head": "bold",
    "node": "bold",
    "free": "green",
    "partly": "yellow",
    "full": "red",
    "closed": "dim",
    "waiting": "",
}
HELP = """s      sort by name, whole GPUs free, memory in use, fragmentation
/      filter by part of a node, GPU model or pod; Enter applies, Esc clears
c      hide and show the GPUs of each node
↑ ↓    scroll; Tab goes to the pods that wait and back
?      hide and show this help
q      quit

A bar is the memory that is given to pods. Green: free; yellow: partly in use; red: full. Measured load is after it
where the configuration names a source: use of the GPU, and of its memory."""


class TopApp(App[None]):
    """Shows boards as they come."""

    TITLE = "dovetail top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 2; }
    #nodes-box { height: 2fr; }
    #waiting-box { height: 1fr; border-top: solid $secondary; }
    #search { display: none; height: 3; }
    #help { display: none; height: auto; border: round $secondary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("s", "sort", "Sort"),
        Binding("slash", "search", "Filter"),
        Binding("c", "cards", "GPUs"),
        Binding("question_mark", "help", "Help"),
        Binding("escape", "clear", "Clear", show=False),
    ]

    def __init__(self, boards: Callable[[], AsyncIterator[Board]]) -> None:
        super().__init__()
        self._boards = boards
        self._board: Board | None = None
        self.choice = TopChoice()
        self.failure: BaseException | None = None

    def compose(self) -> ComposeResult:
        yield Static("reading the cluster …", id="head")
        yield Static(Text(HELP), id="help")
        yield VerticalScroll(Static(id="nodes"), id="nodes-box")
        yield VerticalScroll(Static(id="waiting"), id="waiting-box")
        yield Input(placeholder="part of a node, GPU model or pod", id="search")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#nodes-box").focus()
        self.run_worker(self._follow(), exclusive=True)

    def on_resize(self) -> None:
        self._show()

    async def _follow(self) -> None:
        try:
            async for board in self._boards():
                self._board = board
                self._show()
        except Exception as error:
            self.failure = error
            self.exit(return_code=2)

    def _show(self) -> None:
        board, width = self._board, max(self.size.width - 2, 20)
        if board is None:
            return
        self.query_one("#head", Static).update(_text(top_view.head(board, self.choice, width)))
        self.query_one("#nodes", Static).update(_text(top_view.nodes(board, self.choice, width)))
        late = list(top_view.waiting(board, self.choice, width)) or [StyledLine("no pod waits")]
        self.query_one("#waiting", Static).update(_text(late))

    def action_sort(self) -> None:
        order = NODE_ORDERS[(NODE_ORDERS.index(self.choice.order) + 1) % len(NODE_ORDERS)]
        self.choice = replace(self.choice, order=order)
        self._show()

    def action_cards(self) -> None:
        self.choice = replace(self.choice, cards=not self.choice.cards)
        self._show()

    def action_help(self) -> None:
        shown = self.query_one("#help")
        shown.display = not shown.display

    def action_search(self) -> None:
        field = self.query_one("#search", Input)
        field.display = True
        field.focus()

    def action_clear(self) -> None:
        self.query_one("#search", Input).value = ""
        self._search("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._search(event.value.strip())

    def _search(self, text: str) -> None:
        self.choice = replace(self.choice, search=text)
        self.query_one("#search", Input).display = False
        self.query_one("#nodes-box").focus()
        self._show()


def _text(lines: Iterable[StyledLine]) -> Text:
    """Without markup: names of objects are never read as styles."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, line in enumerate(lines):
        text.append("\n" * (number > 0))
        text.append(line.text, style=STYLES[line.style])
    return text
