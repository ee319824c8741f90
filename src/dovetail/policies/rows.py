"""What a policy may read: the ledger's rows and the interned requests, as named tuples of integer arrays.

Policies are plain Python that numba can compile, so everything here is an array or a scalar. A row is a node, a column
is a card. `wants` has one line per distinct request ("shape"), `ask` one line per container and vendor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

# Columns of `cap`, `used` and `need`; extended resources follow.
CPU_COLUMN, MEMORY_COLUMN, STORAGE_COLUMN, PODS_COLUMN = 0, 1, 2, 3

# Last axis of `held`, and of `sums`: capacity first, use at +3.
SLOTS, CARD_MEMORY, COMPUTE = 0, 1, 2
IN_USE = 3
SUMS = 6

# Last axis of `gate`: the largest free amounts of the node's cards, and the kinds of card as in `fact`. A node without
# cards refuses nothing here. The lines are short, so that thousands of rows fit into the fastest cache.
MOST_MEMORY_FREE, MOST_COMPUTE_FREE, KINDS_THERE = 0, 1, 2
GATES = 4
NO_GATE, NO_CARDS = 2**62, -1  # no limit; no kinds

# Last axis of `card`; the first three are SLOTS, CARD_MEMORY, COMPUTE: the card's size.
CARD_VENDOR, CARD_KIND, UUID, NUMA, INDEX, FLAGS = 3, 4, 5, 6, 7, 8
CARD_FIELDS = 9
UNHEALTHY, CORDONED, QUARANTINED, MIG_CARD = 1, 2, 4, 8

# Last axis of `spec`: published data of the card's model; 0 = unknown.
BANDWIDTH, CLOCK, CORES, POWER = range(4)
SPECS = 4

# Last axis of `free`.
FREE_COMPUTE, FREE_MEMORY = 0, 1
UNUSABLE = -1  # less than any request

# Last axis of `fact`. KIND_BITS has a bit for each kind of card of the node; kinds beyond the 62nd share the last bit.
# HARDWARE is equal for nodes that differ only in names: idle ones have the same score in a joint policy.
CARDS, NODE_FLAGS, KIND_BITS, HARDWARE = 0, 1, 2, 3
FACTS = 4
LAST_KIND_BIT = 62
ACTIVE, STOCK, MIG_NODE, UNSETTLED = 1, 2, 4, 8
SINGLE_NUMA, ONE_NUMA_PER_POD = 16, 32  # cards of a container, or of all containers, are on one NUMA node

# Last axis of `scored`: what pods ask for with Kubernetes' defaults, and the CPU that they are expected to use.
EXPECTED_CPU = 2
SCORED = 3

# Last axis of `signal` and of `card_signal`: measured load in per mille, mean and standard deviation; of the network
# in kbit/s.
CPU_LOAD, CPU_LOAD_DEVIATION, MEMORY_LOAD, MEMORY_LOAD_DEVIATION, DISK_LOAD, NETWORK_LOAD, NETWORK_CAPACITY = range(7)
SIGNALS = 7
CARD_LOAD, CARD_MEMORY_LOAD, CARD_LOAD_DEVIATION, CARD_MEMORY_LOAD_DEVIATION = range(4)
CARD_SIGNALS = 4

# Last axis of `shown`: what pods were expected to use when the measurement began. What came later, it does not show.
SHOWN_CPU, SHOWN_COMPUTE, SHOWN_CARD_MEMORY = range(3)
SHOWN = 3
NOT_MEASURED = -1
LOADS, CARD_LOADS, NETWORK_LOADS = 1, 2, 4  # sorts of measurement, as bits: CPU or memory, cards, network

# Last axis of `shape`.
FIRST_ASK, LAST_ASK, OWNER, WEIGHT_SLOTS, WEIGHT_COMPUTE, WEIGHT_MEMORY, SIZE, LAST_NEED, NETWORK_NEED = range(9)
SHAPE_FIELDS = 9  # LAST_NEED: one past the last resource asked for; NETWORK_NEED: kbit/s

# Size classes of pods, by the cards they ask for: in `shape`, and the last axis of `hosts`.
NO_CARD, PART_OF_A_CARD, ONE_CARD, TWO_CARDS, FOUR_CARDS, MORE_CARDS = range(6)
SIZE_CLASSES = 6

# Last axis of `ask`.
ASK_CONTAINER, ASK_KIND, ASK_VENDOR, ASK_COUNT, ASK_MEMORY, ASK_PERCENT, ASK_COMPUTE, ASK_RULE, ASK_WHOLE = range(9)
ASK_IDLE = 9  # 1: only cards that no pod uses
ASK_FIELDS = 10
NO_PERCENT = -1

# Last axis of `rule`: ranges in `uuids`, whether the cards must share a NUMA node, and the kinds accepted as bits.
USE_FROM, USE_TO, NOUSE_FROM, NOUSE_TO, NUMA_BIND, ACCEPTED_BITS = range(6)
RULE_FIELDS = 6

# A joint policy's score for a node on which the pod should rather wait; lower than any other score.
POSTPONED = -1e300

# First element of a node policy's `args`: the pod's draw, for policies with random numbers. Arguments follow.
DRAW = 0


class Rows(NamedTuple):
    """The cluster, one row per node."""

    cap: Ints  # [node, resource]
    used: Ints  # [node, resource]
    scored: Ints  # [node, SCORED]: cpu and memory in use, with Kubernetes' defaults; expected CPU in milli
    card: Ints  # [node, card, CARD_FIELDS]
    spec: Ints  # [node, card, SPECS]
    held: Ints  # [node, card, 3]: slots, memory, compute in use
    sums: Ints  # [node, SUMS]: over its cards, capacity and use
    gate: Ints  # [node, GATES]: refuses most requests without a look at any card
    free: Ints  # [node, card, 2]: compute and memory left; UNUSABLE if the card takes no pod
    left: Ints  # [node, card]: the smaller of the two, in milli of the card
    hosts: Ints  # [node, SIZE_CLASSES]: pods there, by size
    fact: Ints  # [node, FACTS]
    rank: Ints  # [node]: place in the order of names
    link: Ints  # [node, card, card]: pair score, of the first cards only; `link_between` (cards.py) reads it
    peers: Ints  # [owner, node]: pods of that owner there
    enforced: Ints  # [resource]: 0 if the cards decide, not the count
    signal: Ints  # [node, SIGNALS]; only for policies with `reads_signals`
    card_signal: Ints  # [node, card, CARD_SIGNALS]; the same
    shown: Ints  # [node, SHOWN]; the same
    outlook: Ints  # the expected workload, as tables (policies/outlook.py); only for joint policies


class Wants(NamedTuple):
    """The distinct requests."""

    need: Ints  # [shape, resource]
    scored: Ints  # [shape, SCORED]
    shape: Ints  # [shape, SHAPE_FIELDS]
    ask: Ints  # [ask, ASK_FIELDS]
    rule: Ints  # [rule, RULE_FIELDS]
    kind_ok: Bytes  # [rule, kind of card]: 1 if type and mode are accepted
    uuids: Ints  # flat lists of UUID ids


class Card(NamedTuple):
    """One card and one ask for it, the input of a device policy."""

    ordinal: int  # the card's index on its node
    numa: int
    slots: int
    memory: int
    compute: int
    slots_used: int
    memory_used: int
    compute_used: int
    ask_memory: int
    ask_compute: int
    weight_slots: int
    weight_compute: int
    weight_memory: int
    draw: int
    load: int = NOT_MEASURED  # in per mille; NOT_MEASURED unless the policy has `reads_signals`
    memory_load: int = NOT_MEASURED


NodeScore = Callable[[Rows, int, Wants, int, Ints], float]
CardKey = Callable[[Card], float]
# rows, the nodes that fit, by name, how many, wants, shape, arguments, their scores: overwritten
Normalise = Callable[[Rows, Ints, int, Wants, int, Ints, Floats], None]
SetChooser = Callable[[Rows, int, Wants, int, int, Ints, Ints, int, Ints, Ints], None]
# rows, node, wants, shape, ask or -1, milli left per card, the node's worth, cards that fit, how many, cards chosen
Offer = Callable[[Rows, int, Wants, int, int, Ints, float, Ints, int, Ints], float]
Worth = Callable[[Rows, int], float]
ColumnOf = Callable[[str], int]  # resource name -> column


def no_arguments(arguments: Mapping[str, Any], column: ColumnOf) -> list[int]:
    for name in sorted(arguments):  # the caller puts the path to the arguments before this text
        raise ValueError(f"{name}: no such argument; the policy takes none")
    return []


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """Ranks nodes. `score` is in the policy's unit and compared only within one profile.

    A joint policy has an `offer` instead: one call that chooses the cards and scores the node with them. `worth` is the
    part of the score that does not depend on the request; it is kept until the node changes.

    A `score` reads only its own row. A policy that compares all nodes that fit does so in `normalise`, which may read
    the rows of these nodes, and costs a look at all nodes for each decision.
    """

    name: str
    sentence: str
    score: NodeScore | None = None
    offer: Offer | None = None
    worth: Worth | None = None
    normalise: Normalise | None = None  # makes the final scores of all nodes that fit; the highest wins
    keeps_order: bool = False  # `normalise` only rescales: scores are compared without it, and it is for display
    reads_values: bool = False  # reads the tables of policies/values.py
    reads_signals: bool = False  # reads `signal` or `card_signal`: a measurement makes new scores
    needs: int = 0  # the sort of measurement without which it says nothing: LOADS, CARD_LOADS or NETWORK_LOADS
    fallback: str = ""  # the node policy to use while no node has such a measurement
    lowest_wins: bool = False
    sees_request: bool = True  # reads `wants`; if not, all requests share one set of scores
    counts_owner: bool = False  # reads `peers`
    draws: bool = False  # reads args[DRAW]: scores differ by pod and are not kept
    in_points: bool = False  # scores are points of kube-scheduler's plugins: added to preferences unchanged
    arguments: Callable[[Mapping[str, Any], ColumnOf], list[int]] = field(default=no_arguments)


@dataclass(frozen=True, slots=True)
class DevicePolicy:
    """Ranks the cards of a node. The highest key is taken first; without a key it is a filter or a chooser."""

    name: str
    sentence: str
    key: CardKey | None = None
    alone_key: CardKey | None = None  # used if the policy is not part of a chain and has no `key`
    idle_only: bool = False
    guaranteed_idle_only: bool = False  # the same, for pods of Kubernetes' class Guaranteed
    draws: bool = False  # reads the pod's draw: the choice differs by pod
    reads_signals: bool = False  # reads `load` or `memory_load` of the card
    lowest_numa_first: bool = False  # with numa-bind, if the policy is not part of a chain
    is_chain: bool = False  # HAMi sorts it by the rules of a chain even if it is alone
    choose: SetChooser | None = None  # chooses the set among all cards that fit
