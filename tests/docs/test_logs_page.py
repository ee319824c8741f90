"""docs/logs.md has the fields and levels of the code, and every call that logs uses one of these fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from dovetail.engine.ledger.audit import LedgerDifference
from dovetail.kube.log import LOG_FIELDS, Level
from tests.docs.logs_page import PAGE, filled

SOURCE = Path(__file__).parents[2] / "src" / "dovetail"
LOGS = ("log", "_log", "_report")  # names under which code holds a Log
BY_THE_LOGGER = {"repeats"}
MATHS = ("math", "np", "numpy")


def test_the_page_is_that_of_the_code() -> None:
    """After a change of LOG_FIELDS: `python -m tests.docs.logs_page`."""
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text) == text
    assert [f"| `{level.name.lower()}` |" in text for level in Level] == [True] * len(Level)


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a log, with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _is_log(node.func):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node


def _is_log(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        of_maths = isinstance(called.value, ast.Name) and called.value.id in MATHS
        return called.attr in LOGS and not of_maths
    return isinstance(called, ast.Name) and called.id in LOGS


def test_every_field_that_is_logged_is_on_the_page_and_no_other() -> None:
    used: dict[str, str] = {}
    for place, call in calls():
        for keyword in call.keywords:
            names = (keyword.arg,) if keyword.arg else LedgerDifference._fields[1:]  # the one call with `**`
            used.update((name, place) for name in names)
    assert {name: place for name, place in used.items() if name not in LOG_FIELDS} == {}
    assert set(LOG_FIELDS) - used.keys() == BY_THE_LOGGER


def test_a_line_about_a_pod_has_its_uid_where_it_is_known() -> None:
    """A field `pod` alone is right where only the name is known: of events, and of other schedulers' pods."""
    alone = {
        place.partition(":")[0]
        for place, call in calls()
        if {"pod"} == {keyword.arg for keyword in call.keywords} & {"pod", "uid"}
    }
    assert alone == {"kube/live/peers.py", "kube/live/tell.py"}


def test_many_calls_were_looked_at() -> None:
    assert len(list(calls())) > 80
