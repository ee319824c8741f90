"""What a pod will likely load: CPU by its limits, network by an annotation; and policies without measurements."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.cli.settings import KNOWN
from dovetail.kube.conversion.cluster import ClusterInput, load
from dovetail.kube.files.documents import Document


def planned(*containers: dict[str, Any], overhead: str = "", **annotations: str) -> ClusterInput:
    spec: dict[str, Any] = {"containers": [{"name": f"c{n}", **one} for n, one in enumerate(containers)]}
    if overhead:
        spec["overhead"] = {"cpu": overhead}
    notes = {key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": notes}, "spec": spec}
    return load([Document("p.yaml#1", "Pod", "v1", body)], KNOWN)


def resources(request: str = "", limit: str = "") -> dict[str, Any]:
    given = {name: {"cpu": value} for name, value in (("requests", request), ("limits", limit)) if value}
    return {"resources": given}


@pytest.mark.parametrize(
    ("containers", "overhead", "milli"),
    [
        ([resources("1", "3")], "", 3000),  # the limit
        ([resources("1")], "", 1500),  # 1.5 × the request
        ([resources("1m")], "", 2),  # rounded up
        ([resources()], "", 1000),  # one core
        ([resources("1", "3"), resources("1"), resources()], "250m", 3000 + 1500 + 1000 + 250),
    ],
)
def test_the_cpu_that_a_pod_will_likely_use(containers: list[dict[str, Any]], overhead: str, milli: int) -> None:
    (group,) = planned(*containers, overhead=overhead).groups
    assert group.pods[0].expected_cpu_milli == milli


@pytest.mark.parametrize(
    ("key", "text", "kbit"),
    [
        ("dovetail.dev__network_mbit", "80", 80_000),
        ("LiangNetIO", " 2 ", 2000),
        ("LiangNetIO", "999999999", 10**9),  # at most a terabit
        ("dovetail.dev__network_mbit", "0", 0),
    ],
)
def test_the_network_load_that_a_pod_states(key: str, text: str, kbit: int) -> None:
    found = planned({}, **{key: text})
    assert found.groups[0].pods[0].network_kbit == kbit
    assert found.problems == ()


@pytest.mark.parametrize("text", ["fast", "-1", "1.5", "1" * 10, "٣"])
def test_a_wrong_network_load_counts_as_none_with_a_warning(text: str) -> None:
    found = planned({}, **{"dovetail.dev__network_mbit": text})
    assert found.groups[0].pods[0].network_kbit == 0
    (problem,) = found.problems
    assert problem.field == "metadata.annotations.dovetail.dev/network-mbit"
    assert problem.message.endswith("is not a whole number of Mbit/s; it counts as 0")


def test_a_policy_that_needs_measured_load_is_named_with_its_fallback() -> None:
    found = planned({}, **{"dovetail.dev__node_policy": "target-load"})
    (problem,) = found.problems
    assert problem.message == (
        "node policy target-load needs measured load, and files have none; least-allocated places the pods that use it"
    )
