"""Help teaches, and comes at once."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import click
import pytest

from dovetail.cli.main import cli
from tests.cli.conftest import Run

COMMANDS = sorted(cli.commands)
HEAVY = ("numpy", "numba", "yaml", "msgspec", "asyncio", "dovetail.engine", "dovetail.kube", "dovetail.policies")


def test_all_commands_are_there() -> None:
    assert COMMANDS == [
        "compare",
        "completion",
        "config",
        "demo",
        "doctor",
        "explain",
        "extender",
        "generate",
        "get",
        "journal",
        "plan",
        "policies",
        "replay",
        "scheduler",
        "shadow",
        "snapshot",
        "top",
        "trace",
        "warm",
        "webhook",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_how_it_is_used(command: str, run: Run) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"  dovetail {command}" in result.output  # an example to copy


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(command: str) -> None:
    for parameter in cli.commands[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{command} {parameter.opts}"


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], *([command, "-h"] for command in ("plan", "explain", "generate", "replay", "compare"))],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom dovetail.cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_help_costs_little_cpu() -> None:
    """0.2 s on a warm start; ten times that is asserted, as the machine may be busy."""

    def cost() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "dovetail.cli", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    cost()
    assert min(cost() for _ in range(4)) <= 2.0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, run: Run) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_DOVETAIL_COMPLETE" in result.output
    assert result.output.startswith("#compdef dovetail" if shell == "zsh" else "# To install")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("plan --node-policy fit", "fit-plus"),
        ("replay --policy best", "best-fit"),
        ("compare --policy fgd,best", "fgd,best-fit"),
        ("compare --baseline binpack/mu", "binpack/mutex"),
        ("compare --mo", "--mode"),
    ],
)
def test_policies_are_completed(words: str, completed: str) -> None:
    environment = {
        "_DOVETAIL_COMPLETE": "bash_complete",
        "COMP_WORDS": f"dovetail {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    done = subprocess.run([sys.executable, "-m", "dovetail.cli"], capture_output=True, text=True, env=environment)
    assert f"plain,{completed}\n" in done.stdout


def test_policies_lists_both_axes(run: Run) -> None:
    result = run("policies")
    assert result.exit_code == 0
    for name in ("binpack (default)", "spread (default)", "fit-plus", "topology-aware", "spread-replicas"):
        assert name in result.output
    assert result.output.index("binpack (default)") < result.output.index("spread-replicas")  # pack before spread


def test_policies_as_json_say_what_they_are_for(run: Run) -> None:
    rows = json.loads(run("policies", "-o", "json").stdout)["policies"]
    (fgd,) = [row for row in rows if row["name"] == "fgd"]
    assert (fgd["axis"], fgd["purpose"], fgd["source"]) == ("node", "fragmentation", "FGD paper (ATC'23)")
    assert all(row["use"] and row["avoid"] for row in rows)
