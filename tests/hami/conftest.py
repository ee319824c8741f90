"""Every vector about a decision runs with the bare word and a model name as card type, and through both doors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.hami.scene import MODEL, WORD, Outcome, by_engine, by_plan

Decide = Callable[..., list[Outcome]]


@pytest.fixture(params=[WORD, MODEL])
def model(request: pytest.FixtureRequest) -> str:
    """HAMi's own tests call every card NVIDIA, which no real node does (issue #2899)."""
    return str(request.param)


@pytest.fixture(params=["engine", "plan"])
def decide(request: pytest.FixtureRequest) -> Decide:
    return by_engine if request.param == "engine" else by_plan
