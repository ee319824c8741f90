"""The dashboards and the alerts of deploy/monitoring, for tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools.alerts import FOLDER, groups

DASHBOARDS = sorted(FOLDER.glob("*.json"))
ALERTS = groups()
VARIABLES = {
    "$__rate_interval": "1m",
    "$job": ".*",
    "$model": ".*",
    "$queue": ".*",
    "$resource": "gpus",
}
NAMES = re.compile(r"\b((?:dovetail|hami)_[a-z_]+)")


def queries_of(path: Path) -> list[str]:
    """The PromQL of all panels, with values for the variables."""
    found = []
    for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            found.append(query)
    return found


def metrics_in(query: str) -> set[str]:
    """The metrics that a query names, without the suffixes of histograms."""
    return {re.sub("_(bucket|sum|count)$", "", name) for name in NAMES.findall(query)}
