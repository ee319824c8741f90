"""Baseline: any node that fits, drawn from the seed and the pod's name, so that the draw can be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.policies.dice import mix
from dovetail.policies.kube_resources import refuse_unknown
from dovetail.policies.rows import DRAW, ColumnOf, Ints, NodePolicy, Rows, Wants

SEED = 1


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return float(mix(mix(args[DRAW], args[SEED]), rows.rank[i]))


def arguments(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    refuse_unknown(given, ("seed",))
    seed = given.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise ValueError(f"seed: expected an integer from 0 to 2147483647, got {seed!r}")
    return [seed]


POLICY = NodePolicy(
    "random", "Baseline: any node that fits, drawn by seed and pod name.", score, draws=True, arguments=arguments
)
