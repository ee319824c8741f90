"""Measured load of nodes and cards: the answers of the metrics API and of Prometheus → values in per mille.

A value that cannot be true is refused: no number, negative, more than ten times what there is, or too old.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

import msgspec

from dovetail.kube.conversion.amounts import text_of
from dovetail.kube.conversion.times import seconds_of
from dovetail.kube.objects.core import Quantity
from dovetail.kube.objects.problems import printable
from dovetail.model import quantity
from dovetail.model.node import CPU, MEMORY, Node

HOSTNAME_LABEL = "kubernetes.io/hostname"
MOST_PERMILLE = 10_000  # ten times what there is
AHEAD_SECONDS = 60.0  # by which a measurement may be in the future: clocks differ
SERIES_PER_PLACE, SPARE_SERIES = 4, 1_000  # of one answer, by nodes and cards: several exporters may tell one value
UNREADABLE_ANSWER = (msgspec.DecodeError, msgspec.ValidationError, RecursionError)

_Read = TypeVar("_Read")


class Kind(Enum):
    """What was measured."""

    CPU = "cpu"
    CPU_DEVIATION = "cpuDeviation"
    MEMORY = "memory"
    MEMORY_DEVIATION = "memoryDeviation"
    CARD = "gpu"
    CARD_MEMORY = "gpuMemory"


class Value(NamedTuple):
    """One measurement."""

    node: str
    card: str  # UUID; "" = of the node
    kind: Kind
    permille: int
    at: float  # seconds since 1970


class Answer(NamedTuple):
    """What one source said: the values, and why others are refused."""

    values: tuple[Value, ...] = ()
    refused: tuple[str, ...] = ()
    unknown: int = 0  # values of nodes and cards that do not exist


class NoAnswer(ValueError):
    """The source's answer cannot be read."""


class Places:
    """Finds nodes and cards by the names that measurements use."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self._hosts = _unique(
            (node.labels[HOSTNAME_LABEL], name) for name, node in nodes.items() if HOSTNAME_LABEL in node.labels
        )
        self._cards = _unique((device.uuid, name) for name, node in nodes.items() for device in node.devices)
        self._count = len(nodes) + sum(len(node.devices) for node in nodes.values())
        # By node and index; of two cards with one index the first counts.
        self._indices: dict[tuple[str, int], str] = {}
        for name, node in nodes.items():
            for device in node.devices:
                self._indices.setdefault((name, device.index), device.uuid)

    @property
    def most_series(self) -> int:
        """How many series of one answer are read."""
        return SPARE_SERIES + SERIES_PER_PLACE * self._count

    def node(self, name: str) -> str:
        """The node of this name, host name, or `host:port`; "" = none."""
        for text in (name, name.rpartition(":")[0]):
            if text in self.nodes:
                return text
            if text in self._hosts:
                return self._hosts[text]
        return ""

    def card(self, uuid: str, node: str, index: str) -> tuple[str, str]:
        """(node, UUID) of a card, by its UUID or by its index on the node; ("", "") = none."""
        if uuid in self._cards:
            return self._cards[uuid], uuid
        found = self._indices.get((node, int(index))) if index.isdecimal() and len(index) < 5 else None
        return ("", "") if found is None else (node, found)


def _unique(claims: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Name -> its node, without names that two nodes claim: one of them would get the other's load."""
    found: dict[str, str] = {}
    twice = {text for text, node in claims if found.setdefault(text, node) != node}
    return {text: node for text, node in found.items() if text not in twice}


# ---- metrics.k8s.io ---------------------------------------------------------------------------------------------


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _NodeMetrics(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()
    timestamp: str = ""
    usage: dict[str, Quantity] = {}


class _NodeMetricsList(msgspec.Struct, frozen=True):
    items: list[_NodeMetrics] = []


def of_metrics_api(body: bytes | bytearray, places: Places, now: float, stale: float) -> Answer:
    """CPU and memory in use, as parts of what is allocatable. Raises NoAnswer."""
    try:
        items = msgspec.json.decode(body, type=_NodeMetricsList).items
    except UNREADABLE_ANSWER as error:
        raise NoAnswer(f"the answer is no NodeMetricsList: {printable(str(error), 200)}") from None
    values: list[Value] = []
    refused: list[str] = []
    unknown = 0
    for item in items[: places.most_series]:
        name = item.metadata.name
        if name not in places.nodes:
            unknown += 1
            continue
        at = seconds_of(item.timestamp)
        for resource, kind, scale in ((CPU, Kind.CPU, 1000), (MEMORY, Kind.MEMORY, 1)):
            if resource not in item.usage:
                continue
            whole = places.nodes[name].allocatable.get(resource, 0)
            try:
                part = quantity.parse(text_of(item.usage[resource]), scale) * 1000 / whole if whole else math.nan
            except (quantity.QuantityError, OverflowError):
                part = math.nan
            why = _untrue(part) or _untimely(at, now, stale)
            if why or at is None:
                refused.append(f"{kind.value} of node {name} {why}")
            else:
                values.append(Value(name, "", kind, round(part), at))
    return Answer(tuple(values), tuple(refused), unknown)


# ---- Prometheus -------------------------------------------------------------------------------------------------


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "NaN")


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: list[msgspec.Raw] = []  # of _Series: those beyond the bound are not read


