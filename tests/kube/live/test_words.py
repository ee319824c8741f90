"""What people read of a pod that waits or was placed."""

from __future__ import annotations

import pytest

from dovetail.engine.why.findings import Findings
from dovetail.engine.wording import Lacking
from dovetail.kube.live.words import (
    MAX_NOTE_BYTES,
    condition_reason,
    cut,
    where_to,
    why_pending,
    why_refused,
    without_numbers,
)
from dovetail.model.decision import Share
from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Pod, Refusal
from dovetail.model.reason import Reason

POD = Pod("ml", "train-0", "u")


def test_nodes_are_told_by_what_they_lack_the_nearest_miss_first() -> None:
    lacking = (Lacking(Reason.CARD_MEMORY, "GPU memory short by 1,024 MiB", 1), Lacking(Reason.TAINT, "tainted", 4))
    said = why_pending(Findings(False, 5, lacking, 1))
    assert said == "0/5 nodes are available: GPU memory short by 1,024 MiB on 1 node; tainted on 4 nodes."


def test_many_kinds_of_no_are_summed_up() -> None:
    lacking = tuple(Lacking(Reason.TAINT, f"taint {n} not tolerated", 1) for n in range(8))
    said = why_pending(Findings(False, 8, lacking, 1))
    assert said.endswith("; something else on 2 nodes.")


def test_an_empty_cluster_says_so() -> None:
    assert why_pending(Findings(False, 0, (), 1)) == "0/0 nodes are available: the cluster has no nodes."


def test_a_pod_that_no_node_can_cure_says_its_own_reason() -> None:
    wrong = Pod("ml", "p", "u", refusal=Refusal(Reason.INVALID_REQUEST, "nvidia.com/gpumem: 16Gi is no number"))
    assert why_refused(wrong, Reason.INVALID_REQUEST) == "nvidia.com/gpumem: 16Gi is no number."
    assert why_refused(POD, Reason.QUEUE_ORDER) == "others come before it in a strict queue and wait."
    assert why_refused(POD, Reason.CLAIM_MISSING, "claim data does not exist") == "claim data does not exist."


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
    assert said == "Successfully assigned ml/train-0 to a: GPU-1 (7500 MiB, 30 %)"
    assert where_to(POD, node, (Share(0, "GPU-1", 7500, 0),)).endswith("GPU-1 (7500 MiB, any compute)")
    assert where_to(POD, node, ()) == "Successfully assigned ml/train-0 to a"


def test_where_kubelet_picks_the_card_nothing_is_promised() -> None:
    node = Node("a", devices=(Device("GPU-1", 0, "NVIDIA", "T4", 15360, 1000, 1),), enforcer=Enforcer.STOCK)
    said = where_to(POD, node, (Share(0, "GPU-1", 15360, 1000),))
    assert said == "Successfully assigned ml/train-0 to a: 1 GPU, which kubelet picks"


def test_nothing_is_longer_than_an_event_may_be() -> None:
    shares = tuple(Share(0, f"GPU-{n:040}", 1, 1) for n in range(100))
    assert len(where_to(POD, Node("a"), shares).encode()) == MAX_NOTE_BYTES


@pytest.mark.parametrize("letter", ["a", "é", "€", "😀"])
@pytest.mark.parametrize("more", range(5))
def test_a_long_message_ends_between_two_characters_within_the_bytes_that_kubernetes_allows(
    letter: str, more: int
) -> None:
    text = cut("x" * more + letter * 2_000)
    assert MAX_NOTE_BYTES - 4 < len(text.encode()) <= MAX_NOTE_BYTES
    assert text == "x" * more + letter * (len(text) - more - 1) + "…"


def test_a_message_that_fits_stays_as_it_is() -> None:
    assert cut("é" * 512) == "é" * 512


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("GPU memory short by 1,024 MiB on 1 node", "GPU memory short by 7 MiB or more on 3 nodes", True),
        ("CPU short by 500m on 1 node", "CPU short by 2 on 2 nodes", True),
        ("memory short by 1536Mi on 1 node", "memory short by 2Gi on 1 node", True),
        (
            "a does not match (the node has zone=c) on 1 node",
            "a does not match (the nodes have zone=d) on 2 nodes",
            True,
        ),
        (
            "CPU short by 1 on 1 node; a on 2 nodes; b on 1 node",
            "CPU short by 1 on 1 node; b on 3 nodes; a on 1 node",
            True,
        ),
        ("CPU short by 1 on 1 node; a on 2 nodes", "a on 2 nodes; CPU short by 1 on 1 node", False),
        ("CPU short by 1 on 1 node", "memory short by 1Mi on 1 node", False),
        ("taint x:NoSchedule not tolerated on 1 node", "taint y:NoSchedule not tolerated on 1 node", False),
    ],
)
def test_what_changes_as_nodes_come_and_go_is_no_news(before: str, now: str, same: bool) -> None:
    said = [without_numbers(f"0/{n} nodes are available: {text}.") for n, text in ((5, before), (6, now))]
    assert (said[0] == said[1]) is same
