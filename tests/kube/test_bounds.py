"""The table of bounds, walked: below and at each bound an object is read whole, beyond it the refusal names the field.

Each case makes an object that has `n` of what is counted; nothing else about it is near a bound.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.kube.conversion.cluster import ClusterInput
from dovetail.kube.objects import bounds
from dovetail.kube.objects.bounds import BOUNDS, Bound
from dovetail.model.reason import Reason
from dovetail.model.volumes import AttachLimits
from tests.kube.manifests import (
    ALLOCATED,
    GPU,
    MEM,
    REGISTER,
    Object,
    card,
    container,
    gpu_pod,
    node,
    other,
    pod,
    pods_of,
    read,
    workload,
)

DOCS = Path(__file__).parents[2] / "docs" / "limits.md"
SCORES = "hami.io/node-nvidia-score"
IN = {"key": "zone", "operator": "In", "values": ["a"]}


def affinity(terms: int, values: int = 1) -> Object:
    row = {**IN, "values": [f"v{n}" for n in range(values)]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [row]} for _ in range(terms)]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def spread(count: int) -> Object:
    rows = [{"topologyKey": f"k{n}", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"} for n in range(count)]
    return pod("p", topologySpreadConstraints=rows)


def gang(minimum: int) -> tuple[Object, ...]:
    member = pod("p", meta={"labels": {"scheduling.x-k8s.io/pod-group": "g"}})
    return member, other("PodGroup", "scheduling.x-k8s.io/v1alpha1", "g", spec={"minMember": minimum})


def claims(count: int) -> Object:
    return pod("p", volumes=[{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(count)])


def cards_in_all(count: int) -> Object:
    whole, rest = divmod(count, 256)
    return pod("p", *(container({GPU: n}, name=f"c{at}") for at, n in enumerate([256] * whole + [rest] * (rest > 0))))


PODS: dict[str, Callable[[int], Object | tuple[Object, ...]]] = {
    "cards-per-container": lambda n: gpu_pod(gpu=n),
    "cards-per-pod": cards_in_all,
    "containers": lambda n: pod("p", *(container(name=f"c{at}") for at in range(n))),
    "resources-per-pod": lambda n: pod("p", container({f"example.com/r{at}": 1 for at in range(n)})),
    "request-annotation": lambda n: gpu_pod({"nvidia.com/vgpu-mode": "m" * n}, gpu=1),
    "card-types": lambda n: gpu_pod({"nvidia.com/use-gputype": ",".join(f"T{at}" for at in range(n))}, gpu=1),
    "card-uuids": lambda n: gpu_pod({"nvidia.com/nouse-gpuuuid": ",".join(f"GPU-{at}" for at in range(n))}, gpu=1),
    "card-name": lambda n: gpu_pod({"nvidia.com/use-gpuuuid": "G" * n}, gpu=1),
    "labels-per-pod": lambda n: pod("p", meta={"labels": {f"l{at}": "x" for at in range(n)}}),
    "owner-name": lambda n: pod("p", meta={"ownerReferences": [{"kind": "Job", "name": "j" * (n - 3), "uid": "u"}]}),
    "node-selector": lambda n: pod("p", nodeSelector={f"l{at}": "x" for at in range(n)}),
    "tolerations": lambda n: pod("p", tolerations=[{"key": f"k{at}", "operator": "Exists"} for at in range(n)]),
    "affinity-terms": lambda n: pod("p", affinity=affinity(n)),
    "selector-values": lambda n: pod("p", affinity=affinity(1, n - 1)),  # the key counts
    "spread-constraints": spread,
    "ports": lambda n: pod("p", container(ports=[{"containerPort": at + 1} for at in range(n)])),
    "volumes": lambda n: pod("p", volumes=[{"name": f"v{at}", "emptyDir": {}} for at in range(n)]),
    "claims": claims,
    "gang-members": gang,
}


def cards(count: int, **fields: object) -> list[Object]:
    return [card(f"GPU-{n}", **fields) for n in range(count)]  # type: ignore[arg-type]


def padded(text: str, length: int) -> str:
    return text + " " * (length - len(text))


def linked(count: int) -> Object:
    scores = json.dumps([{"uuid": "GPU-0", "score": {"GPU-1": 600}}])
    return node("n", *cards(count), annotations={SCORES: scores})


def kinds(count: int) -> Object:
    return node("n", *(card(f"GPU-{n}", f"NVIDIA M{n}") for n in range(count)))


def cordon(count: int) -> Object:
    named = ",".join(["GPU-0", *(f"X{n}" for n in range(count - 1))])
    return node("n", *cards(2), annotations={"hami.io/device-cordon": named})


def images(count: int) -> Object:
    return node("n", images=[{"names": [f"i{n}"], "sizeBytes": 1} for n in range(count)])


def resources(count: int) -> Object:
    return node("n", allocatable={f"example.com/r{n}": 1 for n in range(count - 3)})  # cpu, memory and pods are there


# name -> the node with n of it; what is left of it; how much of it is left beyond the bound
NODES: dict[str, tuple[Callable[[int], Object], Callable[[ClusterInput], int], int]] = {
    "cards-per-node": (lambda n: node("n", *cards(n)), lambda given: len(given.nodes[0].devices), 256),
    "kinds-per-node": (kinds, lambda given: len(given.nodes[0].devices), 16),
    "linked-cards": (linked, lambda given: len(given.nodes[0].links), 0),
    "resources-per-node": (resources, lambda given: len(given.nodes[0].allocatable), 256),
    "labels-per-node": (
        lambda n: node("n", labels={f"l{at}": "x" for at in range(n)}),
        lambda given: len(given.nodes[0].labels),
        2_048,
    ),
    "taints": (
        lambda n: node("n", spec={"taints": [{"key": f"k{at}", "effect": "NoSchedule"} for at in range(n)]}),
        lambda given: len(given.nodes[0].taints),
        256,
    ),
    "images": (images, lambda given: len(given.nodes[0].images), 2_048),
    "cordoned-cards": (cordon, lambda given: sum(card.cordoned for card in given.nodes[0].devices), 2),
    "device-string": (
        lambda n: node("n", annotations={REGISTER: padded(json.dumps(cards(1)), n)}),
        lambda given: len(given.nodes[0].devices),
        0,
    ),
}


def queue(name: str, parent: str = "", **meta: Object) -> Object:
    made = other("Queue", "scheduling.run.ai/v2", name, spec={"parentQueue": parent})
    made["metadata"].update(meta)
    return made


def deep(count: int) -> tuple[Object, ...]:
    return tuple(queue(f"q{n}", f"q{n - 1}" if n else "") for n in range(count + 1))


def quota_of(count: int) -> Object:
    return other(
        "ElasticQuota",
        "scheduling.x-k8s.io/v1alpha1",
        "q",
        spec={"min": {f"example.com/r{n}": 1 for n in range(count)}},
    )


def namespaces(count: int) -> Object:
    made = other("ElasticQuota", "scheduling.sigs.k8s.io/v1alpha1", "q")
    named = json.dumps([f"n{n}" for n in range(count)])
    made["metadata"]["annotations"] = {"quota.scheduling.koordinator.sh/namespaces": named}
    return made


# name -> the queues with n of it; what is left of it; how much of it is left beyond the bound
QUEUES: dict[str, tuple[Callable[[int], Object | tuple[Object, ...]], Callable[[ClusterInput], int], int]] = {
    "queues": (lambda n: tuple(queue(f"q{at}") for at in range(n)), lambda given: len(given.queues), 10_000),
    "queue-depth": (deep, lambda given: sum(bool(one.parent) for one in given.queues), 16),
    "queue-resources": (quota_of, lambda given: len(given.queues[0].guarantee), 64),
    "queue-namespaces": (namespaces, lambda given: len(given.queues[0].namespaces), 1_024),
}
OF_PODS_WHICH_RUN = ("shares", "queue-name")
BY_AMOUNT = ("amount", "card-number", "policy-chain", "claim-selector")
OF_OTHER_OBJECTS = ("object-selector", "budgets", "volume-drivers")
OF_GANGS = (  # test_gang_bounds.py
    *("gang-roles", "gang-name", "gang-statements", "label-name", "topology-spreads", "topology-levels"),
    *("hyper-nodes", "hyper-node-members"),
    *("pod-group-status", "pod-group-resources"),  # the latter in live/test_pod_group_status.py
)


def bound(name: str) -> Bound:
    return next(row for row in BOUNDS if row.name == name)


def objects(made: Object | tuple[Object, ...]) -> tuple[Object, ...]:
    return made if isinstance(made, tuple) else (made,)


def test_every_row_of_the_table_is_walked() -> None:
    assert {*PODS, *NODES, *QUEUES, *OF_PODS_WHICH_RUN, *BY_AMOUNT, *OF_OTHER_OBJECTS, *OF_GANGS} == {
        row.name for row in BOUNDS
    }
    assert len({row.name for row in BOUNDS}) == len(BOUNDS)


@pytest.mark.parametrize("name", PODS)
@pytest.mark.parametrize("beside", [-1, 0])
def test_pods_within_a_bound_are_not_refused_for_it(name: str, beside: int) -> None:
    given = read(*objects(PODS[name](bound(name).most + beside)))
    (found,) = pods_of(given)
    assert found.refusal is None
    assert not [problem for problem in given.problems if "docs/limits.md" in problem.message]


@pytest.mark.parametrize("name", PODS)
def test_pods_beyond_a_bound_are_refused_with_field_and_bound(name: str) -> None:
    row = bound(name)
    given = read(*objects(PODS[name](row.most + 1)))
    (found,) = pods_of(given)
    assert found.refusal is not None
    assert found.refusal.reason is Reason.LIMIT_EXCEEDED
    told = row.exceeded(row.most + 1)
    assert told in found.refusal.message
    assert [problem for problem in given.problems if told in problem.message and problem.field]
    assert not [problem for problem in given.problems if problem.severity == "error"]  # `plan` exits 3, not 2


@pytest.mark.parametrize("name", PODS)
def test_what_is_left_of_a_pod_beyond_a_bound_is_within_all(name: str) -> None:
    """It may run all the same, and is booked then."""
    (found,) = pods_of(read(*objects(PODS[name](4 * bound(name).most))))
    assert len(found.resources) <= bounds.RESOURCES_PER_POD.most
    assert len(found.containers) <= bounds.CONTAINERS.most
    assert sum(ask.count for one in found.containers for ask in one.asks) <= bounds.CARDS_PER_POD.most
    assert all(len(rules.use_types) <= bounds.CARD_TYPES.most for rules in found.device_rules)
    assert all(len(rules.nouse_uuids) <= bounds.CARD_UUIDS.most for rules in found.device_rules)
    assert len(found.node_rules.tolerations) <= bounds.TOLERATIONS.most
    assert len(found.relations.claims) <= bounds.CLAIMS.most
    assert len(found.labels) <= bounds.LABELS_PER_POD.most


@pytest.mark.parametrize("name", NODES)
def test_nodes_keep_what_is_within_a_bound_and_say_what_they_lose(name: str) -> None:
    make, left, beyond = NODES[name]
    row = bound(name)
    for count in (row.most - 1, row.most):
        given = read(make(count))
        assert not [problem for problem in given.problems if "docs/limits.md" in problem.message], count
    given = read(make(row.most + 1))
    assert left(given) == beyond
    warnings = [problem for problem in given.problems if problem.severity == "warning" and "more than" in str(problem)]
    warnings += [problem for problem in given.problems if row.exceeded(row.most + 1) in problem.message]
    assert warnings
    assert all(problem.field for problem in warnings)


@pytest.mark.parametrize("name", QUEUES)
def test_queues_keep_what_is_within_a_bound_and_say_what_they_lose(name: str) -> None:
    make, left, beyond = QUEUES[name]
    row = bound(name)
    given = read(*objects(make(row.most)))
    assert not given.problems
    assert left(given) == row.most
    given = read(*objects(make(row.most + 1)))
    assert left(given) == beyond
    assert [problem for problem in given.problems if row.exceeded(row.most + 1) in problem.message]


@pytest.mark.parametrize(("length", "same"), [(253, True), (254, False), (10_000, False)])
def test_the_name_of_a_queue(length: int, same: bool) -> None:
    (found,) = pods_of(read(pod("p", meta={"annotations": {"dovetail.dev/queue": "q" * length}})))
    assert (len(found.queue) <= 253) == same
    assert len(found.queue) <= 254


def test_a_node_whose_taints_are_cut_takes_no_new_pods() -> None:
    make, _, _ = NODES["taints"]
    assert not read(make(256)).nodes[0].unschedulable
    assert read(make(257)).nodes[0].unschedulable


@pytest.mark.parametrize(("count", "believed"), [(1_023, True), (1_024, True), (1_025, False)])
def test_shares_of_a_running_pod(count: int, believed: bool) -> None:
    """256 cards each for four containers and a fifth: 1,024 and 1,025 in all."""
    each = [256] * (count // 256) + ([count % 256] if count % 256 else [])
    words = "".join("".join(f"GPU-{n},NVIDIA,1,1:" for n in range(part)) + ";" for part in each)
    runs = pod(
        "r",
        *(container({GPU: part}, name=f"c{at}") for at, part in enumerate(each)),
        meta={"annotations": {ALLOCATED: words}},
        nodeName="n",
    )
    (running,) = read(node("n", *cards(256)), runs).running
    assert (running.shares is not None) == believed


@pytest.mark.parametrize(
    ("limits", "right"),
    [
        ({"memory": 2**53}, True),
        ({"memory": 2**53 + 1}, False),
        ({GPU: 1, MEM: 2**31 - 1}, True),
        ({GPU: 1, MEM: 2**31}, False),
    ],
)
def test_amounts(limits: Object, right: bool) -> None:
    (found,) = pods_of(read(pod("p", container(limits))))
    assert (found.refusal is None) == right
    assert found.refusal is None or found.refusal.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("chain", "right"), [("spread,binpack,numa,mutex", True), ("spread,binpack,numa,mutex,topology-aware", False)]
)
def test_policy_chains(chain: str, right: bool) -> None:
    (found,) = pods_of(read(gpu_pod({"dovetail.dev/gpu-policy": chain}, gpu=1)))
    assert (found.refusal is None) == right


def test_a_count_of_2147483647_cards_is_refused_and_counts_as_256() -> None:
    """The process died of it: 96 GiB for as many entries. A pod that runs in spite of it holds its node's cards."""
    (found,) = pods_of(read(gpu_pod(gpu="2147483647")))
    assert found.refusal is not None
    assert found.refusal.message == (
        "spec.containers[0].resources.limits.nvidia.com/gpu: 2,147,483,647 cards are asked for by one container;"
        " at most 256 are read (docs/limits.md)"
    )
    assert [ask.count for one in found.containers for ask in one.asks] == [256]


