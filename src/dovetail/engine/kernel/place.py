"""Where a pod goes: keep scores, update only changed rows, find the best row without a scan, choose cards, book.

kernel/build.py replaces `node_score` for each profile. Scores come before fit: a row is checked for fit only when it
comes first. So most changed rows are never checked card by card. Scores (`u`) are kept apart from refusals (`v`): a
policy that ignores the request, such as HAMi's, needs one set of scores for all requests. 16 rows are a block and 16
blocks are a quarter; each keeps its best. A changed row costs at most one scan of its block and its quarter.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernel.book import add_entry, charge, new_pod, roll_back
from dovetail.engine.kernel.choose import choose_all, node_refusal
from dovetail.engine.kernel.fit import Sieve, no_card_left, sieve_of
from dovetail.engine.kernel.state import (
    BLOCK,
    FRESH,
    INACTIVE,
    JOURNAL_DEPTH,
    JOURNAL_LENGTH,
    MOVES,
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
_REASONS = 1 + max(Reason)
NO_SCORE = -np.inf  # no row at all


def node_score(rows: Rows, i: int, wants: Wants, s: int, args: Ints) -> float:
    return 0.0


def score_row(state: State, batch: Batch, k: int, u: int, i: int) -> None:
    points = node_score(state.rows, i, state.wants, batch.shape[k], batch.args)
    state.vectors.score[u, i] = batch.style[STYLE_SIGN] * points


def refresh_scores(state: State, batch: Batch, k: int, u: int) -> None:
    """Score again the rows that changed since these scores were last updated. Many requests may share them."""
    vectors, end = state.vectors, state.heads[MOVES]
    start = vectors.scored[u]
    if u == FRESH or start == NONE:
        for i in range(state.size):
            score_row(state, batch, k, u, i)
    else:
        score_again(state, batch, k, u, start, vectors.older, vectors.stamp)
        score_measured(state, batch, k, u, start)
    vectors.scored[u] = end


def score_again(state: State, batch: Batch, k: int, u: int, start: int, older: Ints, stamp: Ints) -> None:
    """Score the rows of a chain that changed since `start`."""
    ends = len(older) - 1
    i = older[ends]
    while i != ends and stamp[i] >= start:
        score_row(state, batch, k, u, i)
        i = older[i]


def score_measured(state: State, batch: Batch, k: int, u: int, start: int) -> None:
    """Do nothing: measured load changes no score, unless the policy reads it (kernel/signals.py)."""


def look_at_measured(state: State, batch: Batch, k: int, u: int, v: int, start: int) -> None:
    """Do nothing, for the same reason."""


def comes_first(points: float, row: int, high: float, best: int, rank: Ints) -> bool:
    """Whether the row comes before `best`: higher score, then smaller name. NONE is no row."""
    return points > high or (points == high and best != NONE and row != NONE and rank[row] < rank[best])


def score_line(u: int, v: int) -> int:
    """The line of `score` that holds the candidates' scores."""
    return u


def find_best(vectors: Vectors, rank: Ints, u: int, v: int, block: int) -> None:
    """Find the best row of the block that is not refused."""
    score, refused, u = vectors.score, vectors.refused, score_line(u, v)
    best, high = NONE, NO_SCORE
    for i in range(block * BLOCK, (block + 1) * BLOCK):
        points = score[u, i]
        if points >= high and refused[v, i] == 0 and (best == NONE or points > high or rank[i] < rank[best]):
            best, high = i, points
    vectors.best[v, block] = best
    vectors.high[v, block] = high


def find_leader(vectors: Vectors, rank: Ints, v: int, quarter: int) -> None:
    """Find the best block of the quarter."""
    best, high = vectors.best, vectors.high
    leader, most = quarter * BLOCK, high[v, quarter * BLOCK]
    for block in range(quarter * BLOCK + 1, min((quarter + 1) * BLOCK, best.shape[1])):
        points = high[v, block]
        if points >= most and comes_first(points, best[v, block], most, best[v, leader], rank):
            leader, most = block, points
    vectors.leader[v, quarter] = leader
    vectors.most[v, quarter] = most


