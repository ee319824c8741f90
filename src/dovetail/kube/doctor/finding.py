"""A finding of the doctor, and a check as a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dovetail.kube.doctor.survey import Survey
from dovetail.kube.objects.problems import Severity

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the worst first
MOST_OF_A_CHECK = 1_000  # findings of one check that are listed


class Finding(NamedTuple):
    """One problem, and what to do about it."""

    check: str
    object: str  # "Pod ml/train-0", "Node gpu-7"
    node: str  # "" = none
    message: str
    advice: str


class Check(NamedTuple):
    name: str
    severity: Severity
    sentence: str  # what is wrong if the check finds something
    run: Callable[[Survey], Iterable[Finding]]


def severity_of(checks: Iterable[Check]) -> dict[str, Severity]:
    """Name of a check -> its severity."""
    return {check.name: check.severity for check in checks}
