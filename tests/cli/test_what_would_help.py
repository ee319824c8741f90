"""What `plan` and `explain` say of pending pods, held against the manifest in which the user did as was suggested."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run

SHARED_CARD = """
apiVersion: v1
kind: Node
metadata:
  name: n1
  annotations:
    hami.io/node-nvidia-register: >-
      [{"id":"GPU-0","count":10,"devmem":16384,"devcore":100,"type":"NVIDIA A100","health":true,"mode":"hami-core"}]
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: prod, annotations: {hami.io/vgpu-devices-allocated: "GPU-0,NVIDIA,8000,30:;"}}
spec:
  nodeName: n1
  priority: 1000
  containers:
  - {name: c, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8000, nvidia.com/gpucores: 30}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1WHAT}}}]}
"""
QUOTA = """
apiVersion: dovetail.dev/v1
kind: Cluster
nodes: [{name: n, cpu: 8, gpus: {model: A100, memory: 16384, count: 2}}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {HARD}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, resources: {limits: {WHAT}}}]}
"""
DAEMONS = """
apiVersion: dovetail.dev/v1
kind: Cluster
nodes: [{name: n1, cpu: 2}, {name: n2, cpu: 20}, {name: n3, cpu: 20}]
---
apiVersion: v1
kind: Pod
metadata: {name: full}
spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: "2"}}}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec: {template: {spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}]}}}
"""
HERMITS = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1}}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers: [{name: c, resources: {requests: {cpu: "1"}}}]
"""


def explained(run: Run, name: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("explain", name, "-o", "json", "-f", "-", stdin=text).stdout)
    return found


def pending(run: Run, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("plan", "-o", "json", "-f", "-", stdin=text).stdout)["pending"]
    return found


@pytest.mark.parametrize(
    ("before", "kind", "sentence", "after"),
    [
        # 16,384 − 8,000 = 8,384 MiB are left; 51 % of 16,384 are 8,355. A stated 100 % of the compute is not to be had.
        (
            "",
            "less",
            "ask for 8,384 MiB of GPU memory instead of the whole GPU",
            ", nvidia.com/gpumem: 8384",
        ),
        (
            ", nvidia.com/gpumem-percentage: 100",
            "less",
            "ask for 51 % of the GPU's memory instead of 100 %",
            ", nvidia.com/gpumem-percentage: 51",
        ),
        (", nvidia.com/gpucores: 100", "pod-gone", "if pod default/prod (priority 1000) left node n1", None),
    ],
)
def test_a_whole_card_beside_somebody_else(run: Run, before: str, kind: str, sentence: str, after: str | None) -> None:
    suggestion = explained(run, "p", SHARED_CARD.replace("WHAT", before))["suggestion"]
    assert (suggestion["kind"], suggestion["sentence"]) == (kind, sentence)
    if after is not None:
        assert pending(run, SHARED_CARD.replace("WHAT", after)) == []


@pytest.mark.parametrize(
    ("hard", "before", "message", "sentence", "after"),
    [
        (
            'requests.cpu: "2"',
            'cpu: "3"',
            "quota team: requests.cpu requested 3, used 0, limited to 2",
            "ask for 2 CPU instead of 3",
            'cpu: "2"',
        ),
        (
            "limits.memory: 1Gi",
            "memory: 1536Mi",
            "quota team: limits.memory requested 1536Mi, used 0, limited to 1Gi",
            "limit the pod to 1Gi memory instead of 1536Mi",
            "memory: 1Gi",
        ),
        (
            'requests.nvidia.com/gpu: "1"',
            "nvidia.com/gpu: 2",
            "quota team: requests.nvidia.com/gpu requested 2, used 0, limited to 1",
            "ask for 1 GPU instead of 2",
            "nvidia.com/gpu: 1",
        ),
        (
            'requests.nvidia.com/gpumem: "5000"',
            "nvidia.com/gpu: 1, nvidia.com/gpumem: 8000",
            "quota team: requests.nvidia.com/gpumem requested 8,000, used 0, limited to 5,000",
            "ask for 5,000 MiB of GPU memory instead of 8,000",
            "nvidia.com/gpu: 1, nvidia.com/gpumem: 5000",
        ),
    ],
)
def test_a_quota_is_named_and_what_stays_below_it(
    run: Run, hard: str, before: str, message: str, sentence: str, after: str
) -> None:
    text = QUOTA.replace("HARD", hard)
    [waits], answer = pending(run, text.replace("WHAT", before)), explained(run, "p", text.replace("WHAT", before))
    assert waits["reason"] == answer["reason"] == "QuotaExceeded"
    assert waits["message"] == answer["message"] == message
    assert answer["suggestion"]["sentence"] == sentence
    assert pending(run, text.replace("WHAT", after)) == []