def first_look(state: State, sieve: Sieve, i: int) -> int:
    """Why row i is not a candidate, without a look at single cards; 0 = it may be one."""
    refused = state.masks[sieve.mask, i]
    return int(refused) if refused != 0 else no_card_left(state.rows, i, sieve)


def refuse(vectors: Vectors, v: int, i: int, code: int) -> None:
    """Store why row i is not a candidate; 0 = it is one."""
    if vectors.tallied[v]:
        vectors.tally[v, vectors.refused[v, i]] -= 1
        vectors.tally[v, code] += 1
    vectors.refused[v, i] = code


def look(state: State, batch: Batch, k: int, sieve: Sieve, u: int, v: int, i: int) -> float:
    """Check whether row i is a candidate; returns its score, which is up to date, or NO_SCORE."""
    code = first_look(state, sieve, i)
    refuse(state.vectors, v, i, code)
    return state.vectors.score[u, i] if code == 0 else NO_SCORE


def look_at_each(state: State, batch: Batch, k: int, u: int, v: int) -> None:
    sieve = sieve_of(state.wants, batch.mask[k], batch.shape[k])
    for i in range(state.size):
        look(state, batch, k, sieve, u, v, i)


def look_at_all(state: State, batch: Batch, k: int, u: int, v: int) -> None:
    vectors, rank = state.vectors, state.rows.rank
    vectors.tallied[v] = 0
    look_at_each(state, batch, k, u, v)
    for i in range(state.size, vectors.refused.shape[1]):
        vectors.refused[v, i] = INACTIVE
    for block in range(vectors.best.shape[1]):
        find_best(vectors, rank, u, v, block)
    for quarter in range(vectors.leader.shape[1]):
        find_leader(vectors, rank, v, quarter)


