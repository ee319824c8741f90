"""Everything that the kernel reads and writes, as nested named tuples of arrays.

Only kernel functions (engine/kernel/*.py) write here; engine/ledger/ledger.py owns the arrays and grows them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.policies.rows import Bytes, Floats, Ints, Rows, Wants

Int = int | np.int64

# heads: counters and list heads
MOVES, FREE_POD, FREE_PODS, FREE_ENTRY, FREE_ENTRIES, JOURNAL_DEPTH, JOURNAL_LENGTH = range(7)
HEADS = 7

# Last axis of `pod`.
POD_ROW, POD_SHAPE, POD_OWNER, POD_ENTRY, POD_STATE = range(5)
POD_FIELDS = 5
FREE, RESERVED, ALLOCATED, LEAVING = 0, 1, 2, 3

# Last axis of `entry`: one card given to one container; entries of a pod are chained.
ENTRY_NEXT, ENTRY_CONTAINER, ENTRY_KIND, ENTRY_CARD, ENTRY_MEMORY, ENTRY_COMPUTE = range(6)
ENTRY_FIELDS = 6
NONE = -1

# In `masks`, beside 0 and the reasons: the node is inactive.
INACTIVE = 255

# Last axis of `Journal.line`.
LINE_ROW, LINE_POD, LINE_STATE, LINE_PEERS, LINE_PEER_ROW = range(5)
LINE_FIELDS = 5

# Style of a profile's device chain, as data.
STYLE_ALONE, STYLE_NUMA_SIGN, STYLE_SET, STYLE_IDLE_ONLY, STYLE_SIGN = range(5)
STYLE_FIELDS = 5

# Last axis of `Batch.results`.
RESULT_ROW, RESULT_REASON, RESULT_POD = range(3)

# Last axis of `Batch.taken`.
TAKEN_CONTAINER, TAKEN_CARD, TAKEN_MEMORY, TAKEN_COMPUTE = range(4)

OWN = 0  # the line of `masks` written for one decision: for pods whose rules depend on other pods
FRESH = 0  # line of scores and candidates of requests for which nothing can be kept
BLOCK = 16  # rows in a block, blocks in a quarter
UNLIMITED = 2**60  # more than any quota or card


class Book(NamedTuple):
    """What each pod holds."""

    pod: Ints  # [pod slot, POD_FIELDS]
    entry: Ints  # [entry slot, ENTRY_FIELDS]
    peer_row: Ints  # [owner]: its line in rows.peers, or NONE before the first call for it


class Vectors(NamedTuple):
    """Scores and candidates kept between decisions. Rows are chained in the order of their last change.

    So an update looks only at rows that changed. Scores have their own number (`u`), as requests may share them; the
    rest is per request (`v`).
    """

    score: Floats  # [u, row]
    scored: Ints  # [u]: the number of moves when they were last updated; NONE = never
    refused: Bytes  # [v, row]: 0 = a candidate, else the reason
    best: Ints  # [v, block]: its best row, or NONE
    high: Floats  # [v, block]: that row's score
    leader: Ints  # [v, quarter]: its best block
    most: Floats  # [v, quarter]: that block's best score
    seen: Ints  # [v]: as `scored`
    tally: Ints  # [v, code]: rows refused for this reason, counted from the first call for it
    tallied: Ints  # [v]: 1 if `tally` is counted
    stamp: Ints  # [row]: the number of its last move; NONE = it never moved and is not in the chain
    older: Ints  # [row + 1]: the row that moved before it; the last entry is both ends of the chain
    newer: Ints  # [row + 1]
    measured: Ints  # [row]: as `stamp`, for rows whose measured load changed: a separate chain
    measured_older: Ints  # [row + 1]: as `older`
    measured_newer: Ints  # [row + 1]
    spoilt: Ints  # working space: blocks whose best row got worse
    stale: Ints  # working space: [quarter], 1 if its leader must be found again
    example: Ints  # working space: [kind of hardware], an idle node of this kind
    candidates: Ints  # working space: [n], rows that fit, by name
    points: Floats  # working space: [n], their scores


class Journal(NamedTuple):
    """Old rows, kept while a transaction is open: undoing copies them back."""

    line: Ints  # [entry, LINE_FIELDS]
    used: Ints
    scored: Ints
    held: Ints
    sums: Ints
    hosts: Ints


class Scratch(NamedTuple):
    """Working space for one node's cards."""

    run: Ints  # [card, 3]: use with the containers placed so far
    trial: Ints  # [card, 3]: the same, for an init container
    peak: Ints  # [card, 3]
    left: Ints  # [vendor, 2]: quota of memory and compute
    order: Ints  # [card]
    fitting: Ints  # [card]
    chosen: Ints  # [card]
    best: Ints  # [card]
    keys: Floats  # [card, KEYS]
    picked: Ints  # [n, 3]: ask, card, memory
    room: Ints  # [2, card + 1]: for policies that choose a set
    zone: Ints  # [1]: the NUMA node to which cards are limited, or NONE


KEYS = 7


class State(NamedTuple):
    rows: Rows
    wants: Wants
    masks: Bytes  # [static class or OWN, row]: 0, or the reason
    book: Book
    vectors: Vectors
    journal: Journal
    scratch: Scratch
    heads: Ints
    size: int  # rows in use, active or not


class Batch(NamedTuple):
    """Pods to place in this order, in groups, all of one profile."""

    shape: Ints
    mask: Ints  # static class or OWN
    scores: Ints  # which kept scores; FRESH = none are kept
    vector: Ints  # which kept candidates; FRESH = none are kept
    owner: Ints
    draw: Ints
    group_end: Ints  # [group]: one past its last pod
    group_need: Ints  # [group]: how many must be placed
    args: Ints  # the node policy's arguments, args[0] free for the draw
    style: Ints
    quota: Ints  # [vendor, 2]
    results: Ints  # [pod, 3]: written by the kernel
    taken_from: Ints  # [pod]: position of its cards in `taken`
    taken: Ints  # [card given, 4]: written by the kernel
