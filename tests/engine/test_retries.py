"""Retries in portions, as the live scheduler makes them: nothing that was decided is lost."""

from __future__ import annotations

import pytest

from dovetail.engine.retries import Retries
from dovetail.model.events import Bind, Effect, GroupArrived, NodeChanged
from tests.builders import ask, cluster, group, node, pod


def names(effects: list[Effect]) -> list[str]:
    return [effect.pod.name for effect in effects if isinstance(effect, Bind)]


def test_decisions_before_an_exception_are_returned_by_the_next_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pods wait for one card each. The first is placed, then the search for the next one breaks."""
    scheduler = cluster(node("small", gpus=0))
    scheduler.retries.deferred = True
    for name, memory in (("first", 1000), ("second", 2000)):
        scheduler.handle(GroupArrived(0.0, group(pod(name, ask(1, memory)))))
    scheduler.handle(NodeChanged(1.0, node("large", gpus=2)))
    check = Retries._fits

    def breaks(retries: Retries, key: object) -> bool:
        if scheduler.ledger.pods:
            raise RuntimeError("broken on purpose")
        return check(retries, key)

    with monkeypatch.context() as patch:
        patch.setattr(Retries, "_fits", breaks)
        with pytest.raises(RuntimeError, match="on purpose"):
            scheduler.retry_some(2.0, 100)
    assert [scheduler.ledger.pods.pod(uid).name for uid in scheduler.ledger.pods] == ["first"]  # it holds a card
    assert scheduler.has_retries
    assert "first" in names(scheduler.retry_some(3.0, 100))
