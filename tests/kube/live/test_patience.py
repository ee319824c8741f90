"""Owners whose pods are refused after they were bound wait longer and longer."""

from __future__ import annotations

from dovetail.kube.live.patience import FORGET_AFTER_SECONDS, LONGEST_WAIT_SECONDS, Patience

WEB = "Deployment/default/web"


def test_the_first_refusal_costs_nothing_and_then_the_wait_doubles() -> None:
    patience, at, waits = Patience(), 0.0, []
    for _ in range(5):
        waits.append(patience.refused(WEB, at, "OutOfcpu"))
        at += waits[-1]
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0]


def test_the_wait_runs_from_the_last_refusal_and_ends() -> None:
    patience = Patience()
    patience.refused(WEB, 0.0, "OutOfcpu")
    patience.refused(WEB, 10.0, "OutOfcpu")
    assert patience.wait(WEB, 10.25) == 0.75
    assert patience.wait(WEB, 11.0) == 0.0
    assert patience.wait("Deployment/default/other", 10.25) == 0.0


def test_it_never_waits_longer_than_five_minutes_and_forgives() -> None:
    patience = Patience()
    for n in range(40):
        patience.refused(WEB, float(n), "OutOfcpu")
    assert patience.wait(WEB, 39.0) == LONGEST_WAIT_SECONDS
    assert patience.wait(WEB, 39.0 + FORGET_AFTER_SECONDS) == 0.0
    assert patience.refused(WEB, 39.0 + 2 * FORGET_AFTER_SECONDS, "OutOfcpu") == 0.0


def test_it_says_how_often_and_why() -> None:
    patience = Patience()
    patience.refused(WEB, 0.0, "kubelet on a: OutOfcpu")
    patience.refused(WEB, 0.0, "kubelet on b: OutOfcpu")
    assert patience.why(WEB).startswith("2 pods of Deployment/default/web were refused")
    assert patience.why(WEB).endswith("kubelet on b: OutOfcpu")
