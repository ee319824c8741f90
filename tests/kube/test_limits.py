"""Requests without limits, and requests above them: `plan` accepted what the API server refuses."""

from __future__ import annotations

import pytest

from tests.kube.manifests import GPU, MEM, Object, container, other, pod, read, said


@pytest.mark.parametrize(
    ("limits", "requests", "wrong"),
    [
        ({}, {GPU: 1}, {GPU: "write limits.nvidia.com/gpu: 1"}),
        ({GPU: 1}, {GPU: 1, MEM: "8Gi"}, {MEM: "write limits.nvidia.com/gpumem: 8Gi"}),
        ({GPU: 1}, {GPU: 2}, {GPU: "2 with a limit of 1"}),
        ({}, {"example.com/dongle": 1}, {"example.com/dongle": "has no limit"}),
        ({}, {"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "has no limit"}),
        ({"cpu": "500m"}, {"cpu": 1}, {"cpu": "above its limit"}),
        ({"memory": "1Gi"}, {"memory": "1025Mi"}, {"memory": "above its limit"}),
        ({GPU: 1, MEM: "8Gi"}, {GPU: "1", MEM: 8589934592}, {}),
        ({GPU: 1}, {}, {}),
        ({"cpu": 2}, {"cpu": 1, "memory": "1Gi", "ephemeral-storage": "1Gi"}, {}),
        ({"cpu": "x"}, {"cpu": 1}, {}),  # an error of its own
    ],
)
def test_what_the_api_server_refuses_for_its_limits(limits: Object, requests: Object, wrong: dict[str, str]) -> None:
    given = read(pod("p", container(limits, requests)))
    found = {p.field: p.message for p in said(given, "warning") if "requests." in p.field}
    assert list(found) == [f"spec.containers[0].resources.requests.{name}" for name in wrong]
    assert all(hint in message for hint, message in zip(wrong.values(), found.values(), strict=True))


def test_a_limit_range_may_give_the_limit() -> None:
    rule = other("LimitRange", spec={"limits": [{"type": "Container", "default": {GPU: 1}}]})
    assert said(read(pod("p", container({}, {GPU: 1})), rule), "warning") == []


def test_ten_thousand_requests_are_a_few_lines() -> None:
    many = {f"example.com/r{number}": 1 for number in range(10_000)}
    warnings = said(read(pod("p", container({}, many))), "warning")
    assert len([one for one in warnings if "has no limit" in one.message]) == 20
    assert len(warnings) == 22  # and the two bounds that it exceeds: resources and, by admission, tolerations
