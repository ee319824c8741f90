"""Affinity between pods, spread, ports, claims, images: as the manifest says them, and as the engine has them."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from dovetail.model.relations import (
    NO_PREFERENCES,
    NO_RELATIONS,
    HostPort,
    PodTerm,
    Preferences,
    Relations,
    Selector,
    SpreadConstraint,
)
from dovetail.model.rules import AffinityTerm, Requirement
from tests.kube.manifests import Object, container, node, only_pod, pod, read, said, workload

REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
WEB = {"matchLabels": {"app": "web"}}
IS_WEB = Selector((("app", "web"),))


def related(labels: Object | None = None, **spec: Any) -> Pod:
    return only_pod(pod("p", meta={"namespace": "ours", "labels": labels or {}}, **spec))


def near(*terms: Object) -> tuple[PodTerm, ...]:
    return related({"app": "web", "v": "2"}, affinity={"podAffinity": {REQUIRED: list(terms)}}).relations.affinity


class TestPodTerms:
    def test_all_four_lists(self) -> None:
        term = {"topologyKey": "zone", "labelSelector": WEB}
        both = {REQUIRED: [term], PREFERRED: [{"weight": 7, "podAffinityTerm": term}]}
        one = PodTerm("zone", IS_WEB, ("ours",))
        weighted = PodTerm("zone", IS_WEB, ("ours",), weight=7)
        assert related(affinity={"podAffinity": both, "podAntiAffinity": both}).relations == Relations(
            (one,), (one,), (weighted,), (weighted,)
        )

    @pytest.mark.parametrize(
        ("given", "namespaces", "among"),
        [
            ({}, ("ours",), None),
            ({"namespaces": ["a", "b"]}, ("a", "b"), None),
            ({"namespaceSelector": {}}, (), Selector()),
            ({"namespaceSelector": {"matchLabels": {"t": "x"}}}, (), Selector((("t", "x"),))),
            ({"namespaces": ["a"], "namespaceSelector": {}}, ("a",), Selector()),
        ],
    )
    def test_which_namespaces(self, given: Object, namespaces: tuple[str, ...], among: Selector | None) -> None:
        (term,) = near({"topologyKey": "zone", "labelSelector": WEB, **given})
        assert (term.namespaces, term.namespace_selector) == (namespaces, among)

    def test_no_selector_matches_nobody_and_an_empty_one_everybody(self) -> None:
        nobody, everybody = near({"topologyKey": "zone"}, {"topologyKey": "zone", "labelSelector": {}})
        assert nobody.selector is None
        assert everybody.selector == Selector()

    def test_keys_of_labels_become_expressions(self) -> None:
        keys = {"matchLabelKeys": ["v", "absent"], "mismatchLabelKeys": ["app"]}
        merged = Selector((("app", "web"),), (Requirement("v", "In", ("2",)), Requirement("app", "NotIn", ("web",))))
        assert near({"topologyKey": "zone", "labelSelector": WEB, **keys})[0].selector == merged
        assert near({"topologyKey": "zone", **keys})[0].selector is None

    def test_what_the_api_server_merged_already_is_not_merged_again(self) -> None:
        """The pod was made when its label v was 1: the API server wrote that down, and kube-scheduler goes by it."""
        written = {**WEB, "matchExpressions": [{"key": "v", "operator": "In", "values": ["1"]}]}
        (term,) = near({"topologyKey": "zone", "labelSelector": written, "matchLabelKeys": ["v"]})
        assert term.selector == Selector((("app", "web"),), (Requirement("v", "In", ("1",)),))


class TestSpread:
    def test_what_is_not_said(self) -> None:
        given = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
        (found,) = related(topologySpreadConstraints=[given]).relations.spread
        assert found == SpreadConstraint("zone", 1, True, IS_WEB, 1, honour_affinity=True, honour_taints=False)

    def test_what_can_be_said(self) -> None:
        given = {
            "topologyKey": "zone",
            "maxSkew": 2,
            "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": 3,
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {},
            "matchLabelKeys": ["v"],
        }
        selector = Selector((), (Requirement("v", "In", ("2",)),))
        (found,) = related({"v": "2"}, topologySpreadConstraints=[given]).relations.spread
        assert found == SpreadConstraint("zone", 2, True, selector, 3, honour_affinity=False, honour_taints=True)


class TestPortsAndClaims:
    def test_ports_of_containers_that_stay(self) -> None:
        ports = [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP", "hostIP": "10.0.0.1"}, {"containerPort": 1}]
        init = container(name="init", ports=[{"containerPort": 1, "hostPort": 1}])
        sidecar = container(name="side", ports=[{"containerPort": 2, "hostPort": 2}], restartPolicy="Always")
        found = only_pod(pod("p", container(ports=ports), initContainers=[init, sidecar])).relations
        assert found == Relations(ports=(HostPort(2), HostPort(8080, "UDP", "10.0.0.1")))

    def test_on_the_hosts_network_every_port_is_the_hosts(self) -> None:
        found = only_pod(pod("p", container(ports=[{"containerPort": 80}]), hostNetwork=True)).relations
        assert found.ports == (HostPort(80),)

    def test_claims_named_and_claims_made(self) -> None:
        volumes = [
            {"name": "data", "persistentVolumeClaim": {"claimName": "theirs"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "config", "configMap": {"name": "c"}},
        ]
        claims = [_claim("theirs"), _claim("p-scratch")]
        (group,) = read(pod("p", volumes=volumes), *claims).groups
        assert group.pods[0].relations == Relations(claims=("theirs", "p-scratch"), ephemeral=("p-scratch",))
        template = {"spec": {"containers": [container()], "volumes": volumes}}
        (group,) = read(workload("Deployment", template=template), *claims).groups
        assert group.pods[0].relations.claims == ("theirs",)  # nothing is made yet for a pod that does not exist

    def test_a_claim_that_is_not_in_the_input_is_left_out_and_said(self) -> None:
        given = read(pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "theirs"}}]))
        assert given.groups[0].pods[0].relations.claims == ()
        assert any("PersistentVolumeClaim theirs is not in the input" in str(problem) for problem in given.problems)


def _claim(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {}}


class TestPreferences:
    def test_node_terms_and_images(self) -> None:
        terms = [{"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]
        found = only_pod(
            pod(
                "p",
                container(image="registry:5000/app"),
                container(name="two", image="app:1"),
                initContainers=[container(name="init", image="app@sha256:12")],
                affinity={"nodeAffinity": {PREFERRED: terms}},
                volumes=[{"name": "model", "image": {"reference": "weights"}}],
            )
        ).preferences
        assert found == Preferences(
            ((5, AffinityTerm((Requirement("disk", "Exists"),))),),
            ("app@sha256:12", "registry:5000/app:latest", "app:1", "weights:latest"),
            3,
        )

    def test_what_images_nodes_have(self) -> None:
        images = [{"names": ["app:1", "app@sha256:12"], "sizeBytes": 1000}, {"sizeBytes": 5}]
        manifest = node("n")
        manifest["status"]["images"] = images
        assert read(manifest).nodes[0].images == {"app:1": 1000, "app@sha256:12": 1000}


class TestSharing:
    def test_pods_without_rules_share_one_value(self) -> None:
        found = only_pod(pod("p", volumes=[{"name": "v", "emptyDir": {}}], affinity={"nodeAffinity": {}}))
        assert found.relations is NO_RELATIONS
        assert found.preferences is NO_PREFERENCES

    def test_pods_that_say_the_same_share_it(self) -> None:
        anti = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": WEB}]}}
        pods = [pod(name, container(image="app:1"), affinity=anti) for name in "ab"]
        first, second = (group.pods[0] for group in read(*pods).groups)
        assert first.relations is second.relations
        assert first.preferences is second.preferences


TERM = {"topologyKey": "zone", "labelSelector": WEB}
SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [{"labelSelector": WEB}]}}}, f"podAffinity.{REQUIRED}[0].topologyKey"),
        (
            {"affinity": {"podAntiAffinity": {PREFERRED: [{"podAffinityTerm": TERM}]}}},
            f"podAntiAffinity.{PREFERRED}[0].weight",
        ),
        (
            {
                "affinity": {
                    "podAffinity": {REQUIRED: [{**TERM, "labelSelector": {"matchExpressions": [{"key": "a"}]}}]}
                }
            },
            "labelSelector.matchExpressions[0].operator",
        ),
        ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 101}]}}}, f"nodeAffinity.{PREFERRED}[0].weight"),
        ({"topologySpreadConstraints": [{**SPREAD, "maxSkew": 0}]}, "[0].maxSkew"),
        ({"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "Never"}]}, "[0].whenUnsatisfiable"),
        ({"topologySpreadConstraints": [{**SPREAD, "nodeTaintsPolicy": "Maybe"}]}, "[0].nodeTaintsPolicy"),
        (
            {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}]},
            "[0].minDomains",
        ),
    ],
)
def test_what_the_api_server_would_reject_is_not_placed(spec: Object, field: str) -> None:
    given = read(pod("p", **spec))
    refusal = given.groups[0].pods[0].refusal
    assert refusal is not None
    assert refusal.reason is Reason.INVALID_REQUEST
    assert [problem.field.endswith(field) for problem in said(given, "error")] == [True]


class TestRunning:
    def running(self, status: Object, **spec: Any) -> Pod:
        made = pod("p", container(requests={"cpu": "2", "memory": "1Gi"}), nodeName="n", status=status, **spec)
        return read(node("n"), made).running[0].pod

    def test_a_pod_that_goes_is_leaving(self) -> None:
        going = pod("p", nodeName="n", meta={"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"}})
        found = read(node("n"), going).running[0].pod
        assert found.leaving
        assert found.labels == {"app": "web"}

    @pytest.mark.parametrize(
        ("given", "promised", "reason", "cpu"),
        [
            ("2", "2", "", 2000),
            ("4", "3", "", 4000),  # shrinks from 4 to 2: until kubelet has done it, 4
            ("1", "3", "", 3000),  # kubelet has promised 3 on the way
            ("1", "1", "", 2000),  # grows from 1 to 2
            ("1", "1", "Deferred", 2000),  # it may still be given
            ("1", "1", "Infeasible", 1000),  # it never will
        ],
    )
    def test_resize_in_place(self, given: str, promised: str, reason: str, cpu: int) -> None:
        status = {
            "containerStatuses": [
                {"name": "main", "resources": {"requests": {"cpu": given}}, "allocatedResources": {"cpu": promised}}
            ],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else [],
        }
        assert self.running(status).resources["cpu"] == cpu

    def test_resize_of_the_pod_as_a_whole(self) -> None:
        status = {"resources": {"requests": {"cpu": "8"}}, "allocatedResources": {"cpu": "6"}}
        assert self.running(status, resources={"requests": {"cpu": "5"}}).resources["cpu"] == 8000
        assert self.running({}, resources={"requests": {"cpu": "5"}}).resources["cpu"] == 5000
