"""Problems of the input, written so that people can fix them: where, which field, what, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from dovetail.model.visible import INVISIBLE

Severity = Literal["error", "warning", "note"]
LONGEST_PROBLEM_MESSAGE = 600
LONGEST_PRINTED_NAME = 120
MOST_PER_SEVERITY = 2_000  # so that a hostile file does not cause a gigabyte of messages


class Problem(NamedTuple):
    """One fact that is wrong, doubtful or silently filled in."""

    severity: Severity
    where: str  # "cluster.yaml#2 Pod default/web-0"
    field: str  # "spec.containers[0].resources.limits.nvidia.com/gpu"; "" = the object as a whole
    message: str
    tell: bool = False  # a note about a value that a user wrote, so worth an event on the pod

    def __str__(self) -> str:
        place = f"{self.where}: {self.field}" if self.field else self.where
        return f"{place}: {self.message}"


class InputError(Exception):
    """No plan is possible: the input is unreadable or structurally wrong. Carries all problems found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        errors = [problem for problem in self.problems if problem.severity == "error"]
        super().__init__("; ".join(str(problem) for problem in errors[:3]) or "the input cannot be read")


class Problems:
    """Collects problems in the order found, each once, so that a thousand replicas give one message."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict  # mistakes are errors
        self._found: dict[Problem, None] = {}  # a set that keeps its order
        self._counts: dict[Severity, int] = {"error": 0, "warning": 0, "note": 0}
        self.fatal_errors = 0

    def error(self, where: str, field: str, message: str) -> None:
        """Add an error that affects only the named object."""
        self._add("error", where, field, message)

    def fatal(self, where: str, field: str, message: str) -> None:
        """Add an error that makes every plan doubtful: `stop_if_fatal` raises it later, with all others."""
        self.fatal_errors += 1
        self._add("error", where, field, message)

    def warning(self, where: str, field: str, message: str) -> None:
        self._add("warning", where, field, message)

    def mistake(self, where: str, field: str, message: str) -> None:
        """Add a warning, or with `--strict` an error: the API server refuses it, or it is probably not intended."""
        self._add("error" if self.strict else "warning", where, field, message)

    def understood(self, where: str, field: str, message: str) -> None:
        """Add a note about a value that HAMi or Kubernetes reads differently."""
        self._add("note", where, field, message, tell=True)

    def note(self, where: str, field: str, message: str) -> None:
        """Add a note: nothing is wrong, but something was filled in or left out."""
        self._add("note", where, field, message)

    def repeat(self, problem: Problem, where: str) -> None:
        """Add what was found in an equal object, for the one at `where`."""
        self._add(problem.severity, where, problem.field, problem.message, problem.tell)

    def below(self, path: str) -> Problems:
        """A collector for a part of an object: it puts `path`, which ends in a dot, in front of the fields."""
        return _Below(self, path) if path else self

    def stop_if_fatal(self) -> None:
        if self.fatal_errors:
            raise InputError(self._found)

    def found(self) -> tuple[Problem, ...]:
        return tuple(self._found)

    def _add(self, severity: Severity, where: str, field: str, message: str, tell: bool = False) -> None:
        count = self._counts[severity]
        if count > MOST_PER_SEVERITY:
            return
        if count == MOST_PER_SEVERITY:
            field, message = "", f"more than {count} problems of this severity; the rest is left out"
        message = printable(message, LONGEST_PROBLEM_MESSAGE)
        problem = Problem(severity, printable(where, 400), printable(field, 400), message, tell)
        if problem not in self._found:
            self._found[problem] = None
            self._counts[severity] = count + 1


class _Below(Problems):
    def __init__(self, whole: Problems, path: str) -> None:
        super().__init__(whole.strict)
        self._whole, self._path = whole, path

    def _add(self, severity: Severity, where: str, field: str, message: str, tell: bool = False) -> None:
        self._whole._add(severity, where, f"{self._path}{field}", message, tell)


_UNPRINTABLE = re.compile(f"[{INVISIBLE}]")
_LINE_BREAKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")


def printable(text: str, longest: int = LONGEST_PRINTED_NAME) -> str:
    """The text on one line, shortened, without characters that would break a terminal or an encoder.

    Go's plain-text answers end in a newline (`404 page not found`): line breaks and tabs become a space.
    """
    if len(text) <= longest and text.isascii() and text.isprintable():
        return text.strip()
    text = _LINE_BREAKS.sub(" ", text[: 2 * longest]).strip()
    if len(text) > longest:
        text = text[:longest] + "…"
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
