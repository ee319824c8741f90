"""Ten thousand malformed inputs: each is read or refused with problems that name their place; nothing else is raised.

Deterministic: the same seed makes the same inputs. Bounded by construction; there is no timing to be flaky about.
"""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from dovetail.kube.conversion.cluster import ClusterInput, load
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files.documents import read
from dovetail.kube.objects.problems import InputError, Problem, Problems
from dovetail.model.volumes import AttachLimits
from tests.kube.manifests import ALLOCATED, CORES, GPU, MEM, PCT, Object, card, container, node, other, pod, workload

SCORES = "hami.io/node-nvidia-score"
LABELS = {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4"}
CARD_RULES = {
    "nvidia.com/use-gputype": "A100",
    "nvidia.com/numa-bind": "true",
    "hami.io/gpu-scheduler-policy": "binpack,numa",
}
GANG = {"labels": {"scheduling.x-k8s.io/pod-group": "gang"}}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
}

TEMPLATE: Object = {"metadata": {"annotations": CARD_RULES}, "spec": {"containers": [container({GPU: 1, MEM: "8Gi"})]}}

# Small valid inputs that together use every kind and every annotation we read.
BASES: list[list[Object]] = [
    [
        node("a", card("GPU-0"), card("GPU-1"), annotations={SCORES: '[{"uuid":"GPU-0","score":{"GPU-1":600}}]'}),
        pod("r", container({GPU: 1}), meta={"annotations": {ALLOCATED: "GPU-0,NVIDIA,1000,10:;"}}, nodeName="a"),
    ],
    [
        node("b", labels=LABELS, allocatable={GPU: "8"}, conditions=[{"type": "Ready", "status": "True"}]),
        node("c", annotations={"hami.io/node-nvidia-register": "GPU-c,10,8192,100,NVIDIA-T4,0,true:"}),
    ],
    [
        pod(
            "p",
            container({GPU: 2, MEM: 1000, CORES: 10, "cpu": "1"}, {"memory": "1Gi"}),
            initContainers=[container({GPU: 1, PCT: 50}, name="init", restartPolicy="Always")],
            meta={"annotations": CARD_RULES, "creationTimestamp": "2026-01-01T00:00:00Z"},
            affinity=AFFINITY,
            tolerations=[{"key": "k", "operator": "Exists"}],
            nodeSelector={"zone": "a"},
            priorityClassName="high",
            overhead={"cpu": "10m"},
        ),
        other("PriorityClass", "scheduling.k8s.io/v1", "high", value=10, globalDefault=True),
    ],
    [
        workload("Deployment", "web", {"metadata": GANG, "spec": {"containers": [container({GPU: 1})]}}, replicas=3),
        other("PodGroup", "scheduling.x-k8s.io/v1alpha1", "gang", spec={"minMember": 2}),
        workload("Job", "job", parallelism=2, completions=3),
    ],
    [
        other("PyTorchJob", "kubeflow.org/v1", spec={"pytorchReplicaSpecs": {"Worker": {"template": TEMPLATE}}}),
        other("Job", "batch.volcano.sh/v1alpha1", spec={"minAvailable": 1, "tasks": [{"template": TEMPLATE}]}),
        other("JobSet", "jobset.x-k8s.io/v1alpha2", spec={"replicatedJobs": [{"template": {"spec": {}}}]}),
        other("RayCluster", "ray.io/v1", spec={"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": []}),
        other("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", spec={"leaderWorkerTemplate": {"size": 2}}),
        other("InferenceService", "serving.kserve.io/v1beta1", spec={"predictor": TEMPLATE["spec"]}),
        other("Thing", "example.com/v1", spec={"deep": [TEMPLATE]}),
    ],
    [
        node("a"),
        workload("DaemonSet", "agent"),
        workload("StatefulSet", "db", replicas=2, ordinals={"start": 1}),
        other("ResourceQuota", spec={"hard": {"pods": "5", "limits.nvidia.com/gpumem": "1000"}}),
        other("LimitRange", spec={"limits": [{"type": "Container", "default": {"cpu": "1"}}]}),
        other("RuntimeClass", "node.k8s.io/v1", "kata", overhead={"podFixed": {"cpu": "1"}}),
    ],
    [
        other("ElasticQuota", "scheduling.x-k8s.io/v1alpha1", spec={"min": {GPU: 1}, "max": {GPU: 2, "cpu": "4"}}),
        other("ElasticQuota", "scheduling.sigs.k8s.io/v1alpha1", "team", spec={"min": {GPU: 1}, "max": {GPU: 4}}),
        other(
            "Queue",
            "scheduling.volcano.sh/v1beta1",
            "v",
            spec={"weight": 2, "capability": {GPU: 3}, "guarantee": {"resource": {GPU: 1}}, "priority": 3},
        ),
        other(
            "Queue",
            "scheduling.run.ai/v2",
            "k",
            spec={"preemptMinRuntime": "5m", "resources": {"gpu": {"quota": 1, "overQuotaWeight": 1, "limit": -1}}},
        ),
    ],
    [
        node("n", labels={"rack": "r"}),
        other("Topology", "kueue.x-k8s.io/v1beta1", "t", spec={"levels": [{"nodeLabel": "rack"}]}),
        other(
            "HyperNode",
            "topology.volcano.sh/v1alpha1",
            "h",
            spec={"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "^n.*"}}}]},
        ),
        other(
            "NodeResourceTopology", "topology.node.k8s.io/v1alpha2", "n", topologyPolicies=["SingleNUMANodePodLevel"]
        ),
        other(
            "CSINode",
            "storage.k8s.io/v1",
            "n",
            spec={"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 2}}]},
        ),
        other(
            "PodDisruptionBudget",
            "policy/v1",
            "b",
            spec={"selector": {"matchLabels": {"app": "x"}}, "minAvailable": "50%"},
        ),
    ],
    [
        {
            "apiVersion": "dovetail.dev/v1",
            "kind": "Cluster",
            "nodes": [
                {
                    "name": "t",
                    "count": 2,
                    "labels": {"a": "b"},
                    "taints": ["a=b:NoSchedule"],
                    "cpu": 4,
                    "extended": {"x.y/z": 2},
                    "gpus": {"model": "T4", "count": 2, "memory": 15360, "numa": [0, 1], "links": [[0], [1]]},
                }
            ],
        }
    ],
]

VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63,
    2**80,
    float("inf"),
    float("nan"),
    "",
    "x",
    "-1",
    "1e400",
    "9" * 40,
    "16Gi",
    "\x00\ud83d",
    "a" * 5000,
    [],
    [None],
    [[]],
    {},
    {"": ""},
    {"a": {"a": []}},
    {1: 2},
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from paths(part, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    result = copy.copy(value)
    result[path[0]] = changed(value[path[0]], path[1:], new)
    return result


def written(objects: list[Object], chance: random.Random) -> bytes:
    """As YAML documents, a JSON List, or JSON documents."""
    form = chance.randrange(3)
    if form == 0 and "\\ud83d" not in json.dumps(objects):  # YAML cannot even write half a character
        return yaml.dump_all(objects, Dumper=yaml.CSafeDumper).encode()
    whole: list[Any] = [{"apiVersion": "v1", "kind": "List", "items": objects}] if form == 1 else objects
    return "\n".join(json.dumps(item) for item in whole).encode()


Mutation = Callable[[random.Random], bytes]


def wrong_type(chance: random.Random) -> bytes:
    """Any value at any path."""
    base = chance.choice(BASES)
    for _ in range(chance.choice((1, 1, 1, 3))):
        path = chance.choice(list(paths(base))[1:])
        base = changed(base, path, chance.choice(VALUES))
    return written(base, chance)


def truncated(chance: random.Random) -> bytes:
    whole = written(chance.choice(BASES), chance)
    return whole[: chance.randrange(len(whole))]


def scrambled(chance: random.Random) -> bytes:
    """Bytes replaced, removed, doubled."""
    whole = bytearray(written(chance.choice(BASES), chance))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(whole))
        how = chance.randrange(3)
        if how == 0:
            whole[at] = chance.choice(b"\x00\xff\t\n:{}[]&*!|>'\"%@`-?,#<0")
        elif how == 1:
            del whole[at : at + chance.randrange(1, 30)]
        else:
            whole[at:at] = whole[at : at + chance.randrange(1, 30)]
        whole = whole or bytearray(b" ")
    return bytes(whole)


AMOUNTS = (
    "-1",
    "-0",
    "1e999",
    "1e18",
    "9223372036854775807",
    "9223372036854775808",
    "1.5",
    "0.1m",
    "5Xi",
    "Ki",
    "١",
    "0x10",
)


def odd_amount(chance: random.Random) -> bytes:
    """Negative, huge, fractional and unreadable quantities wherever a resource list stands."""
    base = chance.choice(BASES)
    lists = [
        p for p in paths(base) if p and p[-1] in ("limits", "requests", "allocatable", "hard", "overhead", "extended")
    ]
    for path in lists or [()]:
        if path and isinstance(_at(base, path), dict):
            name = chance.choice(
                ("cpu", "memory", "pods", GPU, MEM, PCT, CORES, "x.y/z", "hugepages-2Mi", "", "/", "a" * 300)
            )
            base = changed(base, path, {**_at(base, path), name: chance.choice((*AMOUNTS, -5, 10**30, 1e300, 0.5))})
    return written(base, chance)


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def doubled(chance: random.Random) -> bytes:
    """Objects that share a name, the same or not."""
    base = [copy.deepcopy(item) for item in chance.choice(BASES)]
    twin = copy.deepcopy(chance.choice(base))
    if chance.random() < 0.5 and "metadata" in twin:
        twin["metadata"]["labels"] = {"other": "yes"}
    return written([*base, twin], chance)


def broken_annotation(chance: random.Random) -> bytes:
    """A register, score table, device string or policy with characters changed."""
    base = chance.choice(BASES[:4])
    found = [p for p in paths(base) if len(p) > 1 and p[-2] in ("annotations", "labels")]
    if not found:
        return truncated(chance)
    path = chance.choice(found)
    text = str(_at(base, path))
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(text) + 1)
        text = (
            text[:at]
            + chance.choice(("", ",", ":", ";", '"', "{", "]", "-", "9" * 12, "null", "é", "\x07"))
            + text[at + 1 :]
        )
    return written(changed(base, path, text), chance)


def bomb(chance: random.Random) -> bytes:
    """Aliases of aliases, also by merge keys and of themselves, inside something that looks like an object."""
    width, depth = chance.randrange(2, 12), chance.randrange(2, 60)
    merge = chance.random() < 0.3
    lines = ["apiVersion: v1", "kind: Pod", "a0: &a0 " + ("{x: y}" if merge else "[x, y]")]
    for level in range(1, depth):
        aliases = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{aliases}]}}" if merge else f"[{aliases}]"))
    last = chance.choice(("metadata: *a1", f"spec: *a{depth - 1}", "spec: &s {containers: *s}", "metadata: *nobody"))
    return "\n".join([*lines, last]).encode()


