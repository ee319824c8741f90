"""Runs the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dovetail.cli.main import cli

Run = Callable[..., Result]
PlanJson = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOVETAIL_CONFIG", "DOVETAIL_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run() -> Run:
    """`run("plan", "-f", path)` → what it printed and its exit code. An exception that nobody expected is raised."""

    def invoke(*arguments: object, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def plan_json(run: Run) -> PlanJson:
    """The JSON of `plan` for these arguments, whatever the exit code."""

    def invoke(*arguments: object, stdin: str | bytes | None = None) -> dict[str, Any]:
        result = run("plan", "-o", "json", *arguments, stdin=stdin)
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    return invoke
