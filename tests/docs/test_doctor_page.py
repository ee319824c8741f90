"""docs/doctor.md has a section for each check, and a row for each difference to HAMi."""

from __future__ import annotations

import re
from pathlib import Path

from dovetail.kube.doctor.hami import HAMI_CHECKS
from dovetail.kube.doctor.table import CHECKS

SUBJECTS = {
    *("record", "card", "node", "pod", "quota"),
    *("leader", "policy", "flow", "version", "rights", "webhook", "hami"),
}
PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")


def test_every_check_has_a_section_with_text() -> None:
    sections = re.split(r"^#{2,3} ", PAGE, flags=re.M)
    text = {section.partition("\n")[0]: section.partition("\n")[2].strip() for section in sections}
    assert [check.name for check in CHECKS if len(text.get(check.name, "")) < 40] == []


def test_no_section_is_about_a_check_that_is_gone() -> None:
    assert sorted(re.findall(r"^### (\S+)$", PAGE, flags=re.M)) == sorted(check.name for check in CHECKS)


def test_every_difference_has_a_row() -> None:
    rows = re.findall(r"^\| `(hami-[a-z-]+)` \|", PAGE, flags=re.M)
    assert sorted(rows) == sorted(check.name for check in HAMI_CHECKS)


def test_names_of_checks_are_distinct_and_begin_with_their_subject() -> None:
    names = [check.name for check in (*CHECKS, *HAMI_CHECKS)]
    assert len(set(names)) == len(names)
    subjects = {name.partition("-")[0] for name in names}
    assert subjects == SUBJECTS
