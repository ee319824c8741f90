"""What is wrong with the input, said so that people can fix it: where, which field, what, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]
LONGEST_MESSAGE = 600
LONGEST_NAME = 120
MOST_PER_SEVERITY = 2_000  # a hostile file must not turn into a gigabyte of complaints


class Problem(NamedTuple):
    """One thing that is wrong, doubtful or silently filled in."""

    severity: Severity
    where: str  # "cluster.yaml#2 Pod default/web-0"
    field: str  # "spec.containers[0].resources.limits.nvidia.com/gpu"; "" = the object as a whole
    message: str

    def __str__(self) -> str:
        place = f"{self.where}: {self.field}" if self.field else self.where
        return f"{place}: {self.message}"


class InputError(Exception):
    """The input makes any plan impossible: unreadable, broken or structurally wrong. Carries everything found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        errors = [problem for problem in self.problems if problem.severity == "error"]
        super().__init__("; ".join(str(problem) for problem in errors[:3]) or "the input cannot be read")


class Problems:
    """Collects problems in the order found, each once, so that a thousand replicas complain like one."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}  # a set that keeps its order
        self._counts: dict[Severity, int] = {"error": 0, "warning": 0, "note": 0}
        self.fatal_errors = 0

    def error(self, where: str, field: str, message: str) -> None:
        """Wrong, but only the object named suffers."""
        self._add("error", where, field, message)

    def fatal(self, where: str, field: str, message: str) -> None:
        """Wrong in a way that makes every plan doubtful: `stop_if_fatal` raises later, with all the others."""
        self.fatal_errors += 1
        self._add("error", where, field, message)

    def warning(self, where: str, field: str, message: str) -> None:
        self._add("warning", where, field, message)

    def note(self, where: str, field: str, message: str) -> None:
        """Nothing is wrong: something was filled in or left out, and people should know."""
        self._add("note", where, field, message)

    def stop_if_fatal(self) -> None:
        if self.fatal_errors:
            raise InputError(self._found)

    def found(self) -> tuple[Problem, ...]:
        return tuple(self._found)

    def _add(self, severity: Severity, where: str, field: str, message: str) -> None:
        count = self._counts[severity]
        if count > MOST_PER_SEVERITY:
            return
        if count == MOST_PER_SEVERITY:
            field, message = "", f"more than {count} problems of this severity; the rest is left out"
        problem = Problem(severity, printable(where, 400), printable(field, 400), printable(message, LONGEST_MESSAGE))
        if problem not in self._found:
            self._found[problem] = None
            self._counts[severity] = count + 1


_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """The text, shortened, without characters that would break a terminal or an encoder."""
    if len(text) > longest:
        text = text[:longest] + "…"
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
