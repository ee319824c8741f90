"""`kubectl_complete-dovetail`: kubectl calls it to complete `kubectl dovetail …`, and reads Cobra's form of candidates.

One candidate on each line, with its help behind a tab; the last line is `:4`, which means: do not complete file names
(kubectl, pkg/cmd/plugin_completion.go).
"""

from __future__ import annotations

import sys

NO_FILES = ":4"


def candidates(words: list[str]) -> list[str]:
    """The lines for the words behind `kubectl dovetail`, of which the last one is being written."""
    from click.shell_completion import ShellComplete

    from dovetail.cli.main import cli

    *before, incomplete = words or [""]
    completer = ShellComplete(cli, {}, "kubectl dovetail", "_DOVETAIL_COMPLETE")
    found = completer.get_completions(before, incomplete)
    return [f"{one.value}\t{one.help}" if one.help else str(one.value) for one in found if one.type == "plain"]


def main() -> None:
    from dovetail.cli.output.terminal import echo

    echo("\n".join([*candidates(sys.argv[1:]), NO_FILES]))
