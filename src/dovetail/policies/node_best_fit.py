"""The node with the least CPU and GPU left afterwards, relative to the largest node (as in the FGD paper)."""

from __future__ import annotations

from dovetail.policies.idle import LARGEST_CPU, LARGEST_GPU, cpu_left, gpu_asked, gpu_left
from dovetail.policies.rows import CPU_COLUMN, Ints, NodePolicy, Rows, Wants


def score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    cpu = (cpu_left(rows, i) - wants.need[s, CPU_COLUMN]) / LARGEST_CPU
    gpu = (gpu_left(rows, i) - gpu_asked(rows, i, wants, s)) / LARGEST_GPU
    return float(int(100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu)))


POLICY = NodePolicy("best-fit", "Where least CPU and GPU is left afterwards.", score)
