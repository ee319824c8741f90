"""/metrics in Prometheus' text format 0.0.4: every line as the format has it, every metric explained, no digit lost."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from dovetail.kube.api.reflector import Health
from dovetail.kube.live.health import Numbers, metrics
from dovetail.kube.live.kernels import KernelCounts
from dovetail.kube.live.metrics_text import HELP, render, written
from dovetail.kube.live.port import PortRequest
from dovetail.kube.live.service import LiveScheduler

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABELS = r'\{[a-z]+="(?:[^"\\\n]|\\[\\"n])*"\}'
SAMPLE = re.compile(rf"({NAME})((?:{LABELS})?) (\d+(?:\.\d+)?(?:e[+-]?\d+)?|[+-]Inf|NaN)")
WELL = Health(synced=True, served=True, connected=True, quiet=1, age=1.5, failures=0, lists=2, broken=7, error="")


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
            assert sample[1] == current
            assert sample[2] not in found[current][2], line
            found[current][2][sample[2]] = float(sample[3])
    return found


def everything(bound: int = 12_345_679, *paths: str) -> LiveScheduler:
    """A scheduler that leads: it has every metric there is."""
    reflectors = [SimpleNamespace(path=path, health=lambda: WELL) for path in paths or ("/api/v1/pods",)]
    driver = SimpleNamespace(
        counts=SimpleNamespace(placed=bound, bound=bound, conflicts=1, refused=2, rescued=0),
        set_aside=SimpleNamespace(total=0),
        binder=SimpleNamespace(under_way=(), writes=bound, gate=SimpleNamespace(throttled=3)),
        teller=SimpleNamespace(conditions_written=1, sent=2, dropped=0),
        audit=SimpleNamespace(rounds=4, differences=0, rebuilds=0),
    )
    made = SimpleNamespace(
        reflectors=reflectors,
        ready=True,
        state="ready",
        mirror=SimpleNamespace(nodes={}, pods={}, records_changed=0),
        scheduler=SimpleNamespace(waiting=()),
        driver=driver,
        kernels=SimpleNamespace(counts=KernelCounts(compiled=1, seconds=12.25)),
        peers=SimpleNamespace(refused="", elsewhere=0),
        seals_records=True,
    )
    return cast(LiveScheduler, made)


def test_every_metric_has_a_type_and_is_explained_and_none_is_explained_that_does_not_exist() -> None:
    found = parsed(metrics(everything()))
    assert {name: bool(text) for name, (_, text, _) in found.items()} == dict.fromkeys(HELP, True)
    assert {kind for name, (kind, _, _) in found.items() if name.endswith("_total")} == {"counter"}
    assert {kind for name, (kind, _, _) in found.items() if not name.endswith("_total")} == {"gauge"}


def test_counters_keep_all_their_digits() -> None:
    """With six digits a counter at 12 million would stand still for a hundred binds, and its rate would be 0."""
    found = parsed(metrics(everything(bound=12_345_679)))
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
    text = render({}, {"dovetail_watch_failures_total": {'/a"b\\c\nd': 7, "/e": 0}})
    assert text.split("\n")[2:] == [
        'dovetail_watch_failures_total{resource="/a\\"b\\\\c\\nd"} 7',
        'dovetail_watch_failures_total{resource="/e"} 0',
    ]
    assert len(parsed(text)["dovetail_watch_failures_total"][2]) == 2


def test_help_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: Mapping[str, str] = {"dovetail_ready": 'two\nlines \\ and a quote"'}
    monkeypatch.setattr("dovetail.kube.live.metrics_text.HELP", changed)
    assert render({"dovetail_ready": 1}, {}).split("\n") == [
        '# HELP dovetail_ready two\\nlines \\\\ and a quote"',
        "# TYPE dovetail_ready gauge",
        "dovetail_ready 1",
    ]


@pytest.mark.asyncio
async def test_the_format_is_named_in_the_answer() -> None:
    answer = await Numbers(everything()).serve(PortRequest("/metrics"))
    assert answer.kind == "text/plain; version=0.0.4; charset=utf-8"
