"""Prometheus' text format 0.0.4, written from values and the table of metrics.

https://prometheus.io/docs/instrumenting/exposition_formats/. ADR 17 compares this with prometheus-client.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dovetail.kube.histogram import Histogram
from dovetail.kube.live.metrics.table import METRICS, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Labelled = Mapping[Any, float]  # by the values of the metric's labels
Histograms = Mapping[Any, Histogram]  # likewise
Page = Mapping[str, float | Labelled | Histograms]  # by name


def render(page: Page) -> str:
    """The text of a page whose metrics are in the table."""
    return "\n".join(line for name, value in page.items() for line in lines(METRICS[name], value))


def lines(metric: Metric, value: float | Labelled | Histograms) -> Iterator[str]:
    """The comments and the samples of one metric."""
    yield f"# HELP {metric.name} {metric.help.translate(_IN_HELP)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    by_labels = value if isinstance(value, Mapping) else {(): value}
    for values, one in by_labels.items():
        if isinstance(one, Histogram):
            yield from _histogram(metric, values, one)
        else:
            yield f"{metric.name}{braces(metric.labels, values)} {written(one)}"


def _histogram(metric: Metric, values: tuple[str, ...], one: Histogram) -> Iterator[str]:
    name, names, counts = metric.name, (*metric.labels, "le"), one.cumulative
    for bound, count in zip((*one.bounds, math.inf), counts, strict=True):
        yield f"{name}_bucket{braces(names, (*values, written(bound)))} {count}"
    yield f"{name}_sum{braces(metric.labels, values)} {written(one.sum)}"
    yield f"{name}_count{braces(metric.labels, values)} {counts[-1]}"


def braces(names: Sequence[str], values: Sequence[str]) -> str:
    """`{model="A100",state="free"}`; nothing without labels."""
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def escaped(value: str) -> str:
    return value.translate(_IN_LABEL)


def written(value: float) -> str:
    """The value with all digits: a rounded counter would stand still, and so would its rate."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
