"""The node whose free resources match the request least: Tetris' dot product, as in the FGD paper."""

from __future__ import annotations

from dovetail.policies.idle import LARGEST_CPU, LARGEST_GPU, cpu_left, gpu_asked, gpu_left
from dovetail.policies.rows import CPU_COLUMN, Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    cpu = cpu_left(rows, i) / LARGEST_CPU * (wants.need[s, CPU_COLUMN] / LARGEST_CPU)
    gpu = gpu_left(rows, i) / LARGEST_GPU * (gpu_asked(rows, i, wants, s) / LARGEST_GPU)
    return float(int(100.0 * (1.0 - 0.5 * (cpu + gpu))))


POLICY = NodePolicy("dot-product", "Where what is left has least in common with what is asked for.", score)