@pytest.mark.parametrize(("values", "right"), [(1_022, True), (1_023, True), (1_024, False)])
def test_selectors_of_claims(values: int, right: bool) -> None:
    """The key counts as well: 1 + 1,023 = 1,024."""
    row = {"key": "zone", "operator": "In", "values": [f"v{n}" for n in range(values)]}
    claim = other("PersistentVolumeClaim", name="c", spec={"selector": {"matchExpressions": [row]}})
    given = read(claim)
    assert len(given.volumes) == right
    errors = [problem.message for problem in given.problems if problem.severity == "error"]
    assert errors == (
        [] if right else [f"{bounds.CLAIM_SELECTOR.exceeded(1_025)}; the PersistentVolumeClaim is left out"]
    )


def budget(name: str, *values: str) -> Object:
    rows = [{"key": "app", "operator": "NotIn", "values": list(values)}]
    return other("PodDisruptionBudget", "policy/v1", name, spec={"selector": {"matchExpressions": rows}})


@pytest.mark.parametrize(("values", "right"), [(254, True), (255, True), (256, False)])
def test_selectors_of_objects(values: int, right: bool) -> None:
    """The key counts as well: 1 + 255 = 256. A Service has labels only, at most as many as the pods that it selects."""
    names = [f"v{n}" for n in range(values)]
    given = read(budget("b", *names))
    assert len(given.budgets) == right
    errors = [problem.message for problem in given.problems if problem.severity == "error"]
    assert errors == ([] if right else [f"{bounds.OBJECT_SELECTOR.exceeded(257)}; the budget is ignored"])
    rows = [{"key": "app", "operator": "NotIn", "values": names}]
    owner = workload("ReplicaSet", "web", selector={"matchExpressions": rows})
    assert len(read(owner).selecting) == right


