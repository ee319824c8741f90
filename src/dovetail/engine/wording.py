"""Resources and amounts in words: one way of saying them for verdicts, quotas and suggestions."""

from __future__ import annotations

from dovetail.model.node import CPU, MEMORY, PODS, STORAGE

_TITLES = {CPU: "CPU", MEMORY: "memory", STORAGE: "ephemeral storage", PODS: "pod slots"}


def resource_title(name: str) -> str:
    return _TITLES.get(name, name)


def unit_of(name: str) -> int:
    """How much of a resource people count as one: MiB of what is kept in bytes."""
    return 2**20 if name in (MEMORY, STORAGE) else 1


def amount_of(name: str, amount: int) -> str:
    """`500m`, `1,024 MiB` (rounded up), `2`."""
    if name == CPU:
        return f"{amount:,}m"
    if name in (MEMORY, STORAGE):
        return f"{-(-amount // unit_of(name)):,} MiB"
    return f"{amount:,}"
