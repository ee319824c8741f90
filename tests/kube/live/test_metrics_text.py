"""/metrics in Prometheus' text format 0.0.4: every line as the format has it, every metric explained, no digit lost."""

from __future__ import annotations

import math
import re

import pytest

from dovetail.kube.histogram import Histogram
from dovetail.kube.live.health import Numbers
from dovetail.kube.live.metrics.table import METRICS, Metric
from dovetail.kube.live.metrics.text import lines, render, written
from dovetail.kube.live.port import PortRequest
from tests.kube.live.metric_service import driver, metrics, service

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})((?:\{{{LABEL}(?:,{LABEL})*\}})?) (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|[+-]Inf|NaN)")


def parsed(text: str) -> dict[str, tuple[str, str, dict[str, float]]]:
    """Metric -> (type, help, labels -> value). As Prometheus reads it: comments first, then the metric's samples."""
    found: dict[str, tuple[str, str, dict[str, float]]] = {}
    helps: dict[str, str] = {}
    current = ""
    for line in text.split("\n"):
        if line.startswith("# HELP "):
            name, _, helps[name] = line.removeprefix("# HELP ").partition(" ")
        elif line.startswith("# TYPE "):
            current, kind = line.removeprefix("# TYPE ").split(" ")
            assert current not in found, f"{current} comes twice"
            found[current] = (kind, helps.get(current, ""), {})
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            stem = re.sub("_(bucket|sum|count)$", "", sample[1]) if found[current][0] == "histogram" else sample[1]
            assert stem == current
            key = sample[1].removeprefix(current) + sample[2]
            assert key not in found[current][2], line
            found[current][2][key] = float(sample[3])
    return found


def test_every_metric_has_a_type_and_is_explained_and_none_is_explained_that_does_not_exist() -> None:
    found = parsed(metrics(service()))
    assert {name: bool(text) for name, (_, text, _) in found.items()} == dict.fromkeys(METRICS, True)
    assert {name: kind for name, (kind, _, _) in found.items()} == {one.name: one.kind for one in METRICS.values()}


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_names_follow_prometheus_rules(metric: Metric) -> None:
    """A counter ends in _total, and nothing else does; units are seconds and bytes; help is a sentence."""
    assert metric.name.endswith("_total") is (metric.kind == "counter")
    assert not re.search(r"_(ms|millis|mib|gib|milli)(_|$)", metric.name)
    assert metric.help.endswith(".")


def test_counters_keep_all_their_digits() -> None:
    """With six digits a counter at 12 million would stand still for a hundred binds, and its rate would be 0."""
    found = parsed(metrics(service(driver=driver(bound=12_345_679))))
    assert found["dovetail_pods_bound_total"][2] == {"": 12_345_679}
    assert found["dovetail_kernel_compile_seconds_total"][2] == {"": 12.25}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (True, "1"),
        (3.0, "3"),
        (0.1, "0.1"),
        (2**53 + 1, "9007199254740993"),
        (1e-7, "1e-07"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert written(value) == text


def test_labels_are_escaped() -> None:
    text = render({"dovetail_watch_failures_total": {('/a"b\\c\nd',): 7, ("/e",): 0}})
    assert text.split("\n")[2:] == [
        'dovetail_watch_failures_total{resource="/a\\"b\\\\c\\nd"} 7',
        'dovetail_watch_failures_total{resource="/e"} 0',
    ]
    assert len(parsed(text)["dovetail_watch_failures_total"][2]) == 2


def test_help_is_one_line() -> None:
    assert list(lines(Metric("dovetail_ready", 'two\nlines \\ and a quote"'), 1)) == [
        '# HELP dovetail_ready two\\nlines \\\\ and a quote"',
        "# TYPE dovetail_ready gauge",
        "dovetail_ready 1",
    ]


def test_a_histogram_counts_what_is_not_above_each_bound() -> None:
    """0.5 and 1 are in `le="1"`; 3 is above every bound; 0.5 + 1 + 3 = 4.5."""
    made = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 3.0):
        made.observe(value)
    text = lines(Metric("m", "M.", ("result",), "histogram"), {("placed",): made})
    assert list(text)[2:] == [
        'm_bucket{result="placed",le="1"} 2',
        'm_bucket{result="placed",le="2"} 2',
        'm_bucket{result="placed",le="+Inf"} 3',
        'm_sum{result="placed"} 4.5',
        'm_count{result="placed"} 3',
    ]


@pytest.mark.asyncio
async def test_the_format_is_named_in_the_answer() -> None:
    answer = await Numbers(service()).serve(PortRequest("/metrics"))
    assert answer.kind == "text/plain; version=0.0.4; charset=utf-8"
