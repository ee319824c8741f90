"""The page on gangs: every manifest on it is read, and gives the gangs that the page describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dovetail.kube.conversion.cluster import ClusterInput, load
from dovetail.kube.conversion.memberships import OWN_NAMES
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files.documents import parse
from dovetail.kube.objects.problems import Problems
from dovetail.model.gang import TopologyRule

PAGE = (Path(__file__).parent.parent.parent / "docs" / "gangs.md").read_text(encoding="utf-8")
RACK, BLOCK = "topology.kubernetes.io/rack", "topology.kubernetes.io/block"
TIER = "volcano.sh/hypernode-tier-1"
SCHEDULERS = frozenset(("dovetail", "koord-scheduler", "volcano", "kai-scheduler"))
# Section -> for each gang of its first example: title, minimum, roles, rule of the whole gang.
FIRST_EXAMPLES = {
    "I have plain Jobs": [("default/job-train", 4, {}, TopologyRule(RACK))],
    "I have Coscheduling manifests": [("default/train", 3, {}, TopologyRule(preferred=RACK))],
    "I have Kubeflow manifests": [("default/bert", 4, {}, TopologyRule())],
    "I have Koordinator manifests": [("default/ps+worker", 3, {"default/ps": 1, "default/worker": 2}, TopologyRule())],
    "I have Volcano manifests": [("default/tf", 3, {"ps": 1, "worker": 2}, TopologyRule(TIER))],
    "I have KAI manifests": [("default/inference", 2, {"decode": 1, "prefill": 1}, TopologyRule(RACK))],
    "I have JobSet manifests": [("default/pretrain", 5, {"driver": 1, "workers": 4}, TopologyRule())],
    "I have LeaderWorkerSet manifests": [
        (f"default/vllm-{number}", 3, {"leader": 1, "worker": 2}, TopologyRule(RACK)) for number in range(2)
    ],
    "I have Kubernetes PodGroups": [("default/train", 2, {}, TopologyRule(RACK))],
}
SECONDS = {
    "I have plain Jobs": [("default/mpi", 3, {"launcher": 1, "worker": 2}, TopologyRule(BLOCK))],
    "I have Kubernetes PodGroups": [("default/train/workers", 1, {}, TopologyRule())],
}


def examples(section: str) -> list[str]:
    part = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"(?ms)^```yaml\n(.*?)^```", part)


def read(text: str) -> ClusterInput:
    problems = Problems(strict=True)
    found = load(parse("page.yaml", text, problems), Settings(schedulers=SCHEDULERS), problems)
    assert [str(one) for one in found.problems if one.severity == "error"] == []
    return found


def gangs(found: ClusterInput) -> list[tuple[str, int, dict[str, int], TopologyRule]]:
    return [
        (group.title, group.minimum, {role.name: role.minimum for role in group.roles}, group.topology)
        for group in found.groups
    ]


@pytest.mark.parametrize("section", FIRST_EXAMPLES)
def test_every_kind_of_user_has_a_manifest_that_is_read(section: str) -> None:
    found = read(examples(section)[0])
    assert gangs(found) == FIRST_EXAMPLES[section]
    assert {pod.refusal for group in found.groups for pod in group.pods} == {None}
    assert all(len(group.pods) >= group.minimum for group in found.groups)


@pytest.mark.parametrize("section", SECONDS)
def test_second_examples(section: str) -> None:
    assert gangs(read(examples(section)[1])) == SECONDS[section]


def test_the_topology_and_the_table_of_annotations() -> None:
    (found,) = read(examples("Topology")[0]).topologies
    assert found == ("kueue.x-k8s.io/default", (BLOCK, RACK, "kubernetes.io/hostname"))
    for name in OWN_NAMES:
        assert name in PAGE or f"`-{name.rpartition('-')[2]}`" in PAGE


def test_no_example_is_left_out() -> None:
    walked = {**dict.fromkeys(FIRST_EXAMPLES, 1), "Topology": 1, **dict.fromkeys(SECONDS, 2)}
    assert sum(walked.values()) == len(re.findall(r"(?m)^```yaml$", PAGE))
