"""What is remembered of gangs has a bound, and no tenant makes the scheduler forget another one's."""

from __future__ import annotations

import pytest

from dovetail.kube.conversion.groups import GroupName
from dovetail.kube.live import gang_past
from dovetail.kube.live.gang_past import GangPast


def key(namespace: str, name: str) -> str:
    return GroupName("scheduling.x-k8s.io", namespace, name).key


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_past, "MAX_REMEMBERED_GANGS", 10)


def test_a_namespace_with_many_gangs_makes_no_other_one_forgotten() -> None:
    past = GangPast()
    past.ended(key("ml", "train"), "a", True)
    past.ended(key("ml", "train"), "b", True)
    for number in range(50):
        past.ended(key("many", f"g{number}"), f"m{number}", False)
    assert past.done(key("ml", "train")) == 2
    assert len(list(past)) == 10
    assert past.failed(key("many", "g49")) == 1


def test_gangs_without_members_are_forgotten_first() -> None:
    past = GangPast()
    for number in range(10):
        past.ended(key("ml", f"g{number}"), f"m{number}", True)
    past.begin_again(key("ml", "g5"))
    past.ended(key("ml", "new"), "n", True)
    assert key("ml", "g5") not in list(past)
    assert past.done(key("ml", "g0")) == 1
    past.ended(key("ml", "newer"), "o", True)
    assert key("ml", "g0") not in list(past)


def test_nothing_stays_of_a_gang_whose_pods_are_gone() -> None:
    past = GangPast()
    past.ended(key("ml", "train"), "a", True)
    past.deleted("a", key("ml", "train"))
    assert past.done(key("ml", "train")) == 1
    past.begin_again(key("ml", "train"))
    assert (list(past), past._names) == ([], {})
