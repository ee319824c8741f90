"""All checks of the doctor, in the order in which their findings are printed."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import islice

from dovetail.kube.doctor.cards import CARD_CHECKS
from dovetail.kube.doctor.finding import MOST_OF_A_CHECK, SEVERITIES, Check, Finding
from dovetail.kube.doctor.installation import INSTALLATION_CHECKS
from dovetail.kube.doctor.pods import POD_CHECKS
from dovetail.kube.doctor.quotas import QUOTA_CHECKS
from dovetail.kube.doctor.records import RECORD_CHECKS
from dovetail.kube.doctor.rights import RIGHT_CHECKS
from dovetail.kube.doctor.survey import Survey
from dovetail.kube.doctor.webhooks import WEBHOOK_CHECKS

CHECKS: tuple[Check, ...] = (
    *RECORD_CHECKS,
    *CARD_CHECKS,
    *POD_CHECKS,
    *QUOTA_CHECKS,
    *INSTALLATION_CHECKS,
    *RIGHT_CHECKS,
    *WEBHOOK_CHECKS,
)


def chosen(patterns: Iterable[str], checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """The checks of these names, in the table's order; `card-*` names several. No pattern: all.

    Raises LookupError with the first pattern that names no check.
    """
    patterns = tuple(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(check.name, pattern) for check in checks):
            raise LookupError(pattern)
    return tuple(c for c in checks if not patterns or any(fnmatchcase(c.name, pattern) for pattern in patterns))


def findings(survey: Survey, checks: Iterable[Check] = CHECKS) -> list[Finding]:
    """All findings, the worst severity first; then in the order of the table; those of one check by node and name."""
    ordered = sorted(checks, key=lambda check: SEVERITIES.index(check.severity))
    return [finding for check in ordered for finding in islice(check.run(survey), MOST_OF_A_CHECK)]