def look_again(state: State, batch: Batch, k: int, u: int, v: int, start: int, older: Ints, stamp: Ints) -> None:
    """Check again the rows of a chain that changed since `start`, and update the best of their blocks and quarters."""
    vectors, rank = state.vectors, state.rows.rank
    best, high = vectors.best, vectors.high
    leader, most = vectors.leader, vectors.most
    spoilt, count = vectors.spoilt, 0
    sieve = sieve_of(state.wants, batch.mask[k], batch.shape[k])
    ends = len(older) - 1
    i = older[ends]
    while i != ends and stamp[i] >= start:
        points = look(state, batch, k, sieve, u, v, i)
        block = i // BLOCK
        if best[v, block] == i and points < high[v, block]:  # the best row got worse: another row may be better now
            spoilt[count] = block
            count += 1
        elif best[v, block] == i or comes_first(points, i, high[v, block], best[v, block], rank):
            best[v, block], high[v, block] = i, points
            quarter = block // BLOCK
            now = leader[v, quarter]
            if now == block or comes_first(points, i, most[v, quarter], best[v, now], rank):
                leader[v, quarter], most[v, quarter] = block, points
        i = older[i]
    for n in range(count):
        find_best(vectors, rank, u, v, spoilt[n])
        vectors.stale[spoilt[n] // BLOCK] = 1
    if count > 0:
        for quarter in range(leader.shape[1]):
            if vectors.stale[quarter]:
                vectors.stale[quarter] = 0
                find_leader(vectors, rank, v, quarter)


def catch_up(state: State, batch: Batch, k: int, u: int, v: int) -> None:
    """Update the scores and the candidates of this request."""
    refresh_scores(state, batch, k, u)
    vectors, end = state.vectors, state.heads[MOVES]
    seen = vectors.seen[v]
    if v == FRESH or seen == NONE:
        look_at_all(state, batch, k, u, v)
    else:
        look_again(state, batch, k, u, v, seen, vectors.older, vectors.stamp)
        look_at_measured(state, batch, k, u, v, seen)
    vectors.seen[v] = end


def best_block(vectors: Vectors, rank: Ints, v: int) -> int:
    """The block that holds the best row."""
    best, leader, most = vectors.best, vectors.leader, vectors.most
    found, high = leader[v, 0], most[v, 0]
    for quarter in range(1, leader.shape[1]):
        points = most[v, quarter]
        if points >= high and comes_first(points, best[v, leader[v, quarter]], high, best[v, found], rank):
            found, high = leader[v, quarter], points
    return int(found)


def second_look(state: State, batch: Batch, k: int, i: int) -> int:
    """Why the best candidate does not fit, after a check of its cards one by one; 0 = it fits."""
    rows, wants, draw = state.rows, state.wants, batch.draw[k]
    return node_refusal(rows, wants, i, batch.shape[k], batch.style, batch.quota, draw, state.scratch)


def best_row(state: State, batch: Batch, k: int, u: int, v: int) -> int:
    """The best row that fits, or NONE. Better rows that do not fit are refused until they change."""
    vectors, rank = state.vectors, state.rows.rank
    while True:
        block = best_block(vectors, rank, v)
        top = vectors.best[v, block]
        if top == NONE:
            return NONE
        code = second_look(state, batch, k, top)
        if code == 0:
            return int(top)
        refuse(vectors, v, top, code)
        find_best(vectors, rank, u, v, block)
        find_leader(vectors, rank, v, block // BLOCK)


def which_fit(state: State, batch: Batch, i: int) -> int:
    """Check for each pod of the batch, alone, whether node i could take it now. Returns the number of pods that fit.

    Column 0 of `results` is 1 or 0.
    """
    total = 0
    for k in range(len(batch.shape)):
        fits = 0
        if first_look(state, sieve_of(state.wants, batch.mask[k], batch.shape[k]), i) == 0:
            s, draw = batch.shape[k], batch.draw[k]
            if node_refusal(state.rows, state.wants, i, s, batch.style, batch.quota, draw, state.scratch) == 0:
                fits = 1
        batch.results[k, 0] = fits
        total += fits
    return total


def survey_scores(state: State, batch: Batch) -> None:
    """Do nothing: scores are final, unless the policy compares all candidates (kernel/normalise.py)."""


def survey(state: State, batch: Batch) -> None:
    """Check every node for the batch's pod.

    Line FRESH of `refused` is 0 or the reason, line FRESH of `score` the score.
    """
    refresh_scores(state, batch, 0, FRESH)
    look_at_each(state, batch, 0, FRESH, FRESH)
    refused = state.vectors.refused
    for i in range(state.size):
        if refused[FRESH, i] == 0:
            refused[FRESH, i] = second_look(state, batch, 0, i)
    survey_scores(state, batch)


def commonest_refusal(state: State, v: int) -> int:
    """The reason of most nodes; the smallest code on ties."""
    vectors = state.vectors
    tally = vectors.tally
    if vectors.tallied[v] == 0:
        vectors.tallied[v] = 1
        for code in range(tally.shape[1]):
            tally[v, code] = 0
        for i in range(state.size):
            tally[v, vectors.refused[v, i]] += 1
    best, most = 0, 0
    for code in range(1, _REASONS):
        if tally[v, code] > most:
            best, most = code, tally[v, code]
    return best if best > 0 else _NO_NODES


def book_pod(state: State, batch: Batch, k: int, i: int) -> int:
    """Choose the cards on the best node, book them and write them to the batch; returns the pod's slot."""
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
    results, u, v = batch.results, batch.scores[k], batch.vector[k]
    batch.args[DRAW] = batch.draw[k]
    catch_up(state, batch, k, u, v)
    i = best_row(state, batch, k, u, v)
    if i == NONE:
        results[k, RESULT_ROW], results[k, RESULT_POD] = NONE, NONE
        results[k, RESULT_REASON] = commonest_refusal(state, v)
        return False
    results[k, RESULT_ROW], results[k, RESULT_REASON] = i, 0
    results[k, RESULT_POD] = book_pod(state, batch, k, i)
    return True


def place_groups(state: State, batch: Batch) -> None:
    """Place groups one after another: each with at least as many pods as it needs, or not at all."""
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
