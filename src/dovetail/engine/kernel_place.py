"""Where: keep scores per request, re-score only rows that moved, find the best without scanning, choose cards, book.

`node_score` is put in per profile by engine/build.py. Scores come before fit: a row is checked for fit only when it
reaches the top of its tree, so most rows that move are never looked at card by card.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernel_book import add_entry, charge, new_pod, roll_back
from dovetail.engine.kernel_choose import choose_all, node_refusal
from dovetail.engine.state import (
    FITS,
    JOURNAL_DEPTH,
    JOURNAL_LENGTH,
    LOG_LENGTH,
    NONE,
    RESERVED,
    RESULT_POD,
    RESULT_REASON,
    RESULT_ROW,
    STYLE_SIGN,
    UNKNOWN,
    Batch,
    Floats,
    Int,
    State,
    Winners,
)
from dovetail.model.reason import Reason
from dovetail.policies.rows import (
    ACTIVE,
    ASK_COMPUTE,
    ASK_CONTAINER,
    ASK_KIND,
    DRAW,
    NODE_FLAGS,
    RANK,
    Ints,
    Rows,
    Wants,
)

_GROUP_NOT_PLACED, _NO_NODES, _UNREGISTERED = (
    int(Reason.GROUP_NOT_PLACED),
    int(Reason.NO_NODES),
    int(Reason.UNREGISTERED),
)
NEVER = -np.inf


def node_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return 0.0


def better(score: Floats, fact: Ints, v: int, a: Int, b: Int) -> Int:
    """The winner of two rows: higher score, then smaller name. NONE is no row."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    x, y = score[v, a], score[v, b]
    if x != y:
        return a if x > y else b
    return a if fact[a, RANK] < fact[b, RANK] else b


def score_row(state: State, batch: Batch, k: int, v: int, i: int) -> None:
    """Score one row; whether it fits is asked only when it comes first."""
    vectors = state.vectors
    refused = state.masks[batch.mask[k], i]
    if state.rows.fact[i, NODE_FLAGS] & ACTIVE == 0 or refused != 0:
        vectors.score[v, i] = NEVER
        vectors.verdict[v, i] = FITS + refused
    else:
        vectors.score[v, i] = batch.style[STYLE_SIGN] * node_score(
            state.rows, i, state.wants, batch.shape[k], batch.args
        )
        vectors.verdict[v, i] = UNKNOWN


