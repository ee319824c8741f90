"""Measured load: what the sources say, what is refused, when it is stale, and which events the engine gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.kube.conversion.measured import (
    SERIES_LABELS,
    Answer,
    Kind,
    NoAnswer,
    Places,
    Value,
    of_metrics_api,
    of_prometheus,
)
from dovetail.kube.live.signal_sources import SignalOptions
from dovetail.kube.live.signals import SAY_AGAIN_SECONDS, Signals
from dovetail.kube.log import INFO, Level
from dovetail.model.events import SignalsMeasured
from dovetail.model.node import Node
from dovetail.model.signals import CardSignals, NodeSignals
from tests.builders import card, node

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z
STALE = 180.0


def places(**nodes: Node) -> Places:
    return Places(nodes or {"a": node("a", card("GPU-1"), cpu=4_000)})


def node_metrics(name: str = "a", cpu: Any = "1", memory: Any = "64Gi", at: str = "2023-11-14T22:13:00Z") -> bytes:
    item = {"metadata": {"name": name}, "timestamp": at, "window": "20s", "usage": {"cpu": cpu, "memory": memory}}
    return json.dumps({"kind": "NodeMetricsList", "items": [item]}).encode()


def vector(*series: tuple[dict[str, str], object], at: float = NOW) -> bytes:
    result = [{"metric": labels, "value": [at, str(value)]} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_node_metrics_are_parts_of_what_is_allocatable() -> None:
    answer = of_metrics_api(node_metrics(cpu="1500000000n"), places(), NOW, STALE)
    # 1.5 of 4 cores, 64 of 256 GiB, 20 s ago
    assert answer == Answer((Value("a", "", Kind.CPU, 375, NOW - 20), Value("a", "", Kind.MEMORY, 250, NOW - 20)))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (node_metrics(cpu="-1"), "cpu of node a is negative (-25 %)"),
        (node_metrics(cpu="50"), "cpu of node a is 1,250 %, more than ten times what there is"),
        (node_metrics(cpu="NaN"), "cpu of node a is no number"),
        (node_metrics(at="2023-11-14T22:00:00Z"), "cpu of node a is 800 s old"),
        (node_metrics(at="2023-11-14T23:00:00Z"), "cpu of node a is 2800 s in the future"),
        (node_metrics(at="yesterday"), "cpu of node a has no time"),
    ],
)
def test_node_metrics_that_cannot_be_true_are_refused(body: bytes, why: str) -> None:
    answer = of_metrics_api(body, places(), NOW, STALE)
    assert answer.refused[0] == why
    assert Kind.CPU not in {value.kind for value in answer.values}


def test_series_are_found_by_uuid_by_index_and_by_host() -> None:
    known = places(
        a=node("a", card("GPU-1"), labels={"kubernetes.io/hostname": "host-a"}), b=node("b", card("b/vcuda-0", index=0))
    )
    body = vector(
        ({"Hostname": "elsewhere", "UUID": "GPU-1"}, 40), ({"Hostname": "b", "gpu": "0"}, 7), ({"UUID": "GPU-9"}, 1)
    )
    answer = of_prometheus(body, Kind.CARD, SERIES_LABELS, known, NOW, STALE)
    assert [(value.node, value.card, value.permille) for value in answer.values] == [
        ("a", "GPU-1", 400),
        ("b", "b/vcuda-0", 70),  # a plugin that tells no UUIDs
    ]
    assert answer.unknown == 1
    body = vector(({"instance": "host-a:9100"}, 12.34), ({"instance": "b"}, 5))
    answer = of_prometheus(body, Kind.CPU, SERIES_LABELS, known, NOW, STALE)
    assert [(value.node, value.permille) for value in answer.values] == [("a", 123), ("b", 50)]


def test_names_that_two_nodes_claim_count_for_neither() -> None:
    """A node that takes the host name or the UUID of another would be given its load."""
    host = {"kubernetes.io/hostname": "host-a"}
    known = places(a=node("a", card("GPU-1"), labels=host), b=node("b", card("GPU-1"), card("GPU-2"), labels=host))
    assert [known.node(name) for name in ("host-a", "host-a:9100", "a", "b:9100")] == ["", "", "a", "b"]
    assert [known.card(uuid, "", "") for uuid in ("GPU-1", "GPU-2")] == [("", ""), ("b", "GPU-2")]


def test_of_an_answer_with_far_too_many_series_a_part_is_read() -> None:
    """One node with one card: 1,000 series and four each for both. Those beyond are not even decoded."""
    known = places()
    most = known.most_series
    assert most == 1_008
    others = [({"Hostname": "a", "UUID": f"GPU-x{n}", "gpu": "7"}, 1) for n in range(most - 1)]
    body = vector(*others, ({"UUID": "GPU-1"}, 40), ({"UUID": "GPU-1"}, 50)).replace(b'"50"', b"false")
    answer = of_prometheus(body, Kind.CARD, SERIES_LABELS, known, NOW, STALE)
    assert ([value.permille for value in answer.values], answer.unknown) == ([400], most - 1)
    assert answer.refused == ("gpu has 1,009 series, of which 1,008 are read; write a narrower query",)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-3", "1001", "x"])
def test_series_that_cannot_be_true_are_refused(value: str) -> None:
    answer = of_prometheus(vector(({"UUID": "GPU-1"}, value)), Kind.CARD, SERIES_LABELS, places(), NOW, STALE)
    assert (answer.values, len(answer.refused)) == ((), 1)
    assert "gpu of card GPU-1 of node a" in answer.refused[0]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"status": "error"}', b'{"status":"success","data":{"resultType":"scalar"}}']
)
def test_an_answer_that_is_no_vector_is_an_error(body: bytes) -> None:
    with pytest.raises(NoAnswer):
        of_prometheus(body, Kind.CARD, SERIES_LABELS, places(), NOW, STALE)


class Source:
    """Says what the test wants, round by round."""

    def __init__(self, name: str = "the source") -> None:
        self.name, self.says = name, (Answer(), "")

    def values(self, *values: Value) -> None:
        self.says = (Answer(values), "")

    async def read(self, places: Places, now: float) -> tuple[Answer, str]:
        return self.says

    async def close(self) -> None: ...


class Scene:
    """A source, its hub, and a clock."""

    def __init__(self, **options: float) -> None:
        self.at, self.source, self.lines = NOW, Source(), list[tuple[Level, str]]()
        self.sent: list[SignalsMeasured] = []
        nodes = {"a": node("a", card("GPU-1"), cpu=4_000), "b": node("b", cpu=4_000)}
        given = SignalOptions(**options)  # type: ignore[arg-type]
        self.hub = Signals(
            (self.source,), given, nodes, self.sent.extend, now=lambda: self.at, log=self.log, readers=("coolest",)
        )

    def log(self, message: str, level: Level = INFO, /, **fields: object) -> None:
        self.lines.append((level, message))

    async def round(self, seconds: float = 15.0) -> list[SignalsMeasured]:
        self.at += seconds
        self.sent.clear()
        await self.hub.round()
        return list(self.sent)

    def cpu(self, permille: int, name: str = "a") -> Value:
        return Value(name, "", Kind.CPU, permille, self.at)


async def test_a_node_is_told_whenever_it_was_measured_and_only_then() -> None:
    scene = Scene()
    scene.source.values(scene.cpu(400), Value("a", "GPU-1", Kind.CARD, 700, NOW))
    (event,) = await scene.round()
    card = CardSignals("GPU-1", 700, compute_deviation=0)
    assert event == SignalsMeasured(scene.at, "a", NodeSignals(scene.at, 400, 0, cards=(card,)))
    (again,) = await scene.round()  # the same values include pods that were placed meanwhile
    assert again.signals == NodeSignals(scene.at, 400, 0, cards=(card,))
    scene.source.values()
    assert await scene.round() == []
    assert (scene.hub.measured_nodes, scene.hub.remarks) == (1, [])


async def test_mean_and_deviation_come_from_the_window_or_from_the_source() -> None:
    scene = Scene(window_seconds=60.0)
    for permille in (200, 400, 600):
        scene.source.values(scene.cpu(permille))
        (event,) = await scene.round()
    # mean 400, deviation √((200² + 0 + 200²) / 3) = 163
    assert (event.signals.cpu, event.signals.cpu_deviation) == (400, 163)
    scene.source.values(scene.cpu(600), Value("a", "", Kind.CPU_DEVIATION, 50, scene.at))
    (event,) = await scene.round()
    assert (event.signals.cpu, event.signals.cpu_deviation) == (600, 50)


async def test_a_source_dies_returns_and_lies_with_one_warning_each() -> None:
    scene = Scene(stale_seconds=40.0)
    scene.source.values(scene.cpu(400))
    await scene.round()
    scene.source.says = (Answer(), "connection refused")
    assert await scene.round() == []  # 30 s old: it still counts
    (event,) = await scene.round()  # 45 s old: nothing is known
    assert event.signals == NodeSignals(scene.at)
    assert "measured load from the source: connection refused" in scene.hub.remarks[0]
    assert scene.hub.remarks[1] == "no load is measured, which coolest would read"
    scene.source.values(scene.cpu(500))
    (event,) = await scene.round()
    assert (event.signals.cpu, scene.hub.remarks) == (500, [])
    scene.source.says = (Answer((), ("cpu of node a is negative (-25 %)",)), "")
    assert await scene.round() == []  # the last good value counts
    assert scene.hub.states[0].refused == 1
    scene.source.values(scene.cpu(500))
    await scene.round()
    assert [text for _, text in scene.lines] == [
        "measured load from the source: connection refused; pods are placed without what is missing",
        "measured load from the source is well again",
        "measured load from the source: 1 values are refused: cpu of node a is negative (-25 %); pods are placed"
        " without what is missing",
        "measured load from the source is well again",
    ]


async def test_a_lasting_trouble_is_said_again_after_a_while() -> None:
    scene = Scene()
    scene.source.says = (Answer(), "connection refused")
    for _ in range(5):
        await scene.round()
    assert len(scene.lines) == 1
    await scene.round(SAY_AGAIN_SECONDS)
    assert len(scene.lines) == 2


async def test_a_source_that_raises_or_hangs_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    scene = Scene()

    async def broken(places: Places, now: float) -> tuple[Answer, str]:
        raise ZeroDivisionError("oops")

    async def hangs(places: Places, now: float) -> tuple[Answer, str]:
        await asyncio.sleep(3600)
        return Answer(), ""

    monkeypatch.setattr(scene.source, "read", broken)
    assert await scene.round() == []
    assert "ZeroDivisionError: oops" in scene.hub.remarks[0]
    monkeypatch.setattr("dovetail.kube.live.signals.ROUND_SECONDS", 0.01)
    monkeypatch.setattr(scene.source, "read", hangs)
    assert await scene.round() == []
    assert "no answer within 0.01 s" in scene.hub.remarks[0]


async def test_the_load_of_a_card_is_its_last_value_and_how_much_it_varied() -> None:
    """700, then 300 per mille: the mean is 500, the standard deviation 200."""
    scene = Scene()
    for load in (700, 300):
        scene.source.values(Value("a", "GPU-1", Kind.CARD, load, scene.at))
        (event,) = await scene.round()
    assert event.signals.cards == (CardSignals("GPU-1", 300, compute_deviation=200),)
