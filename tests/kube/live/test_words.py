"""What people read of a pod that waits or was placed."""

from __future__ import annotations

import pytest

from dovetail.kube.live.words import LONGEST, condition_reason, where_to, why_pending
from dovetail.model.decision import Share
from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Pod, Refusal
from dovetail.model.reason import Reason

POD = Pod("ml", "train-0", "u")


def test_nodes_are_counted_by_what_they_lack_the_commonest_first() -> None:
    counts = {Reason.TAINT: 2, Reason.CARD_MEMORY: 3}
    said = why_pending(POD, Reason.CARD_MEMORY, counts)
    assert said == "0/5 nodes are available: 3 GPU memory short, 2 taint not tolerated."


def test_many_kinds_of_no_are_summed_up() -> None:
    reasons = [r for r in Reason if 0 < r < Reason.GROUP_INCOMPLETE][:8]
    said = why_pending(POD, reasons[0], dict.fromkeys(reasons, 1))
    assert said.endswith(", 2 something else.")


def test_an_empty_cluster_says_so() -> None:
    assert why_pending(POD, Reason.NO_NODES, {}) == "0/0 nodes are available: the cluster has no nodes."


def test_a_pod_that_no_node_can_cure_says_its_own_reason() -> None:
    wrong = Pod("ml", "p", "u", refusal=Refusal(Reason.INVALID_REQUEST, "nvidia.com/gpumem: 16Gi is no number"))
    assert why_pending(wrong, Reason.INVALID_REQUEST, {}) == "nvidia.com/gpumem: 16Gi is no number."
    said = why_pending(POD, Reason.GROUP_INCOMPLETE, {})
    assert said == "the pod group has fewer pods than its minMember."


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (Reason.CARD_MEMORY, "Unschedulable"),
        (Reason.TAINT, "Unschedulable"),
        (Reason.NO_NODES, "Unschedulable"),
        (Reason.GROUP_INCOMPLETE, "GroupIncomplete"),
        (Reason.QUOTA, "QuotaExceeded"),
        (Reason.RESOURCE_CLAIMS, "ResourceClaimsNotSupported"),
        (Reason.CLAIM_MISSING, "ClaimMissing"),
    ],
)
def test_autoscalers_are_called_only_where_another_node_would_help(reason: Reason, word: str) -> None:
    assert condition_reason(reason) == word


def test_a_placed_pod_names_its_cards() -> None:
    node = Node("a", devices=(Device("GPU-1", 0, "NVIDIA", "T4", 15360, 1000, 10),))
    said = where_to(POD, node, (Share(0, "GPU-1", 7500, 300),))
    assert said == "placed ml/train-0 on a: GPU-1 (7500 MiB, 30 %)"
    assert where_to(POD, node, (Share(0, "GPU-1", 7500, 0),)).endswith("GPU-1 (7500 MiB, any compute)")
    assert where_to(POD, node, ()) == "placed ml/train-0 on a"


def test_where_kubelet_picks_the_card_nothing_is_promised() -> None:
    node = Node("a", devices=(Device("GPU-1", 0, "NVIDIA", "T4", 15360, 1000, 1),), enforcer=Enforcer.STOCK)
    assert (
        where_to(POD, node, (Share(0, "GPU-1", 15360, 1000),)) == "placed ml/train-0 on a: 1 GPU, which kubelet picks"
    )


def test_nothing_is_longer_than_an_event_may_be() -> None:
    shares = tuple(Share(0, f"GPU-{n:040}", 1, 1) for n in range(100))
    assert len(where_to(POD, Node("a"), shares)) == LONGEST
