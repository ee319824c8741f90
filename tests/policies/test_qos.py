"""Guaranteed pods on idle cards only, BestEffort pods where cards are shared already."""

from __future__ import annotations

import pytest

from dovetail.engine.recheck import refusal
from dovetail.engine.why.explain import verdicts
from dovetail.model.decision import Share
from dovetail.model.pod import Pod, Qos
from dovetail.model.reason import Reason
from tests.builders import ask, cluster, node, place, pod, use

MODES = ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)]


def of(name: str, qos: Qos, count: int = 1, policy: str = "qos") -> Pod:
    return pod(name, ask(count, 2000), gpu_policy=policy, qos=qos)


@pytest.mark.parametrize("mode", MODES)
def test_one_idle_and_one_half_used_card(mode: str) -> None:
    scheduler = cluster(node("n", gpus=2), mode=mode)
    use(scheduler, "n", "n/0", 1, 4000, 0)
    assert place(scheduler, of("calm", Qos.GUARANTEED)) == [("n", ("n/1",))]
    assert place(scheduler, of("spare", Qos.BEST_EFFORT)) == [("n", ("n/0",))]  # 4,000 in use, against 2,000
    assert place(scheduler, of("some", Qos.BURSTABLE)) == [("n", ("n/0",))]  # 6,000 against 2,000
    assert place(scheduler, of("calm-2", Qos.GUARANTEED)) == [(None, ())]  # no idle card is left
    assert place(scheduler, of("calm-3", Qos.GUARANTEED, policy="binpack")) == [("n", ("n/1",))]  # 6,000 MiB are free
    assert place(scheduler, of("spare-2", Qos.BEST_EFFORT)) == [("n", ("n/1",))]  # n/0 is full


def test_the_reason_says_that_the_card_is_in_use() -> None:
    scheduler = cluster(node("n", gpus=1))
    use(scheduler, "n", "n/0", 1, 100, 0)
    (verdict,) = verdicts(scheduler, of("calm", Qos.GUARANTEED))
    assert verdict.reason == Reason.CARD_IN_USE
    assert verdicts(scheduler, of("spare", Qos.BEST_EFFORT))[0].reason == Reason.OK


def test_two_cards_are_both_idle() -> None:
    scheduler = cluster(node("a", gpus=2), node("b", gpus=3))
    use(scheduler, "a", "a/0", 1, 100, 0)
    use(scheduler, "b", "b/1", 1, 100, 0)
    assert place(scheduler, of("calm", Qos.GUARANTEED, count=2)) == [("b", ("b/2", "b/0"))]


def test_a_joint_policy_uses_no_device_policy() -> None:
    scheduler = cluster(node("n", gpus=1))
    use(scheduler, "n", "n/0", 1, 100, 0)
    calm = pod("calm", ask(1, 100), node_policy="fgd", gpu_policy="qos", qos=Qos.GUARANTEED)
    assert place(scheduler, calm) == [("n", ("n/0",))]


def test_a_binding_that_waited_is_checked_again_and_a_running_pod_may_get_company() -> None:
    """Another pod took a part of the card: no Binding for the Guaranteed pod; if it runs, it keeps the card."""
    scheduler = cluster(node("n", gpus=1))
    use(scheduler, "n", "n/0", 1, 100, 0)
    calm, shares = of("calm", Qos.GUARANTEED), (Share(0, "n/0", 2000, 0),)
    assert refusal(scheduler.placer, calm, 0, shares) == Reason.CARD_IN_USE
    assert refusal(scheduler.placer, calm, 0, shares, runs=True) == Reason.OK
    assert refusal(scheduler.placer, of("some", Qos.BURSTABLE), 0, shares) == Reason.OK
