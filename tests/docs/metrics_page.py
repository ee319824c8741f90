"""The tables of docs/metrics.md, from the table of metrics. `python -m tests.docs.metrics_page` writes the page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from dovetail.kube.live.metrics.hami import (
    CARD_METRICS,
    CARDS_LEFT_OUT,
    CONTAINERS_LEFT_OUT,
    OLD_CARD_METRICS,
    OLD_POD_METRICS,
    POD_METRICS,
)
from dovetail.kube.live.metrics.hami_quotas import OLD_QUOTA_USED, QUOTA_LIMIT, QUOTA_USED
from dovetail.kube.live.metrics.table import GROUPS, Metric

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
TABLE = re.compile(r"<!-- table: (.+?) -->\n(.*?)<!-- end -->\n", re.DOTALL)


def table(metrics: Iterable[Metric]) -> str:
    lines = ["", "| metric | labels | type | what it says |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {labels} | {metric.kind} | {metric.help} |")
    return "\n".join((*lines, "", ""))


def hami_table() -> str:
    old = (*OLD_CARD_METRICS, *OLD_POD_METRICS)
    lines = ["", "| metric | with `legacy` also | labels | what it says |", "|---|---|---|---|"]
    for metric, before in zip((*CARD_METRICS, *POD_METRICS), old, strict=True):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | `{before.name}` | {labels} | {metric.help} |")
    for metric, name in ((QUOTA_USED, f"`{OLD_QUOTA_USED.name}`"), (QUOTA_LIMIT, "")):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {name} | {labels} | {metric.help} |")
    for metric in (CARDS_LEFT_OUT, CONTAINERS_LEFT_OUT):
        lines.append(f"| `{metric.name}` | | | {metric.help} |")
    return "\n".join((*lines, "", ""))


TABLES = {**{title: table(metrics) for title, metrics in GROUPS.items()}, "HAMi": hami_table()}


def filled(page: str) -> str:
    """The page with its tables as they should be."""
    return TABLE.sub(lambda found: f"<!-- table: {found[1]} -->\n{TABLES[found[1]]}<!-- end -->\n", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
