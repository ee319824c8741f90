"""The GPUs of a cluster in few bytes: names once per cluster, one byte per GPU and policy."""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dovetail.model.units import WHOLE_CARD
from dovetail.sim.results import NodeMap

# keeps 0 and WHOLE_CARD exact: an empty GPU stays empty, a full one full
COARSE = [0, 1, *range(4, WHOLE_CARD - 3, 4), WHOLE_CARD - 1, WHOLE_CARD]
BANDS = ("empty", "below a quarter", "below half", "below three quarters", "not full", "full")


def cluster(nodes: Sequence[NodeMap]) -> dict[str, Any]:
    """The part of the map that all runs on one cluster share."""
    models = sorted({node.model for node in nodes})
    return {
        "models": models,
        "names": [node.name for node in nodes],
        "model_of": [models.index(node.model) for node in nodes],
        "gpus_of": [len(node.gpus) for node in nodes],
    }


def cells(nodes: Sequence[NodeMap]) -> dict[str, Any]:
    """For each GPU, in the order of the nodes, an index into `levels` (milli). Exact for up to 256 distinct values."""
    milli = [given for node in nodes for given in node.gpus]
    distinct = sorted(set(milli))
    levels = distinct if len(distinct) <= 256 else COARSE
    indices = bytes(min(bisect_left(levels, given), len(levels) - 1) for given in milli)
    return {"levels": levels, "gpus": base64.b64encode(indices).decode("ascii")}


def band(milli: int) -> int:
    """The index in BANDS of a GPU with so many milli taken."""
    return 0 if milli <= 0 else 5 if milli >= WHOLE_CARD else 1 + 4 * milli // WHOLE_CARD


def by_band(nodes: Sequence[NodeMap]) -> dict[str, list[int]]:
    """model -> number of its GPUs in each band."""
    counts: dict[str, Counter[int]] = {}
    for node in filter(lambda one: one.gpus, nodes):
        counts.setdefault(node.model, Counter()).update(band(given) for given in node.gpus)
    return {model: [found[at] for at in range(len(BANDS))] for model, found in sorted(counts.items())}
