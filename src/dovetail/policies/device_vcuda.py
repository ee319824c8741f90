"""The cards that gpu-manager chooses: share for a part of a card, fragment for one card, link for several.

Share mode (pkg/algorithm/nvidia/share.go): the card with the fewest free cores that fits, then the least free memory in
blocks of 256 MiB, then the first. gpu-manager refuses a part of a card on any other card.
"""

from __future__ import annotations

from dovetail.model.units import WHOLE_CARD
from dovetail.policies.device_fragment import choose_fragment
from dovetail.policies.device_link import choose_linked
from dovetail.policies.rows import ASK_COMPUTE, ASK_COUNT, Card, DevicePolicy, Ints, Rows, Wants

BLOCK_MIB = 256
MOST_BLOCKS = 1 << 23  # 2 TiB: together with the index, a key stays exact as a float
CARDS_OF_A_NODE = 1024


def share_key(card: Card) -> float:
    cores = max(0, card.compute - card.compute_used)
    blocks = min(max(0, card.memory - card.memory_used) // BLOCK_MIB, MOST_BLOCKS - 1)
    return -(float(cores) * MOST_BLOCKS + float(blocks)) * CARDS_OF_A_NODE - float(card.ordinal)


def choose_as_gpu_manager(
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
    """Write as many of the first `fits` entries of `fitting` into `chosen` as the pod asks for."""
    if wants.ask[a, ASK_COUNT] > 1:
        choose_linked(rows, i, wants, s, a, held, fitting, fits, chosen, room)
    elif wants.ask[a, ASK_COMPUTE] >= WHOLE_CARD:
        choose_fragment(rows, i, wants, s, a, held, fitting, fits, chosen, room)
    else:
        chosen[0] = fitting[0]


POLICY = DevicePolicy(
    "vcuda",
    "As gpu-manager: the fullest card for a part of a card, fragment for one card, link for several.",
    alone_key=share_key,
    choose=choose_as_gpu_manager,
)
