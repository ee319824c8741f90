"""Trimaran's LoadVariationRiskBalancing: nodes with low and steady load first; over CPU and memory, or over GPUs.

Source: scheduler-plugins, pkg/trimaran/loadvariationriskbalancing. Unlike upstream, scores are not rounded, and pods
that a measurement does not show yet are added: otherwise all pods between two measurements go to the same node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.policies.kube_resources import refuse_unknown
from dovetail.policies.measured import PER_MILLE, asked_of_cards, mean_of_cards, unseen_cpu, unseen_of_cards
from dovetail.policies.rows import (
    CARD_LOAD,
    CARD_LOAD_DEVIATION,
    CARD_LOADS,
    CARD_MEMORY,
    CARD_MEMORY_LOAD,
    CARD_MEMORY_LOAD_DEVIATION,
    COMPUTE,
    CPU_COLUMN,
    CPU_LOAD,
    CPU_LOAD_DEVIATION,
    LOADS,
    MEMORY_COLUMN,
    MEMORY_LOAD,
    MEMORY_LOAD_DEVIATION,
    ColumnOf,
    Ints,
    NodePolicy,
    Rows,
    Wants,
)

MARGIN, SENSITIVITY = 1, 2  # in args, in per mille
MAX_ARGUMENT = 1000


def steady(mean: float, asked: float, deviation: float, args: Ints) -> float:
    """100 × (1 − risk), with risk = (mean load with the pod + margin × deviation^(1 / sensitivity)) / 2; all parts.

    −1 if nothing is measured.
    """
    if mean < 0.0:
        return -1.0
    load = min(1.0, min(1.0, mean) + asked)
    spread = float(min(1.0, max(0.0, deviation)) ** (PER_MILLE / float(args[SENSITIVITY])))
    return 100.0 * (1.0 - (load + min(1.0, float(args[MARGIN]) / PER_MILLE * spread)) / 2.0)


def worse(one: float, other: float) -> float:
    """The lower score; if only one is known, that one; 0 if none is."""
    return max(0.0, min(one, other) if one >= 0.0 and other >= 0.0 else max(one, other))


def of_node(rows: Rows, i: int, wants: Wants, s: int, args: Ints, column: int, load: int, deviation: int) -> float:
    cap = rows.cap[i, column]
    if cap == 0:
        return -1.0
    mean, spread = rows.signal[i, load] / PER_MILLE, rows.signal[i, deviation] / PER_MILLE
    more = float(wants.need[s, column]) + (unseen_cpu(rows, i) if column == CPU_COLUMN else 0.0)
    return steady(mean, more / float(cap), spread, args)


def of_cards(rows: Rows, i: int, wants: Wants, s: int, args: Ints, size: int, load: int, deviation: int) -> float:
    total = float(rows.sums[i, size])
    if total == 0.0:
        return -1.0
    asked = (asked_of_cards(rows, i, wants, s, size) + unseen_of_cards(rows, i, size)) / total
    return steady(mean_of_cards(rows, i, load, size), asked, mean_of_cards(rows, i, deviation, size), args)


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    cpu = of_node(rows, i, wants, s, args, CPU_COLUMN, CPU_LOAD, CPU_LOAD_DEVIATION)
    return worse(cpu, of_node(rows, i, wants, s, args, MEMORY_COLUMN, MEMORY_LOAD, MEMORY_LOAD_DEVIATION))


def gpu_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    compute = of_cards(rows, i, wants, s, args, COMPUTE, CARD_LOAD, CARD_LOAD_DEVIATION)
    memory = of_cards(rows, i, wants, s, args, CARD_MEMORY, CARD_MEMORY_LOAD, CARD_MEMORY_LOAD_DEVIATION)
    return worse(compute, memory)


def arguments(given: Mapping[str, Any], column: ColumnOf) -> list[int]:
    refuse_unknown(given, ("margin", "sensitivity"))
    flat: list[int] = []
    for name, lowest in (("margin", 0.0), ("sensitivity", 0.001)):
        value = given.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= MAX_ARGUMENT:
            raise ValueError(f"{name}: expected a number from {lowest} to {MAX_ARGUMENT}, got {value!r}")
        flat.append(round(value * PER_MILLE))
    return flat


POLICY = NodePolicy(
    "load-variation",
    "Nodes whose measured CPU and memory load is low and steady first.",
    score,
    reads_signals=True,
    needs=LOADS,
    fallback="least-allocated",
    arguments=arguments,
)
GPU_LOAD_VARIATION = NodePolicy(
    "gpu-load-variation",
    "Nodes whose measured GPU load is low and steady first.",
    gpu_score,
    reads_signals=True,
    needs=CARD_LOADS,
    fallback="spread",
    arguments=arguments,
)
