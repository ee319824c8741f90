"""`plan` answers the same whatever the order of the documents: nodes, running pods, pending pods, quotas."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.model.pod import Quota
from tests.builders import ask, card, node, pod
from tests.hami.scene import Use, manifests, plan, pod_manifest, scene

POLICIES = ("binpack", "spread")


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_documents_does_not_matter(model: str, seed: int) -> None:
    chance = Random(seed)
    nodes = [
        node(
            f"n{n}",
            *(card(f"n{n}-{c}", chance.choice((4000, 8000)), c, numa=c % 2) for c in range(chance.randint(1, 4))),
        )
        for n in range(5)
    ]
    uses = [
        Use(one.name, device.uuid, chance.randint(1, 3), chance.choice((500, 1000, 3000)), chance.choice((0, 20)))
        for one in nodes
        for device in one.devices
        if chance.random() < 0.6
    ]
    pods = [
        pod(
            f"p{n}",
            ask(chance.choice((1, 1, 2)), chance.choice((1000, 2000, 4000)), chance.choice((0, 30, 100))),
            node_policy=chance.choice(POLICIES),
            gpu_policy=chance.choice(POLICIES),
        )
        for n in range(12)
    ]
    quota = Quota("default", "q", device_memory_mib={"NVIDIA": 20_000})
    given = scene(*nodes, uses=uses, model=model, quotas=[quota])
    documents = [*manifests(given), *(pod_manifest(one, n % 4) for n, one in enumerate(pods))]
    straight = plan(*documents)
    assert straight["placements"]
    assert straight["pending"]
    for _ in range(3):
        chance.shuffle(documents)
        shuffled = plan(*documents)
        assert shuffled["placements"] == straight["placements"]
        assert shuffled["pending"] == straight["pending"]
        assert shuffled["nodes"] == straight["nodes"]