def climb(tree: Winners, score: Floats, fact: Ints, v: int, i: int) -> None:
    """Row i has a new score: replay its matches up the tree, and stop where nothing can change any more."""
    at = (tree.shape[1] // 2 + i) // 2
    while at >= 1:
        winner = better(score, fact, v, np.int64(tree[v, 2 * at]), np.int64(tree[v, 2 * at + 1]))
        if winner == tree[v, at] and winner != i:
            return
        tree[v, at] = winner
        at //= 2


def score_all(state: State, batch: Batch, k: int, v: int) -> None:
    tree, score, fact = state.vectors.tree, state.vectors.score, state.rows.fact
    leaves = tree.shape[1] // 2
    for i in range(state.size):
        score_row(state, batch, k, v, i)
    for i in range(leaves):
        tree[v, leaves + i] = i if i < state.size else NONE
    for at in range(leaves - 1, 0, -1):
        tree[v, at] = better(score, fact, v, np.int64(tree[v, 2 * at]), np.int64(tree[v, 2 * at + 1]))


def catch_up(state: State, batch: Batch, k: int, v: int) -> None:
    """Bring vector v up to date with the log. Vector 0 is for requests whose scores cannot be kept."""
    vectors, length = state.vectors, state.heads[LOG_LENGTH]
    seen = vectors.seen[v]
    behind = length - seen
    if v == 0 or seen == NONE or behind > len(vectors.log) or behind > 2 * state.size:
        score_all(state, batch, k, v)
    else:
        for n in range(seen, length):
            i = int(vectors.log[n % len(vectors.log)])
            if vectors.stamp[i] == n:  # its last move
                score_row(state, batch, k, v, i)
                climb(vectors.tree, vectors.score, state.rows.fact, v, i)
    vectors.seen[v] = length


def best_row(state: State, batch: Batch, k: int, v: int) -> int:
    """The best row that fits, or NONE."""
    vectors, s = state.vectors, batch.shape[k]
    while True:
        top = int(np.int64(vectors.tree[v, 1]))
        if top == NONE or vectors.score[v, top] == NEVER:
            return NONE
        if vectors.verdict[v, top] == FITS:
            return top
        refused = node_refusal(state.rows, state.wants, top, s, batch.style, batch.quota, batch.draw[k], state.scratch)
        vectors.verdict[v, top] = FITS + refused
        if refused == 0:
            return top
        vectors.score[v, top] = NEVER
        climb(vectors.tree, vectors.score, state.rows.fact, v, top)


def commonest_refusal(state: State, v: int) -> int:
    """What most nodes said; the smallest code on ties."""
    counts = state.scratch.counts
    for code in range(256):
        counts[code] = 0
    for i in range(state.size):
        if state.rows.fact[i, NODE_FLAGS] & ACTIVE:
            counts[state.vectors.verdict[v, i]] += 1
    best = FITS
    for code in range(FITS + 1, 256):
        if counts[code] > counts[best]:
            best = code
    return best - FITS if best > FITS else _NO_NODES


def book_pod(state: State, batch: Batch, k: int, i: int) -> int:
    """Choose the cards on the winning node and book them; returns the pod's slot."""
    wants, work = state.wants, state.scratch
    picked = choose_all(state.rows, wants, i, batch.shape[k], batch.style, batch.quota, batch.draw[k], work)
    slot = new_pod(state, i, batch.shape[k], batch.owner[k], RESERVED)
    last: Int = np.int64(NONE)
    for n in range(picked):
        a = work.picked[n, 0]
        last = add_entry(
            state,
            slot,
            last,
            wants.ask[a, ASK_CONTAINER],
            wants.ask[a, ASK_KIND],
            work.picked[n, 1],
            work.picked[n, 2],
            wants.ask[a, ASK_COMPUTE],
        )
    charge(state, slot, 1)
    return slot


def place_one(state: State, batch: Batch, k: int) -> bool:
    results, v = batch.results, batch.vector[k]
    batch.args[DRAW] = batch.draw[k]
    catch_up(state, batch, k, v)
    i = best_row(state, batch, k, v)
    if i == NONE:
        results[k, RESULT_ROW], results[k, RESULT_POD] = NONE, NONE
        results[k, RESULT_REASON] = commonest_refusal(state, v)
        return False
    results[k, RESULT_ROW], results[k, RESULT_REASON] = i, 0
    results[k, RESULT_POD] = book_pod(state, batch, k, i)
    return True


def place_groups(state: State, batch: Batch) -> None:
    """Place groups one after another, each with at least as many pods as it needs or not at all."""
    results, start = batch.results, 0
    for g in range(len(batch.group_end)):
        end, need = batch.group_end[g], batch.group_need[g]
        mark = state.heads[JOURNAL_LENGTH]
        together = end - start > 1
        if together:
            state.heads[JOURNAL_DEPTH] += 1
        placed = 0
        for k in range(start, end):
            if place_one(state, batch, k):
                placed += 1
        if together:
            if placed < need:
                roll_back(state, mark)
                for k in range(start, end):
                    if results[k, RESULT_ROW] != NONE:
                        results[k, RESULT_ROW], results[k, RESULT_POD] = NONE, NONE
                        results[k, RESULT_REASON] = _GROUP_NOT_PLACED
            state.heads[JOURNAL_DEPTH] -= 1
            if state.heads[JOURNAL_DEPTH] == 0:
                state.heads[JOURNAL_LENGTH] = 0
        start = end
