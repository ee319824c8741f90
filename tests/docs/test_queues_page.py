"""The page on queues names every arithmetic and every order, and its examples load."""

from __future__ import annotations

import re
from pathlib import Path

from dovetail import config
from dovetail.policies.orders import ORDERS
from dovetail.policies.quota.table import QUOTA_POLICIES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "queues.md").read_text(encoding="utf-8")


def test_every_arithmetic_has_a_section_and_a_row() -> None:
    for name in QUOTA_POLICIES:
        assert f"\n### {name}\n" in PAGE
        assert f"| [`{name}`](#{name}) |" in PAGE


def test_every_order_has_a_row() -> None:
    section = PAGE.split("## Which group is next")[1].split("\n## ")[0]
    assert re.findall(r"(?m)^\| `([a-z-]+)` \|", section) == list(ORDERS)


def test_the_examples_load(tmp_path: Path) -> None:
    examples = re.findall(r"(?ms)^```yaml\n(.*?)^```", PAGE)
    assert len(examples) == 2
    for text in examples:
        path = tmp_path / "dovetail.yaml"
        path.write_text(text, encoding="utf-8")
        assert config.queues(config.load(path), str(path))
