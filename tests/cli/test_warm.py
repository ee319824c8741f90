"""`dovetail warm`: which kernels, and what is refused before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from dovetail.engine.kernel.build import Pair
from dovetail.kube.live import warm as workshop
from tests.cli.conftest import Run


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """What would be compiled."""
    pairs: list[Pair] = []

    def note(some: Iterable[Pair], on_disk: bool) -> None:
        assert on_disk
        pairs.extend(some)

    monkeypatch.setattr(workshop, "warm", note)
    return pairs


def test_the_defaults_and_what_is_named_once_each(run: Run, compiled: list[Pair]) -> None:
    result = run("warm", "spread:numa,binpack", "fgd", "fgd:binpack", "binpack:spread")
    assert result.exit_code == 0
    assert compiled[0] == ("binpack", ("spread",))
    assert compiled[-2:] == [("spread", ("numa", "binpack")), ("fgd", ("first-fit",))]
    assert len(set(compiled)) == len(compiled)
    assert "spread × numa,binpack: 0.0 s\nfgd: 0.0 s\n" in result.output


def test_every_scheduler_of_the_configuration(run: Run, compiled: list[Pair], tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: dovetail.dev/v1\nkind: Config\nschedulers:\n"
        "  one: {nodePolicy: spread}\n  two: {nodePolicy: snug}\n"
    )
    assert run("warm", "--config", str(config)).exit_code == 0
    assert {node for node, _ in compiled} >= {"spread", "snug"}


@pytest.mark.parametrize("text", ["tight", "binpack:tight"])
def test_policies_that_do_not_exist_are_refused(run: Run, compiled: list[Pair], text: str) -> None:
    result = run("warm", text)
    assert result.exit_code == 2
    assert f"{text!r}: no" in result.output
    assert "there is" in result.output
    assert compiled == []


def test_a_folder_that_cannot_be_written_to_is_named(
    run: Run, compiled: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", "/proc/nowhere")
    result = run("warm")
    assert result.exit_code == 2
    assert "/proc/nowhere cannot be written to; set DOVETAIL_CACHE_DIR" in result.output
