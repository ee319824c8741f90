"""The best-connected set of cards (HAMi): highest sum of pair scores; a single card is the worst-connected one.

Among all cards that fit, in spread order; the first best set wins. A lone card is taken where it is missed least.
"""

from __future__ import annotations

from dovetail.policies import device_spread
from dovetail.policies.rows import ASK_COUNT, DevicePolicy, Ints, Rows, Wants


def choose(
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
    """Write as many of the first `fits` entries of `fitting` into `chosen` as are asked for, in their order."""
    count = wants.ask[a, ASK_COUNT]
    if count == 1:
        least, at = -1, 0
        for x in range(fits):
            total = 0
            for b in range(fits):
                total += rows.link[i, fitting[x], fitting[b]]
            if least < 0 or total < least:
                least, at = total, x
        chosen[0] = fitting[at]
        return
    # Walk all subsets in lexicographic order, keeping the sum of pairs of each prefix.
    pick, sums = room[0], room[1]
    sums[0] = 0
    best, depth, start = -1, 0, 0
    while True:
        if depth == count:
            if sums[depth] > best:
                best = sums[depth]
                for n in range(count):
                    chosen[n] = fitting[pick[n]]
            depth -= 1
            start = pick[depth] + 1
        elif start <= fits - (count - depth):
            gain = 0
            for n in range(depth):
                gain += rows.link[i, fitting[pick[n]], fitting[start]]
            pick[depth] = start
            sums[depth + 1] = sums[depth] + gain
            depth += 1
            start += 1
        else:
            depth -= 1
            if depth < 0:
                return
            start = pick[depth] + 1


POLICY = DevicePolicy(
    "topology-aware",
    "The best-connected set of cards; a single card where the links are missed least (HAMi).",
    alone_key=device_spread.key,
    choose=choose,
)
