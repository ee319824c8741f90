"""Every way to say "gang" on the real control plane, with the CRDs of deploy/crds.

Objects are written as their projects document them. Pods of JobSets and LeaderWorkerSets are written as their
controllers create them: the controllers are not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import yaml

from tests.live.dovetail_process import scheduling
from tests.live.test_scheduling import placed, reason
from tools.controlplane import objects
from tools.controlplane.access import DEPLOY
from tools.controlplane.client import Client, Object
from tools.controlplane.plane import ControlPlane

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SOON = 30.0
WHOLE = objects.gpu_limits(1, memory=15360, cores=100)
KOORDINATOR = "gang.scheduling.koordinator.sh/"
LWS, JOB_SET = "leaderworkerset.sigs.k8s.io/", "jobset.sigs.k8s.io/"
RACK = "topology.kubernetes.io/rack"
SCHEDULERS = ("dovetail", "koord-scheduler", "volcano", "kai-scheduler")


class Case(NamedTuple):
    objects: tuple[Object, ...]
    pods: tuple[Object, ...]  # the last one is created when the others wait
    missing: str  # what the first one says until then


def job_set_crd() -> Object:
    """JobSet without its schema: the project ships its own definition with its controller."""
    meta = {
        "name": "jobsets.jobset.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/jobset"},
    }
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    names = {"kind": "JobSet", "listKind": "JobSetList", "plural": "jobsets", "singular": "jobset"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": {"group": "jobset.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]},
    }


@contextmanager
def crds(api: Client) -> Iterator[None]:
    made = [yaml.safe_load(path.read_text()) for path in sorted((DEPLOY / "crds").glob("*.yaml"))]
    made.append(job_set_crd())
    for one in made:
        api.ask("POST", CRDS, one)
    try:
        yield
    finally:
        for one in made:
            api.ask("DELETE", f"{CRDS}/{one['metadata']['name']}")


def thing(version: str, kind: str, name: str, notes: Object | None = None, **spec: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "annotations": notes or {}}, "spec": spec}


def make(api: Client, item: Object) -> None:
    kind = item["kind"].lower()
    plural = f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"
    inside = "" if item["kind"] in ("Topology", "HyperNode") else "namespaces/default/"
    path = f"/apis/{item['apiVersion']}/{inside}{plural}"

    def made() -> bool:
        status, said = api.request("POST", path, item)
        assert status in (201, 404, 503), said  # until the CRD is established
        return status == 201

    api.wait_until(made, f"{item['kind']} {item['metadata']['name']} exists", SOON)


def noted(name: str, notes: Object, scheduler: str = "dovetail", labels: Object | None = None) -> Object:
    return objects.pod(name, WHOLE, scheduler, labels=labels, annotations=notes)


def ours() -> Case:
    notes = {"dovetail.dev/gang": "ours", "dovetail.dev/gang-size": "3"}
    sizes = (("launcher", "1"), ("worker", "2"), ("worker", "2"))
    roles = [{**notes, "dovetail.dev/gang-role": role, "dovetail.dev/gang-role-size": size} for role, size in sizes]
    return Case((), tuple(noted(f"ours-{n}", one) for n, one in enumerate(roles)), "members of default/ours")


def job() -> Case:
    labels = {"batch.kubernetes.io/job-name": "plain"}
    notes = {"dovetail.dev/gang": "true", "dovetail.dev/gang-size": "2"}
    pods = tuple(noted(f"plain-{n}", notes, labels=labels) for n in range(2))
    return Case((), pods, "1 of 2 members of default/job-plain")


def coscheduling() -> Case:
    group = thing("scheduling.x-k8s.io/v1alpha1", "PodGroup", "cos", minMember=2, scheduleTimeoutSeconds=10)
    pods = (noted(f"cos-{n}", {}, labels={"scheduling.x-k8s.io/pod-group": "cos"}) for n in range(2))
    return Case((group,), tuple(pods), "1 of 2 members of default/cos")


def koordinator() -> Case:
    group = thing("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", "koord", minMember=2, scheduleTimeoutSeconds=10)
    labels = {"pod-group.scheduling.sigs.k8s.io": "koord"}
    pods = (noted(f"koord-{n}", {}, "koord-scheduler", labels) for n in range(2))
    return Case((group,), tuple(pods), "1 of 2 members of default/koord")


def koordinator_annotations() -> Case:
    """Two gangs that start together; the last pod is the second gang."""
    both = '["default/ps", "default/tr"]'

    def notes(name: str, least: str) -> Object:
        return {f"{KOORDINATOR}name": name, f"{KOORDINATOR}min-available": least, f"{KOORDINATOR}groups": both}

    pods = [noted(f"tr-{n}", notes("tr", "2"), "koord-scheduler") for n in range(2)]
    pods.append(noted("ps-0", notes("ps", "1"), "koord-scheduler"))
    return Case((), tuple(pods), "PodGroup default/ps")


def volcano() -> Case:
    network = {"mode": "hard", "highestTierAllowed": 1}
    spec: Object = {
        "minMember": 3,
        "minTaskMember": {"ps": 1, "worker": 2},
        "queue": "default",
        "networkTopology": network,
    }
    group = thing("scheduling.volcano.sh/v1beta1", "PodGroup", "vol", **spec)
    pods = [
        noted(f"vol-{n}", {"scheduling.k8s.io/group-name": "vol", "volcano.sh/task-spec": task}, "volcano")
        for n, task in enumerate(("worker", "worker", "ps"))
    ]
    return Case((group,), tuple(pods), "members of default/vol")


def kai() -> Case:
    subs = [{"name": "prefill", "minMember": 1}, {"name": "decode", "minMember": 1}]
    rule = {"topology": "cluster", "requiredTopologyLevel": RACK}
    group = thing("scheduling.run.ai/v2alpha2", "PodGroup", "kai", minMember=2, subGroups=subs, topologyConstraint=rule)
    pods = [
        noted(
            f"kai-{sub['name']}",
            {"pod-group-name": "kai"},
            "kai-scheduler",
            {"kai.scheduler/subgroup-name": sub["name"]},
        )
        for sub in subs
    ]
    return Case((group,), tuple(pods), "members of default/kai")


def job_set() -> Case:
    jobs = [
        {"name": name, "replicas": 1, "template": {"spec": {"parallelism": pods, "completions": pods}}}
        for name, pods in (("driver", 1), ("workers", 2))
    ]
    item = thing("jobset.x-k8s.io/v1alpha2", "JobSet", "js", replicatedJobs=jobs)
    pods = [
        noted(
            f"js-{number}",
            {"dovetail.dev/gang": "true"},
            labels={f"{JOB_SET}jobset-name": "js", f"{JOB_SET}replicatedjob-name": name},
        )
        for number, name in enumerate(("driver", "workers", "workers"))
    ]
    return Case((item,), tuple(pods), "members of default/js")


def leader_worker_set() -> Case:
    pods = [
        noted(
            f"lws-0-{worker}",
            {"dovetail.dev/gang": "true", f"{LWS}size": "3", "dovetail.dev/topology-required": RACK},
            labels={f"{LWS}name": "lws", f"{LWS}group-index": "0", f"{LWS}worker-index": str(worker)},
        )
        for worker in range(3)
    ]
    return Case((), tuple(pods), "members of default/lws-0")


CASES = (
    *(ours, job, coscheduling, koordinator, koordinator_annotations),
    *(volcano, kai, job_set, leader_worker_set),
)


def nodes(api: Client) -> dict[str, str]:
    """Node -> rack. Sixteen nodes of two cards, two in each rack, which is also a HyperNode: three pods need a rack."""
    racks = {f"n{number}": f"r{number // 2}" for number in range(16)}
    for name, rack in racks.items():
        api.create(objects.node(name, gpus=2, labels={RACK: rack}))
    levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
    make(api, thing("kai.scheduler/v1alpha1", "Topology", "cluster", levels=levels))
    for rack in sorted(set(racks.values())):
        members = [
            {"type": "Node", "selector": {"exactMatch": {"name": name}}} for name, its in racks.items() if its == rack
        ]
        make(api, thing("topology.volcano.sh/v1alpha1", "HyperNode", rack, tier=1, members=members))
    return racks


def says(api: Client, name: str, text: str) -> None:
    api.wait_until(lambda: text in reason(api, name)["message"], f"{name} says {text!r}", SOON)


def test_every_kind_of_gang_is_bound_whole_or_not_at_all(plane: ControlPlane, api: Client) -> None:
    cases = [make_case() for make_case in CASES]
    names = [option for name in SCHEDULERS for option in ("--scheduler-name", name)]
    with crds(api):
        racks = nodes(api)
        with scheduling(plane, *names):
            for case in cases:
                for item in case.objects:
                    make(api, item)
                for pod in case.pods[:-1]:
                    api.create(pod)
            for case in cases:
                first = case.pods[0]["metadata"]["name"]
                says(api, first, case.missing)
            assert [item["metadata"]["name"] for item in api.list("Pod") if item["spec"].get("nodeName")] == []
            for case in cases:
                api.create(case.pods[-1])
            found: dict[str, str] = {}
            for case in cases:
                members = [pod["metadata"]["name"] for pod in case.pods]
                found.update(zip(members, placed(api, *members), strict=True))
    for prefix in ("vol-", "kai-", "lws-"):  # a required HyperNode of tier 1, or a required rack
        assert len({racks[node] for name, node in found.items() if name.startswith(prefix)}) == 1, prefix