def test_a_quota_and_nodes_that_are_too_small(run: Run) -> None:
    text = QUOTA.replace("HARD", 'requests.cpu: "9"').replace("WHAT", 'cpu: "10"')
    said = run("explain", "p", "-f", "-", stdin=text).stdout
    assert "Why: quota team: requests.cpu requested 10, used 0, limited to 9; besides:" in said
    assert "CPU short by 2 on 1 node" in said
    assert "ask for 8 CPU instead of 10" in said


def test_a_gang_is_told_which_quota_stops_its_next_member(run: Run) -> None:
    """Two members fit below the quota of two pods, three must start together."""
    group = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: gang}
spec: {minMember: 3}
"""
    member = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {scheduling.x-k8s.io/pod-group: gang}}
spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}
"""
    [kept, quota, _] = QUOTA.split("---")
    members = [member.replace("NAME", f"m{n}") for n in range(3)]
    text = "---".join([kept, quota.replace("HARD", 'pods: "2"'), group, *members])
    finds = "2 of 3 members of default/gang fit, 3 must start together; the next finds "
    limit = "quota team: pods requested 1, used 2, limited to 2"
    assert {waits["message"] for waits in pending(run, text)} == {finds + limit}
    assert explained(run, "m0", text)["message"] == finds + limit


def test_a_daemon_is_judged_by_its_own_node(run: Run) -> None:
    [waits], answer = pending(run, DAEMONS), explained(run, "daemonset/agent", DAEMONS)
    assert (waits["pod"], waits["reason"], waits["reasons"]) == ("agent-n1", "InsufficientCPU", {"InsufficientCPU": 1})
    assert waits["message"] == "CPU short by 1 on 1 node"
    assert waits["nodes"] == {"n1": "InsufficientCPU"}
    assert (answer["reason"], answer["message"]) == ("InsufficientCPU", "its own node n1 cannot take it")
    assert answer["suggestion"]["sentence"] == "if pod default/full (priority 0) left node n1"


def test_replicas_that_shun_each_other(run: Run) -> None:
    suggestion = explained(run, "web", HERMITS)["suggestion"]
    assert suggestion == {
        "kind": "drop-constraint",
        "sentence": "drop the required pod anti-affinity to app=web over kubernetes.io/hostname",
        "node": "n1",
    }
    start, end = HERMITS.index("      affinity:"), HERMITS.index("      containers:")
    assert pending(run, HERMITS[:start] + HERMITS[end:]) == []


def test_pods_alike_but_for_their_rules_are_told_apart(run: Run) -> None:
    """`web` is on all three nodes, `db` on two of them; the third has no CPU left."""
    node = HERMITS.split("---")[0]
    there = """
apiVersion: v1
kind: Pod
metadata: {name: APP-NODE, labels: {app: APP}}
spec: {nodeName: NODE, containers: [{name: c, resources: {requests: {cpu: "CPUS"}}}]}
"""
    asking = """
apiVersion: v1
kind: Pod
metadata: {name: not-beside-APP}
spec:
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: APP}}}
  containers: [{name: c, resources: {requests: {cpu: "1"}}}]
"""
    parts = [node.replace("n1", name) for name in ("n1", "n2", "n3")]
    for app, name, cpus in (("web", "n1", 1), ("web", "n2", 1), ("web", "n3", 8), ("db", "n1", 1), ("db", "n2", 1)):
        parts.append(there.replace("APP", app).replace("NODE", name).replace("CPUS", str(cpus)))
    parts += [asking.replace("APP", app) for app in ("web", "db")]
    found = {waits["pod"]: waits["reasons"] for waits in pending(run, "---".join(parts))}
    assert found == {
        "not-beside-web": {"PodAntiAffinityMismatch": 3},
        "not-beside-db": {"PodAntiAffinityMismatch": 2, "InsufficientCPU": 1},
    }
