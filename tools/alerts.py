"""The alert rules for the Prometheus operator, from the plain ones. `python -m tools.alerts` writes the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent / "deploy" / "monitoring"
PLAIN, FOR_OPERATOR = FOLDER / "alerts.rules.yaml", FOLDER / "prometheusrule.yaml"
HEAD = "# alerts.rules.yaml for the Prometheus operator. Written by `python -m tools.alerts`.\n"


def groups() -> list[dict[str, Any]]:
    """The groups of rules."""
    found: list[dict[str, Any]] = yaml.safe_load(PLAIN.read_text(encoding="utf-8"))["groups"]
    return found


def prometheus_rule() -> str:
    """The text of the PrometheusRule."""
    labels = {"app.kubernetes.io/name": "dovetail-scheduler"}
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "dovetail-scheduler", "namespace": "kube-system", "labels": labels},
        "spec": {"groups": groups()},
    }
    return HEAD + yaml.safe_dump(made, sort_keys=False, width=140, allow_unicode=True)


if __name__ == "__main__":
    FOR_OPERATOR.write_text(prometheus_rule(), encoding="utf-8")
