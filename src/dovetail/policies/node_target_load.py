"""Trimaran's TargetLoadPacking: pack nodes up to a target load, and spread beyond it; over CPU, or over GPUs.

Source: scheduler-plugins, pkg/trimaran/targetloadpacking. The score falls from 100 at the target to the target's own
value just above it, so that no node is preferred which the pod would push over the target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dovetail.policies.kube_resources import refuse_unknown
from dovetail.policies.measured import cards_with, cpu_with
from dovetail.policies.rows import (
    CARD_LOAD,
    CARD_LOADS,
    CARD_MEMORY,
    CARD_MEMORY_LOAD,
    COMPUTE,
    LOADS,
    ColumnOf,
    Ints,
    NodePolicy,
    Rows,
    Wants,
)

TARGET = 1  # in args, in per cent
DEFAULT_TARGET = 40
ROUNDING = 1e-9  # per cent: 0.1 + 0.2 is more than 0.3, and a node at its target is not above it


def packed(part: float, target: float) -> float:
    """0 to 100 for a load (1.0 = full): rises to 100 at the target, falls from the target to 0 at full load."""
    percent = 100.0 * part
    if percent < 0.0 or percent > 100.0 + ROUNDING:  # not measured, or too much
        return 0.0
    if percent <= target + ROUNDING:
        return math.floor((100.0 - target) * percent / target + target + 0.5)
    return math.floor(target * (100.0 - percent) / (100.0 - target) + 0.5)


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return packed(cpu_with(rows, i, wants, s), float(args[TARGET]))


def gpu_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    """By the scarcer of GPU compute and GPU memory."""
    compute = cards_with(rows, i, wants, s, CARD_LOAD, COMPUTE)
    memory = cards_with(rows, i, wants, s, CARD_MEMORY_LOAD, CARD_MEMORY)
    return packed(max(compute, memory), float(args[TARGET]))


def arguments(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    refuse_unknown(given, ("target",))
    target = given.get("target", DEFAULT_TARGET)
    if isinstance(target, bool) or not isinstance(target, int) or not 1 <= target <= 99:
        raise ValueError(f"target: expected per cent from 1 to 99, got {target!r}")
    return [target]


POLICY = NodePolicy(
    "target-load",
    "Packs nodes up to a measured CPU load (40 %), and spreads beyond it.",
    score,
    reads_signals=True,
    needs=LOADS,
    fallback="least-allocated",
    arguments=arguments,
)
GPU_TARGET_LOAD = NodePolicy(
    "gpu-target-load",
    "Packs nodes up to a measured GPU load (40 %), and spreads beyond it.",
    gpu_score,
    reads_signals=True,
    needs=CARD_LOADS,
    fallback="spread",
    arguments=arguments,
)
