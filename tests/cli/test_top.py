"""`dovetail top`: a frame as text, and the terminal view with its keys."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.cli import board as boards
from dovetail.cli.board import Board
from dovetail.cli.options import ClusterOptions
from dovetail.cli.top_view import TopChoice, frame
from tests.cli.conftest import Run
from tests.cli.test_terminal import CONTROL, ESCAPES

EXAMPLE = ("examples/what-if",)


@pytest.fixture
def board() -> Board:
    return boards.read(ClusterOptions(filenames=EXAMPLE))


def test_one_frame_for_a_pipe(run: Run) -> None:
    done = run("top", "--once", "-f", *EXAMPLE, "--width", "80")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0].startswith("4 nodes · 12 GPUs, 3 free · memory 55 % · ")
    assert max(map(len, lines)) <= 80
    first = next(line for line in lines if "chat/chat-7f9c6d5b8-2xkqp" in line)
    assert f"▕{'█' * 11}{'·' * 5}▏" in first  # 57,344 of 81,920 MiB: 70 % of 16 cells are 11
    assert any("summariser-0" in line for line in lines[lines.index("WAITING") :])


def test_without_a_terminal_the_live_view_is_refused(run: Run) -> None:
    done = run("top", "-f", *EXAMPLE)
    assert done.exit_code == 2
    assert "--once" in done.stderr


def test_orders_and_filters(board: Board) -> None:
    def nodes(choice: TopChoice) -> list[str]:
        return [line.text.split()[0] for line in frame(board, choice, 100) if line.style == "node"]

    assert nodes(TopChoice()) == ["gpu-a100-1", "gpu-a100-2", "gpu-l4-1", "gpu-l4-2"]
    assert nodes(TopChoice(order="free"))[0] == "gpu-a100-2"  # two whole GPUs
    assert nodes(TopChoice(order="fragmentation"))[0] == "gpu-a100-1"  # 1,475 milli on GPUs partly in use
    assert nodes(TopChoice(search="pretrain")) == ["gpu-a100-2"]
    assert nodes(TopChoice(search="L4")) == ["gpu-l4-1", "gpu-l4-2"]
    assert not [line for line in frame(board, TopChoice(cards=False), 100) if line.style in ("free", "partly", "full")]


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    card = {"id": "GPU-1", "count": 1, "devmem": 100, "devcore": 100, "type": f"T4{ESCAPES}", "health": True}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "annotations": {"hami.io/node-nvidia-register": json.dumps([card])}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "1"}},
    }
    path = tmp_path / "n.json"
    path.write_text(json.dumps(node))
    lines = frame(boards.read(ClusterOptions(filenames=(str(path),))), TopChoice(search=""), 200)
    assert any("T4" in line.text for line in lines)
    assert not any(CONTROL.search(line.text) for line in lines)


async def test_the_keys_of_the_terminal_view(board: Board) -> None:
    pytest.importorskip("textual")
    from textual.widgets import Input, Static

    from dovetail.cli.top_app import TopApp

    async def once() -> AsyncIterator[Board]:
        yield board

    app = TopApp(once)
    async with app.run_test(size=(80, 24)) as pilot:

        async def shown(part: str) -> str:
            await pilot.pause()
            return str(app.query_one(part, Static).render())

        assert "12 GPUs" in await shown("#head")
        assert "gpu-a100-1" in await shown("#nodes")
        assert "summariser-0" in await shown("#waiting")
        await pilot.press("s")
        assert app.choice.order == "free"
        assert (await shown("#nodes")).startswith("gpu-a100-2")
        await pilot.press("slash", *"anna", "enter")
        assert app.choice.search == "anna"
        assert (await shown("#nodes")).startswith("gpu-l4-1")
        assert not app.query_one("#search", Input).display
        await pilot.press("escape")
        assert app.choice.search == ""
        await pilot.press("c")
        assert "▕" not in await shown("#nodes")
        await pilot.press("question_mark")
        assert app.query_one("#help").display
        await pilot.press("q")
    assert app.return_code == 0


async def test_an_error_ends_the_view_and_is_kept() -> None:
    pytest.importorskip("textual")
    from dovetail.cli.top_app import TopApp

    async def broken() -> AsyncIterator[Board]:
        raise ValueError("no cluster")
        yield

    app = TopApp(broken)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
    assert isinstance(app.failure, ValueError)
