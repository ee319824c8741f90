"""The partition that leaves the most whole partitions (Koordinator DeviceShare).

Partitions are aligned blocks of 2, 4 and 8 cards in the order of the node, as in Koordinator's table for NVIDIA Hopper
(pkg/scheduler/plugins/deviceshare/allocator_gpu_helper.go): cards 0-1, 2-3, …; 0-3, 4-7; 0-7. Koordinator means to
prefer a higher AllocationScore, and its code sorts the other way; in that table all scores are 1.
"""

from __future__ import annotations

from dovetail.policies.device_link import first_key
from dovetail.policies.rows import ASK_COUNT, CARDS, SLOTS, DevicePolicy, Ints, Rows, Wants
from dovetail.policies.topology_tree import is_of_vendor, mark

LARGEST_PARTITION = 8


def choose_partition(
    rows: Rows,
    i: int,
    wants: Wants,
    s: int,
    a: int,
    held: Ints,
    fitting: Ints,
    fits: int,
    chosen: Ints,
    room: Ints,
) -> None:
    """Write as many of the first `fits` entries of `fitting` into `chosen` as the pod asks for.

    Without a free partition of this size, cards are taken one by one, each where it costs the fewest partitions.
    """
    count, cards, free, idle = wants.ask[a, ASK_COUNT], rows.fact[i, CARDS], room[0], room[1]
    mark(fitting, fits, cards, free)
    for d in range(cards):
        idle[d] = 1 if held[d, SLOTS] == 0 and is_of_vendor(rows, i, wants, a, d) else 0
    start = best_partition(free, idle, cards, count)
    if start >= 0:
        for n in range(count):
            chosen[n] = start + n
        return
    for n in range(count):
        one = best_partition(free, idle, cards, 1)
        chosen[n] = one
        free[one], idle[one] = 0, 0


def best_partition(free: Ints, idle: Ints, cards: int, size: int) -> int:
    """The first card of the free partition of this size that leaves the most whole partitions; -1 if there is none."""
    best, most = -1, -1
    if size > 1 and size != 2 and size != 4 and size != LARGEST_PARTITION:
        return best
    for start in range(0, cards - size + 1, size):
        if not is_whole(free, start, size):
            continue
        left = partitions_left(idle, cards, size, start)
        if left > most:
            best, most = start, left
    return best


def partitions_left(idle: Ints, cards: int, size: int, start: int) -> int:
    """The partitions of this size or larger that stay idle: 10,000 for each of 8 cards, 100 for 4, 1 for 2."""
    total, width = 0, LARGEST_PARTITION
    while width >= max(2, size):
        weight = 10_000 if width == LARGEST_PARTITION else 100 if width == 4 else 1
        for other in range(0, cards - width + 1, width):
            apart = other + width <= start or other >= start + size
            if apart and is_whole(idle, other, width):
                total += weight
        width //= 2
    return total


def is_whole(flags: Ints, start: int, size: int) -> bool:
    there = 0
    for d in range(start, start + size):
        there += flags[d]
    return bool(there == size)


POLICY = DevicePolicy(
    "partition-binpack",
    "The block of 2, 4 or 8 cards that leaves the most whole blocks (Koordinator).",
    alone_key=first_key,
    choose=choose_partition,
)
