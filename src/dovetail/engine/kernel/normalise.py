"""For policies that compare all candidates (`NodePolicy.normalise`): every row that fits is known before one is chosen.

engine/kernel/build.py replaces functions of place.py by these. Scores are kept and updated as for other policies: a
score still reads only its own row. Every decision costs a look at all rows, so only these policies pay for it.
"""

from __future__ import annotations

from dovetail.engine.kernel.place import NO_SCORE, comes_first, refuse, score_line, second_look
from dovetail.engine.kernel.state import FRESH, NONE, Batch, State
from dovetail.policies.rows import Floats, Ints, Rows, Wants


def normalise(rows: Rows, candidates: Ints, count: int, wants: Wants, s: int, args: Ints, points: Floats) -> None:
    """A hook: replaced by the policy's function."""


def order_by_name(state: State, v: int) -> int:
    """Write the rows that are not refused into `candidates`, by name; returns how many.

    A sum over candidates must not depend on the order in which nodes were added.
    """
    candidates, rank, refused = state.vectors.candidates, state.rows.rank, state.vectors.refused
    for n in range(state.size):
        candidates[n] = NONE
    for i in range(state.size):
        if refused[v, i] == 0:
            candidates[rank[i]] = i
    count = 0
    for n in range(state.size):
        if candidates[n] != NONE:
            candidates[count] = candidates[n]
            count += 1
    return count


def normalise_candidates(state: State, batch: Batch, k: int, u: int, v: int) -> int:
    """Write the rows that fit into `candidates`, and their scores, normalised, into `points`; returns how many."""
    vectors = state.vectors
    for i in range(state.size):
        if vectors.refused[v, i] == 0:
            code = second_look(state, batch, k, i)
            if code != 0:
                refuse(vectors, v, i, code)
    count = order_by_name(state, v)
    for n in range(count):
        vectors.points[n] = vectors.score[score_line(u, v), vectors.candidates[n]]
    if count > 0:
        normalise(state.rows, vectors.candidates, count, state.wants, batch.shape[k], batch.args, vectors.points)
    return count


def best_normalised(state: State, batch: Batch, k: int, u: int, v: int) -> int:
    """Replaces `best_row`."""
    vectors, best, high = state.vectors, NONE, NO_SCORE
    for n in range(normalise_candidates(state, batch, k, u, v)):
        if best == NONE or comes_first(vectors.points[n], vectors.candidates[n], high, best, state.rows.rank):
            best, high = vectors.candidates[n], vectors.points[n]
    return int(best)


def normalise_survey(state: State, batch: Batch) -> None:
    """Replaces `survey_scores`: writes the normalised scores of the rows that fit."""
    vectors = state.vectors
    for n in range(normalise_candidates(state, batch, 0, FRESH, FRESH)):
        vectors.score[FRESH, vectors.candidates[n]] = vectors.points[n]