def deep(chance: random.Random) -> bytes:
    opening, closing = chance.choice((("[", "]"), ('{"a":', "}"), ("{a: ", "}"), ("- ", ""), ("? ", ""), ("&a [", "]")))
    levels = chance.choice((50, 150, 250, 1000, 5000))
    inner = (opening * levels + "1" + closing * levels).encode()
    return chance.choice((b"", b"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: ")) + inner


def noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(200))


MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "wrong type": (wrong_type, 4000),
    "truncated": (truncated, 1000),
    "scrambled": (scrambled, 1500),
    "odd amount": (odd_amount, 1200),
    "doubled": (doubled, 300),
    "broken annotation": (broken_annotation, 1400),
    "alias bomb": (bomb, 300),
    "deep": (deep, 150),
    "noise": (noise, 150),
}


def outcome(text: bytes) -> tuple[ClusterInput | None, tuple[Problem, ...]]:
    """What reading gives. Anything but InputError flies out of here and fails the test."""
    problems = Problems()
    try:
        given = load(read(["-"], problems, io.BytesIO(text)), Settings(), problems)
    except InputError as error:
        return None, error.problems
    return given, given.problems


def check(text: bytes) -> None:
    given, problems = outcome(text)
    assert given is not None or any(problem.severity == "error" for problem in problems)
    for problem in problems:
        assert problem.where.startswith("stdin"), problem
        assert problem.message, problem
        assert len(str(problem)) < 2000
        str(problem).encode()  # no half characters
    if given is not None:
        for group in given.groups:
            for member in group.pods:
                assert all(0 <= amount < 2**63 for amount in member.resources.values())
        limits = [fact.most for fact in given.volumes if isinstance(fact, AttachLimits)]
        assert all(0 <= count < 2**31 for most in limits for count in most.values())
        for found in given.nodes:
            assert all(0 <= amount < 2**63 for amount in found.allocatable.values())


