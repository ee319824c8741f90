"""Where: keep scores per request, re-score only rows that moved, find the best without scanning, choose cards, book.

`node_score` is put in per profile by engine/build.py. Scores come before fit: a row is checked for fit only when it
comes first, so most rows that move are never looked at card by card. Rows stand in blocks of 32 and blocks in quarters
of 32 blocks, each of which remembers its best: a row that moves costs at most one look at its block and its quarter.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernel_book import add_entry, charge, new_pod, roll_back
from dovetail.engine.kernel_choose import choose_all, node_refusal
from dovetail.engine.state import (
    BLOCK,
    INACTIVE,
    JOURNAL_DEPTH,
    JOURNAL_LENGTH,
    LOG_LENGTH,
    NONE,
    RESERVED,
    RESULT_POD,
    RESULT_REASON,
    RESULT_ROW,
    STYLE_SIGN,
    TAKEN_CARD,
    TAKEN_COMPUTE,
    TAKEN_CONTAINER,
    TAKEN_MEMORY,
    Batch,
    Floats,
    Int,
    State,
    Vectors,
)
from dovetail.model.reason import Reason
from dovetail.policies.rows import (
    ASK_COMPUTE,
    ASK_CONTAINER,
    ASK_KIND,
    DRAW,
    Ints,
    Rows,
    Wants,
)

_GROUP_NOT_PLACED, _NO_NODES = int(Reason.GROUP_NOT_PLACED), int(Reason.NO_NODES)
NEVER = -np.inf  # no row at all
REFUSED, PER_REASON = -1e300, 1e290  # a refused row's score is REFUSED − reason × PER_REASON


def node_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return 0.0


def refused_score(code: int) -> float:
    """Far below any score, and still telling why."""
    return REFUSED - code * PER_REASON


def score_row(state: State, batch: Batch, k: int, i: int, score: Floats, v: int) -> None:
    """Score one row; whether it fits is asked only when it comes first."""
    refused = state.masks[batch.mask[k], i]
    if refused != 0:
        score[v, i] = refused_score(refused)
    else:
        points = node_score(state.rows, i, state.wants, batch.shape[k], batch.args)
        score[v, i] = batch.style[STYLE_SIGN] * points


def comes_first(points: float, row: int, high: float, best: int, rank: Ints) -> bool:
    """Higher score, then smaller name. NONE is no row."""
    return points > high or (points == high and best != NONE and row != NONE and rank[row] < rank[best])


def find_best(vectors: Vectors, rank: Ints, v: int, block: int) -> None:
    """The best of the block's rows, then the best of its quarter's blocks."""
    score = vectors.score
    best, high = NONE, NEVER
    for i in range(block * BLOCK, (block + 1) * BLOCK):
        points = score[v, i]
        if points >= high and comes_first(points, i, high, best, rank):
            best, high = i, points
    vectors.best[v, block] = best
    vectors.high[v, block] = high
    find_best_block(vectors, rank, v, block // BLOCK)


def find_best_block(vectors: Vectors, rank: Ints, v: int, quarter: int) -> None:
    best, high = vectors.best, vectors.high
    leader, most = quarter * BLOCK, high[v, quarter * BLOCK]
    for block in range(quarter * BLOCK + 1, min((quarter + 1) * BLOCK, best.shape[1])):
        points = high[v, block]
        if points >= most and comes_first(points, best[v, block], most, best[v, leader], rank):
            leader, most = block, points
    vectors.leader[v, quarter] = leader
    vectors.most[v, quarter] = most


def score_all(state: State, batch: Batch, k: int, v: int) -> None:
    vectors, rank = state.vectors, state.rows.rank
    for i in range(state.size):
        score_row(state, batch, k, i, vectors.score, v)
    for i in range(state.size, vectors.score.shape[1]):
        vectors.score[v, i] = NEVER
    for block in range(vectors.best.shape[1]):
        find_best(vectors, rank, v, block)


def score_moved(state: State, batch: Batch, k: int, v: int, start: int, end: int) -> None:
    """Score again the rows that the log names from `start` to `end`, and find the best of the blocks they spoil."""
    vectors, rank = state.vectors, state.rows.rank
    score, best, high = vectors.score, vectors.best, vectors.high
    leader, most = vectors.leader, vectors.most
    log, stamp, length = vectors.log, vectors.stamp, len(vectors.log)
    spoilt, count = vectors.spoilt, 0
    for n in range(start, end):
        i = log[n % length]
        if stamp[i] != n:  # it moves again later
            continue
        score_row(state, batch, k, i, score, v)
        block, points = i // BLOCK, score[v, i]
        if best[v, block] == i and points < high[v, block]:  # the best got worse: another may be better now
            spoilt[count] = block
            count += 1
        elif best[v, block] == i or comes_first(points, i, high[v, block], best[v, block], rank):
            best[v, block], high[v, block] = i, points
            quarter = block // BLOCK
            now = leader[v, quarter]
            if now == block or comes_first(points, i, most[v, quarter], best[v, now], rank):
                leader[v, quarter], most[v, quarter] = block, points
    for n in range(count):
        find_best(vectors, rank, v, spoilt[n])


def catch_up(state: State, batch: Batch, k: int, v: int) -> None:
    """Bring vector v up to date with the log. Vector 0 is for requests whose scores cannot be kept."""
    vectors, length = state.vectors, state.heads[LOG_LENGTH]
    seen = vectors.seen[v]
    if v == 0 or seen == NONE or length - seen > min(len(vectors.log), 2 * state.size):
        score_all(state, batch, k, v)
    else:
        score_moved(state, batch, k, v, seen, length)
    vectors.seen[v] = length


def best_block(vectors: Vectors, rank: Ints, v: int) -> int:
    """The block that holds the best row of all."""
    best, leader, most = vectors.best, vectors.leader, vectors.most
    found, high = leader[v, 0], most[v, 0]
    for quarter in range(1, leader.shape[1]):
        points = most[v, quarter]
        if points >= high and comes_first(points, best[v, leader[v, quarter]], high, best[v, found], rank):
            found, high = leader[v, quarter], points
    return int(found)


def best_row(state: State, batch: Batch, k: int, v: int) -> int:
    """The best row that fits, or NONE. Rows on top that do not fit are put aside until they move."""
    vectors, rank, s = state.vectors, state.rows.rank, batch.shape[k]
    while True:
        block = best_block(vectors, rank, v)
        top = vectors.best[v, block]
        if top == NONE or vectors.high[v, block] <= REFUSED:
            return NONE
        refused = node_refusal(state.rows, state.wants, top, s, batch.style, batch.quota, batch.draw[k], state.scratch)
        if refused == 0:
            return int(top)
        vectors.score[v, top] = refused_score(refused)
        find_best(vectors, rank, v, block)


def fits_row(state: State, batch: Batch, i: int) -> bool:
    """Could node i take the batch's first pod now?"""
    if state.masks[batch.mask[0], i] != 0:
        return False
    s, draw = batch.shape[0], batch.draw[0]
    return node_refusal(state.rows, state.wants, i, s, batch.style, batch.quota, draw, state.scratch) == 0


def commonest_refusal(state: State, v: int) -> int:
    """What most nodes said; the smallest code on ties."""
    counts, score = state.scratch.counts, state.vectors.score
    for code in range(len(counts)):
        counts[code] = 0
    for i in range(state.size):
        counts[int((REFUSED - score[v, i]) / PER_REASON + 0.5)] += 1
    best = 0
    for code in range(1, INACTIVE):
        if counts[code] > counts[best]:
            best = code
    return best if best > 0 else _NO_NODES


def book_pod(state: State, batch: Batch, k: int, i: int) -> int:
    """Choose the cards on the winning node, book them and note them; returns the pod's slot."""
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
        at = batch.taken_from[k] + n
        batch.taken[at, TAKEN_CONTAINER], batch.taken[at, TAKEN_CARD] = wants.ask[a, ASK_CONTAINER], work.picked[n, 1]
        batch.taken[at, TAKEN_MEMORY], batch.taken[at, TAKEN_COMPUTE] = work.picked[n, 2], wants.ask[a, ASK_COMPUTE]
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