class _PrometheusAnswer(msgspec.Struct, frozen=True):
    status: str = ""
    data: _Data = _Data()


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a series, the first that is there counts: which node, which card, which index on its node."""

    node: tuple[str, ...] = ("Hostname", "node", "nodeid", "kubernetes_node", "instance")
    card: tuple[str, ...] = ("UUID", "deviceuuid", "uuid")
    index: tuple[str, ...] = ("gpu", "deviceidx")


SERIES_LABELS = Labels()


def of_prometheus(
    body: bytes | bytearray, kind: Kind, labels: Labels, places: Places, now: float, stale: float
) -> Answer:
    """The values of one query, which are per cent. Raises NoAnswer."""
    found, most = _vector(body), places.most_series
    values: list[Value] = []
    refused: list[str] = []
    unknown = 0
    if len(found) > most:
        refused.append(f"{kind.value} has {len(found):,} series, of which {most:,} are read; write a narrower query")
    for raw in found[:most]:
        series = _decoded(raw, _Series)
        node = places.node(_first(series.metric, labels.node))
        card = ""
        if kind in (Kind.CARD, Kind.CARD_MEMORY):
            node, card = places.card(_first(series.metric, labels.card), node, _first(series.metric, labels.index))
        if not node:
            unknown += 1
            continue
        at, part = series.value[0], _number(series.value[1]) * 10
        if why := _untrue(part) or _untimely(at, now, stale):
            refused.append(f"{kind.value} of {f'card {card} of ' if card else ''}node {node} {why}")
        else:
            values.append(Value(node, card, kind, round(part), at))
    return Answer(tuple(values), tuple(refused), unknown)


def _vector(body: bytes | bytearray) -> list[msgspec.Raw]:
    """The series of an answer, not yet read. Raises NoAnswer."""
    read = _decoded(body, _PrometheusAnswer)
    if read.status != "success" or read.data.result_type != "vector":
        said = read.data.result_type or read.status or "nothing"
        raise NoAnswer(
            f"the answer is {printable(said, 40)}, not a vector; write a query that gives one value a series"
        )
    return read.data.result


def _decoded(body: bytes | bytearray | msgspec.Raw, what: type[_Read]) -> _Read:
    try:
        return msgspec.json.decode(body, type=what)
    except UNREADABLE_ANSWER as error:
        raise NoAnswer(f"the answer is no vector: {printable(str(error), 200)}") from None


def _first(metric: Mapping[str, str], labels: Sequence[str]) -> str:
    return next((metric[label] for label in labels if metric.get(label)), "")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _untrue(permille: float) -> str:
    """Why the value cannot be true; "" = it can."""
    if math.isnan(permille):
        return "is no number"
    if permille < 0:
        return f"is negative ({_percent(permille)})"
    return f"is {_percent(permille)}, more than ten times what there is" if permille > MOST_PERMILLE else ""


def _percent(permille: float) -> str:
    return f"{permille / 10:,.2f}".rstrip("0").rstrip(".") + " %"


def _untimely(at: float | None, now: float, stale: float) -> str:
    if at is None:
        return "has no time"
    if at > now + AHEAD_SECONDS:
        return f"is {at - now:.0f} s in the future"
    return f"is {now - at:.0f} s old" if now - at > stale else ""


def spread_of(parts: Iterable[int]) -> tuple[int, int]:
    """Mean and standard deviation of a few measurements, rounded to whole per mille."""
    given = list(parts)
    mean = math.fsum(given) / len(given)
    return round(mean), round(math.sqrt(math.fsum((one - mean) ** 2 for one in given) / len(given)))