def test_the_inputs_are_ten_thousand_and_the_bases_are_valid() -> None:
    assert sum(count for _, count in MUTATIONS.values()) == 10_000
    for base in BASES:
        given, problems = outcome("\n".join(json.dumps(item) for item in base).encode())
        assert given is not None
        assert not [problem for problem in problems if problem.severity == "error"]


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_malformed_input_is_a_complaint_and_never_a_traceback(name: str) -> None:
    mutate, count = MUTATIONS[name]
    for number in range(count):
        text = mutate(random.Random(f"{name} {number}"))
        try:
            check(text)
        except Exception as error:
            raise AssertionError(f"{name} {number}: {text[:2000]!r}") from error


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"a" * 10_000_000, id="a word"),
        pytest.param(b'{"kind": "' + b"x" * 10_000_000 + b'", "apiVersion": "v1"}', id="a kind"),
        pytest.param(b"apiVersion: v1\nkind: Pod\nmetadata: {name: " + b"x" * 10_000_000 + b"}\nspec: {}", id="a name"),
        pytest.param(
            b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"resources":{"limits":{"cpu":"'
            + b"9" * 10_000_000
            + b'"}}}]}}',
            id="an amount",
        ),
        pytest.param(
            json.dumps(node("n", annotations={"hami.io/node-nvidia-register": "a," * 5_000_000})).encode(),
            id="a register",
        ),
        pytest.param(
            json.dumps(
                node("n", annotations={"hami.io/node-nvidia-register": "[" + "{}," * 3_000_000 + "{}]"})
            ).encode(),
            id="a register of many",
        ),
        pytest.param(
            json.dumps(pod("p", meta={"annotations": {ALLOCATED: ";" * 10_000_000}}, nodeName="n")).encode(),
            id="a string",
        ),
        pytest.param(b"--- 1\n" * 300_000, id="many documents"),
    ],
)
def test_ten_megabytes_of_one_thing(text: bytes) -> None:
    check(text)