@pytest.mark.parametrize(("count", "left"), [(499, 499), (500, 500), (501, 500), (1_000, 500)])
def test_budgets_of_one_namespace(count: int, left: int) -> None:
    """Each is held against each pod that could be stopped. With 20,000, one row of nodes took 0.2 s for each pod."""
    elsewhere = budget("b", "y")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    given = read(elsewhere, *(budget(f"b{n:05}", "y") for n in range(count)))
    assert [sum(one.namespace == name for one in given.budgets) for name in ("default", "elsewhere")] == [left, 1]
    errors = [problem.message for problem in given.problems if problem.severity == "error"]
    assert len(errors) == count - left
    assert not errors or errors[0] == f"{bounds.BUDGETS.exceeded(501)}; this one is left out"


def csi_node(*drivers: Object) -> Object:
    return other("CSINode", "storage.k8s.io/v1", "n", spec={"drivers": list(drivers)})


@pytest.mark.parametrize(("count", "right"), [(255, True), (256, True), (257, False)])
def test_volume_drivers_of_a_node(count: int, right: bool) -> None:
    given = read(csi_node(*({"name": f"d{n}", "allocatable": {"count": 1}} for n in range(count))))
    assert len(given.volumes) == right
    errors = [problem.message for problem in given.problems if problem.severity == "error"]
    assert errors == ([] if right else [f"{bounds.VOLUME_DRIVERS.exceeded(257)}; the CSINode is left out"])


@pytest.mark.parametrize(
    ("count", "right"), [(0, True), (2**31 - 1, True), (-1, False), (2**31, False), (2**63, False)]
)
def test_attach_limits(count: int, right: bool) -> None:
    """The API's type is int32. In a file, 2^63 ended `plan` with an OverflowError."""
    given = read(csi_node({"name": "d"}, {"name": "e", "allocatable": {"count": count}}))
    assert [fact.most for fact in given.volumes if isinstance(fact, AttachLimits)] == ([{"e": count}] if right else [])
    wrong = [problem.field for problem in given.problems if problem.severity == "error"]
    assert wrong == ([] if right else ["spec.drivers[1].allocatable.count"])


def test_the_page_for_users_has_the_same_table() -> None:
    lines = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    assert lines == [f"| `{row.name}` | {row.most:,} | {row.what} | {row.field} | {row.beyond} |" for row in BOUNDS]


def test_the_modules_that_compare_exist() -> None:
    folder = Path(bounds.__file__).parent.parent
    for row in BOUNDS:
        for module in row.checked.split(", "):
            assert "bounds" in (folder / f"{module}.py").read_text(), row
