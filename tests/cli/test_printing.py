"""Tables, amounts, pictures and signs of life."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dovetail import kernel_cache
from dovetail.cli import planning
from dovetail.cli.main import cli
from dovetail.cli.options import ClusterOptions
from dovetail.cli.output import amounts, picture, table
from dovetail.cli.output.progress import progress, told_progress
from dovetail.engine.usage import CardUse, NodeUse
from dovetail.model.device import Device
from dovetail.model.node import CPU, MEMORY, Node
from dovetail.whatif import situation

GIB = 2**30


def test_columns_are_aligned() -> None:
    text = click.unstyle(table.render(("POD", "MIB"), [("a", "1"), ("longer", "1,000")], right=(1,)))
    assert text == "POD       MIB\na           1\nlonger  1,000"


def test_colours_do_not_disturb_the_alignment() -> None:
    text = table.render(("A", "B"), [(click.style("x", fg="red"), "y"), ("xyz", "y")])
    assert click.unstyle(text) == "A    B\nx    y\nxyz  y"


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        (CPU, 1500, "1500m"),
        (CPU, 0, "0"),
        (CPU, 47810, "47810m"),
        (CPU, 100_000, "100"),
        (MEMORY, 16 * GIB, "16 GiB"),
        (MEMORY, 1536 * 2**20, "1.5 GiB"),
        (MEMORY, 0, "0 B"),
        ("example.com/dongle", 8, "8"),
    ],
)
def test_amounts(resource: str, amount: int, shown: str) -> None:
    assert amounts.amount_of(resource, amount) == shown


def test_changes_and_counts() -> None:
    assert amounts.change("8", "6") == "8 → 6"
    assert amounts.change("8", "8") == "8"
    assert amounts.count(1, "node") == "1 node"
    assert amounts.count(2000, "node") == "2,000 nodes"
    assert amounts.percent(1, 3) == "33 %"
    assert amounts.percent(0, 0) == "-"


def card(index: int, used: int, pods: tuple[str, ...] = (), **more: object) -> CardUse:
    device = Device(f"GPU-{index}", index, "NVIDIA", "NVIDIA Tesla T4", 16000, **more)  # type: ignore[arg-type]
    return CardUse(device, len(pods), used, 0, pods, False)


def node(name: str, *cards: CardUse) -> NodeUse:
    return NodeUse(Node(name), {}, cards, sum(len(c.pods) for c in cards))


def drawn(uses: list[NodeUse], holders: picture.Holders, ink: picture.Ink = picture.ASCII) -> list[str]:
    return [click.unstyle(line) for line in picture.draw(uses, holders, ink)]


def test_a_bar_per_card() -> None:
    uses = [node("n", card(0, 12000, ("d/a", "d/b", "d/c")), card(1, 0), card(2, 0, healthy=False))]
    lines = drawn(uses, {"GPU-0": [("a", 4000), ("b", 4000)]})
    assert lines == [
        "n  3 x NVIDIA Tesla T4",
        # 4,000 of 16,000 MiB is a quarter of 32 cells
        "   0 [########========%%%%%%%%........] 12,000 / 16,000 MiB  a  b  + 1 pod",
        "   1 [................................]      0 / 16,000 MiB  free",
        "   2 [................................]      0 / 16,000 MiB  unhealthy",
    ]


def test_whoever_holds_something_is_seen_and_a_bar_keeps_its_length() -> None:
    many = [(f"p{at}", 10) for at in range(40)]
    [_, line] = drawn([node("n", card(0, 400, tuple(name for name, _ in many)))], {"GPU-0": many})
    bar = line[line.index("[") + 1 : line.index("]")]
    assert len(bar) == picture.BAR_WIDTH
    [_, tiny] = drawn([node("n", card(0, 1, ("a",)))], {"GPU-0": [("a", 1)]})
    assert "[#..." in tiny


def test_many_cards_become_cells() -> None:
    uses = [
        node(f"n{at:02}", *(card(at * 8 + g, 2000 * g, ("d/a",) if g else ()) for g in range(8))) for at in range(12)
    ]
    lines = drawn(uses, {})
    assert len(lines) == 1 + 12
    assert lines[1] == "n00  [.1234567]"  # 2,000 g of 16,000 MiB in eighths


def test_very_many_cards_become_a_histogram() -> None:
    uses = [
        node(f"n{at}", *(card(at * 8 + g, 16000 * (g % 2), ("d/a",) * (g % 2)) for g in range(8))) for at in range(600)
    ]
    lines = drawn(uses, {})
    assert len(lines) == 2
    assert lines[1].split()[-5:] == ["2,400", "0", "0", "0", "2,400"]


def test_nodes_without_cards_are_left_out() -> None:
    assert drawn([node("cpu-only")], {}) == []


@pytest.mark.parametrize(
    ("encoding", "ink"),
    [("utf-8", picture.UNICODE), ("ascii", picture.ASCII), ("latin-1", picture.ASCII), (None, picture.ASCII)],
)
def test_blocks_only_where_they_can_be_printed(encoding: str | None, ink: picture.Ink) -> None:
    assert picture.ink_for(encoding) is ink


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals_and_for_the_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, patience, said in ((io.StringIO(), 0.0, False), (Terminal(), 60.0, False), (Terminal(), 0.0, True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress("Placing", patience):
            time.sleep(0.05)
        assert ("Placing" in stream.getvalue()) is said


def test_progress_of_several_steps_shows_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with told_progress("Starting", patience=0.0) as doing:
        doing("Reading nodes")
        for _ in range(2_000):
            if "Reading nodes" in terminal.getvalue():
                break
            time.sleep(0.01)
    assert "Reading nodes" in terminal.getvalue()


def test_doctor_says_what_it_does(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    @contextmanager
    def noted(first: str = "") -> Iterator[Callable[[str], None]]:
        yield steps.append

    monkeypatch.setattr("dovetail.cli.commands.doctor.told_progress", noted)
    CliRunner().invoke(cli, ["doctor", "-f", str(examples / "demo" / "cluster.yaml")], catch_exceptions=False)
    assert steps == ["Reading", "Examining"]


def test_whoever_waits_for_a_compiler_is_told_so_once(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    files = tuple(str(examples / "demo" / name) for name in ("cluster.yaml", "demo-b.yaml"))
    few = planning.read(ClusterOptions(files))
    assert planning.activity(few) == "Placing"
    compiled = planning.read(ClusterOptions(files, engine="compiled"))
    assert planning.activity(compiled) == "Compiling the kernel for spread × binpack, once: about 15 s"
    monkeypatch.setattr(situation, "COMPILE_FROM", 8)  # two nodes × four pods
    assert planning.activity(few).startswith("Compiling")
    assert planning.activity(planning.read(ClusterOptions(files, engine="interpreted"))) == "Placing"
    kernel_cache.remember("spread × binpack")
    assert planning.activity(compiled) == "Placing"
