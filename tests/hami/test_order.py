"""V18: which of two cards is tried first (gpu_policy_test.go, Less).

HAMi's table says whether A stands before B in a list that is walked from its end: "yes" means that B is tried first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dovetail.model.pod import DeviceRules
from tests.builders import ask, card, node, pod
from tests.hami.scene import scene, started


@dataclass(frozen=True)
class Seen:
    """A card whose memory in use gives it such a place among scores, whatever its slots."""

    score: int
    numa: int = 0
    used: int = 0
    index: int = 0


YES, NO = True, False
TABLE = [
    # policy, numa-bind, A, B, "A stands before B"
    ("binpack", False, Seen(10), Seen(20), YES),
    ("binpack", False, Seen(15, 0), Seen(15, 1), YES),
    ("binpack", False, Seen(20, 1), Seen(10, 0), NO),
    ("spread", False, Seen(10), Seen(20), NO),
    ("spread", False, Seen(20, 1), Seen(10, 0), YES),
    ("spread", False, Seen(15, 0), Seen(15, 1), YES),
    ("binpack", True, Seen(5, 1), Seen(99, 0), YES),
    ("spread", True, Seen(5, 0), Seen(99, 1), YES),
    ("binpack", True, Seen(5, 1), Seen(99, 1), YES),  # inside one NUMA node the score decides
    ("spread", True, Seen(5, 1), Seen(99, 1), NO),
    ("mutex", False, Seen(10, used=2), Seen(10, used=0), YES),
    ("mutex", False, Seen(10, 0), Seen(10, 1), YES),
    ("numa", False, Seen(99, 0), Seen(5, 1), YES),
    ("numa", False, Seen(10, 0, index=3), Seen(10, 0, index=1), NO),
    ("numa,spread", False, Seen(5, 1), Seen(99, 0), NO),
    ("mutex,spread", False, Seen(10, used=5), Seen(20, used=0), NO),
    ("mutex,topology-aware", False, Seen(10), Seen(20), NO),  # no sort key: as spread
    ("binpack,numa", False, Seen(10, 0, index=5), Seen(10, 0, index=2), NO),
    ("binpack,spread", True, Seen(99, 0), Seen(5, 1), YES),
]


@pytest.mark.parametrize(("policy", "bound", "a", "b", "before"), TABLE)
@pytest.mark.parametrize("turned", [False, True], ids=["registered-ab", "registered-ba"])
def test_v18_who_is_tried_first(
    model: str, turned: bool, policy: str, bound: bool, a: Seen, b: Seen, before: bool
) -> None:
    """Nothing here is a full tie, so the order of registration must not matter."""
    seen = {"a": a, "b": b}
    names = ["b", "a"] if turned else ["a", "b"]
    cards = [card(n, 1000, seen[n].index, numa=seen[n].numa, slots=1000) for n in names]
    scheduler = started(scene(node("n", *cards), model=model))
    wants = pod("p", ask(1, 0), gpu_policy=policy, rules=DeviceRules("NVIDIA", numa_bind=bound))
    shape = scheduler.intern.shape(wants, -1)
    state, lens = scheduler.ledger.state(), scheduler.lens(wants.profile)
    # A slot is 1/1000 of a card here and a unit of score 10/1000: `used` never outweighs `score`.
    held = np.array([[seen[n].used, 10 * seen[n].score, 0] for n in names], dtype=np.int64)
    ask_at = int(state.wants.shape[shape, 0])
    count = lens.order_cards(state.rows, state.wants, 0, shape, ask_at, held, lens.style, 0, state.scratch)
    tried = [names[column] for column in state.scratch.order[:count]]
    assert tried == (["b", "a"] if before else ["a", "b"])
