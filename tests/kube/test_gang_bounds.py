"""Bounds of gangs and topologies: at the bound an object is read whole, beyond it the message names the bound."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.kube.api.watch import Changed
from dovetail.kube.conversion import topology_rules
from dovetail.kube.live.pod_group_objects import PodGroupObjects
from dovetail.kube.objects import bounds
from dovetail.kube.objects.gangs import PodGroup
from dovetail.model.reason import Reason
from tests.kube.manifests import Object, node, other, pod, read
from tests.kube.test_gang_kinds import notes

RACK = "topology.kubernetes.io/rack"


@pytest.mark.parametrize(("count", "right"), [(64, True), (65, False), (500, False)])
def test_roles_of_a_gang(count: int, right: bool) -> None:
    tasks = {f"t{n}": 1 for n in range(count)}
    item = other("PodGroup", "scheduling.volcano.sh/v1beta1", "g", spec={"minMember": count, "minTaskMember": tasks})
    (group,) = read(item, pod(meta={"annotations": {"scheduling.k8s.io/group-name": "g"}})).groups
    refusal = group.pods[0].refusal
    assert (refusal is None) == right
    assert len(group.roles) == (count if right else 0)
    if refusal is not None:
        assert refusal.reason is Reason.LIMIT_EXCEEDED
        assert bounds.GANG_ROLES.exceeded(65) in refusal.message


@pytest.mark.parametrize(("length", "right"), [(253, True), (254, False), (10_000, False)])
def test_the_name_of_a_gang_and_of_a_role(length: int, right: bool) -> None:
    """A name that is cut is one character too long, so that it matches no other."""
    (group,) = read(pod(meta=notes(gang="g" * length, gang_size="1", gang_role="r" * length))).groups
    name = group.title.partition("/")[2]
    assert (len(name), len(group.pods[0].role)) == (length, length) if right else (254, 254)


@pytest.mark.parametrize(("count", "right"), [(64, True), (65, False)])
def test_statements_of_the_pods_of_one_gang(count: int, right: bool) -> None:
    pods = [pod(f"p{n}", meta=notes(gang="g", gang_size=str(n + 1))) for n in range(count)]
    (group,) = read(*pods).groups
    refusals = {member.refusal.reason if member.refusal else None for member in group.pods}
    assert refusals == ({None} if right else {Reason.LIMIT_EXCEEDED})


@pytest.mark.parametrize(("length", "right"), [(317, True), (318, False)])
def test_the_name_of_a_node_label(length: int, right: bool) -> None:
    label = f"{'a' * 253}/{'b' * (length - 254)}"
    (group,) = read(pod(meta=notes(gang="g", gang_size="1", topology_required=label))).groups
    assert (group.pods[0].refusal is None) == right


@pytest.mark.parametrize(("count", "right"), [(8, True), (9, False)])
def test_limits_in_one_annotation(count: int, right: bool) -> None:
    text = ",".join(f"label{n}>=1" for n in range(count))
    (group,) = read(pod(meta=notes(gang="g", gang_size="1", topology_spread=text))).groups
    assert (group.pods[0].refusal is None) == right


def test_blanks_in_a_rule_are_not_kept() -> None:
    """Rules are kept by their text, which a tenant writes: blanks beyond the bound are an error, others are cut."""
    key, kept = topology_rules.ROLE_RULES[2], topology_rules._rule
    kept.cache_clear()
    rules = {topology_rules.rule_of({key: f"rack{' ' * n}>=2"}) for n in range(1, 50)}
    assert (len(rules), kept.cache_info().currsize) == (1, 1)
    long = f"rack{' ' * bounds.REQUEST_ANNOTATION.most}>=2"
    with pytest.raises(topology_rules.TopologyError, match="32,768 are read"):
        topology_rules.rule_of({key: long})
    item = other("PodGroup", "scheduling.x-k8s.io/v1alpha1", "g", spec={"minMember": 1})
    item["metadata"]["annotations"] = {key: long}
    given = read(item, pod(meta={"labels": {"scheduling.x-k8s.io/pod-group": "g"}}))
    assert [problem.field for problem in given.problems] == [f"metadata.annotations.{key}"]
    assert kept.cache_info().currsize == 1


@pytest.mark.parametrize("count", [16, 17])
def test_levels_of_a_topology(count: int) -> None:
    levels = [{"nodeLabel": f"level{n}"} for n in range(count)]
    given = read(other("Topology", "kai.scheduler/v1alpha1", "t", spec={"levels": levels}))
    ((name, found),) = given.topologies
    assert (name, len(found)) == ("kai.scheduler/t", 16)
    assert bool(given.problems) == (count > 16)


def hyper_node(name: str, tier: int, *members: str) -> Object:
    rows = [{"type": "Node", "selector": {"exactMatch": {"name": member}}} for member in members]
    return other("HyperNode", "topology.volcano.sh/v1alpha1", name, spec={"tier": tier, "members": rows})


@pytest.mark.parametrize("count", [10_000, 10_001])
def test_members_of_a_hyper_node(count: int) -> None:
    """The last member is the node: beyond the bound it is left out."""
    given = read(hyper_node("s0", 1, *(f"x{n}" for n in range(count - 1)), "n"), node("n"))
    assert given.nodes[0].labels.get("volcano.sh/hypernode-tier-1") == ("s0" if count <= 10_000 else None)


@pytest.mark.parametrize("count", [20_000, 20_001])
def test_hyper_nodes(count: int) -> None:
    """In the order of names, the last one has the node."""
    items = [hyper_node(f"s{n:05}", 1) for n in range(count - 1)]
    given = read(*items, hyper_node("z", 1, "n"), node("n"))
    assert given.nodes[0].labels.get("volcano.sh/hypernode-tier-1") == ("z" if count <= 20_000 else None)


@pytest.mark.parametrize(("beside", "right"), [(0, True), (1, False)])
def test_the_status_of_a_pod_group(beside: int, right: bool) -> None:
    """The JSON of the status and of no minimum resources is `["…",{}]`: 7 bytes beside the text."""
    text = "x" * (bounds.POD_GROUP_STATUS.most - 7 + beside)
    source = msgspec.convert({"metadata": {"name": "g", "namespace": "ml"}, "status": text}, PodGroup)
    known = PodGroupObjects()
    known.hear([Changed(source)], "scheduling.x-k8s.io", "v1alpha1")
    ((_, found),) = known
    assert (found.too_large, found.source.status) == ((False, text) if right else (True, None))


@pytest.mark.parametrize(
    ("version", "spec", "meta"),
    [
        (
            "scheduling.x-k8s.io/v1alpha1",
            {"minMember": 1, "scheduleTimeoutSeconds": 10**400},
            {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
        ),
        (
            "scheduling.run.ai/v2alpha2",
            {"subGroups": [{"name": name, "minMember": 9 * 10**4_299} for name in "ab"]},
            {"annotations": {"pod-group-name": "g"}},
        ),
    ],
)
def test_numbers_of_a_pod_group_that_no_float_and_no_text_has(version: str, spec: Object, meta: Object) -> None:
    (group,) = read(other("PodGroup", version, "g", spec=spec), pod(meta=meta)).groups
    assert (group.pods[0].refusal is None) == ("subGroups" not in spec)
