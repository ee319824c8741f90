"""Where numba is missing or cannot compile, the interpreted kernel serves: the same decisions, and one warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from dovetail.engine.kernel import build, native
from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Decision
from dovetail.model.events import NodeChanged
from dovetail.model.not_compiled import NotCompiledWarning
from dovetail.model.pod import Group, Profile
from tests.builders import ask, node, pod
from tests.engine.pictures import picture

PAIRS = (("binpack", "spread"), ("fgd", "spread"), ("spread", "topology-aware"))
Story = tuple[Sequence[Decision], object]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Builders that have compiled nothing yet, and are forgotten after the test."""
    build.builder.cache_clear()
    yield
    build.builder.cache_clear()


def story(mode: str) -> Story:
    """Six pods of three profiles on two nodes of two cards, one of them released again by a transaction."""
    scheduler = Scheduler(mode=mode)
    for name in ("a", "b"):
        scheduler.handle(NodeChanged(0.0, node(name, gpus=2)))
    pods = [pod(f"p{n}", ask(1, 1000), node_policy=on, gpu_policy=card) for n, (on, card) in enumerate(PAIRS * 2)]
    groups = [Group(one.name, (one,)) for one in pods]
    decisions = [one for group in groups for one in scheduler.place([group])]
    with scheduler.ledger.transaction():
        scheduler.ledger.release(next(iter(scheduler.ledger.pods)))
    audit.validate(scheduler.ledger)
    return decisions, picture(scheduler)


def refuse(*given: object, **named: object) -> Any:
    raise RuntimeError("LLVM ERROR: this processor is not supported\nand more of it")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("broken", ["warm_entry", "compile_function"])
def test_a_kernel_that_cannot_be_compiled_is_interpreted(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`warm_entry` compiles; `compile_function` fails where numba cannot keep anything in its folder."""
    expected = story("interpreted")
    monkeypatch.setattr(native, broken, refuse)
    with pytest.warns(NotCompiledWarning) as told:
        assert story("compiled") == expected
    assert [str(one.message) for one in told] == [
        "kernels cannot be compiled here, all policies are interpreted: "
        "RuntimeError: LLVM ERROR: this processor is not supported"
    ]
    assert story("compiled") == expected  # and nothing is tried or said again


@pytest.mark.usefixtures("fresh")
def test_nothing_is_tried_again_after_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def fail(entry: object) -> None:
        tried.append(entry)
        refuse()

    monkeypatch.setattr(native, "warm_entry", fail)
    with pytest.warns(NotCompiledWarning):
        story("compiled")
    assert len(tried) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
def test_what_was_compiled_before_a_failure_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here numba compiles the first entry it is given and no other: half of a scheduler is interpreted."""
    expected = story("interpreted")
    compiled: list[Any] = []
    compile_entry: Callable[[Any], None] = native.warm_entry

    def only_one(entry: Any) -> None:
        if compiled:
            refuse()
        compile_entry(entry)
        compiled.append(entry)

    monkeypatch.setattr(native, "warm_entry", only_one)
    with pytest.warns(NotCompiledWarning):
        assert story("compiled") == expected
    assert compiled[0].signatures


@pytest.mark.usefixtures("fresh")
def test_warming_says_what_is_wrong_and_leaves_the_rest_to_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "warm_entry", refuse)
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="LLVM ERROR"):
        build.builder(True).warm(Profile())
    assert build.builder(True).trouble == ""


@pytest.mark.usefixtures("fresh")
def test_functions_beside_the_kernel_are_interpreted_likewise(monkeypatch: pytest.MonkeyPatch) -> None:
    def double_entry(number: int) -> int:
        return number * 2

    monkeypatch.setattr(native, "compiled_for", refuse)
    with pytest.warns(NotCompiledWarning):
        assert build.builder(True).run(double_entry, 21) == 42
