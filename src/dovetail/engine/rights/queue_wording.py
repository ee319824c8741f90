"""Refusals of queues in words: `queue team-a: gpus/A100 requested 2, used 3, ceiling 4`."""

from __future__ import annotations

from dovetail.engine.rights.queue_tree import Branch
from dovetail.engine.wording import amount_of
from dovetail.model.rights import GPU_MEMORY, GPUS, gpu_amount
from dovetail.model.units import WHOLE_CARD


def amount_in_queue(resource: str, amount: int) -> str:
    """The amount with its unit: GPUs in cards (`2`, `0.5`), GPU memory in MiB, the rest as in manifests."""
    kind, _ = gpu_amount(resource)
    if kind == GPUS:
        return f"{amount / WHOLE_CARD:,.3f}".rstrip("0").rstrip(".")
    if kind == GPU_MEMORY:
        return f"{amount:,} MiB"
    return f"{amount:,} milli" if kind else amount_of(resource, amount)


def beyond_ceiling(branch: Branch, resource: str, asked: int, ceiling: int) -> str:
    return f"{_asked(branch, resource, asked)}, ceiling {amount_in_queue(resource, ceiling)}"


def beyond_share(branch: Branch, resource: str, asked: int, most: int) -> str:
    guarantee = amount_in_queue(resource, branch.guarantee.get(resource, 0))
    left = amount_in_queue(resource, max(0, most - branch.used[resource]))
    return f"{_asked(branch, resource, asked)}, guarantee {guarantee}; it may have {left} more now"


def _asked(branch: Branch, resource: str, asked: int) -> str:
    used = amount_in_queue(resource, branch.used[resource])
    return f"queue {branch.queue.name}: {resource} requested {amount_in_queue(resource, asked)}, used {used}"
