"""docs/metrics.md is what the process serves."""

from __future__ import annotations

import re

from tests.docs.metrics_page import PAGE, TABLE, TABLES, filled


def test_the_tables_are_those_of_the_code() -> None:
    """After a change of a metric: `python -m tests.docs.metrics_page`."""
    text = PAGE.read_text(encoding="utf-8")
    assert [found[1] for found in TABLE.finditer(text)] == list(TABLES)
    assert filled(text) == text


def test_every_metric_that_the_text_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    known = {name for table in TABLES.values() for name in re.findall(r"(?m)^\| `(\w+)`", table)}
    named = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\bdovetail_[a-z_]+\b", text)}
    assert named <= known
