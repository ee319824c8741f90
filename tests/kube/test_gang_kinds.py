"""Every way to say "gang", as it is read: who belongs together, in which role, how many, and where."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model.gang import ANYWHERE, DomainSpread, Role, TopologyRule
from dovetail.model.pod import Group
from dovetail.model.reason import Reason
from tests.kube.manifests import Object, container, node, other, pod, read, said, workload

RACK, HOST = "topology.kubernetes.io/rack", "kubernetes.io/hostname"


def notes(**given: str) -> Object:
    """notes(gang="x", gang_size="4") are annotations of ours."""
    return {"annotations": {f"dovetail.dev/{name.replace('_', '-')}": value for name, value in given.items()}}


def only_group(*objects: Object) -> Group:
    (group,) = read(*objects).groups
    return group


def roles(group: Group) -> dict[str, int]:
    return {role.name: role.minimum for role in group.roles}


def koordinator(name: str, **given: str) -> Object:
    rows = {"name": name, **{key.replace("_", "-"): value for key, value in given.items()}}
    return {"annotations": {f"gang.scheduling.koordinator.sh/{key}": value for key, value in rows.items()}}


class TestOurAnnotations:
    def test_pods_without_any_object(self) -> None:
        meta = notes(gang="train", gang_size="3")
        group = only_group(pod("a", meta=meta), pod("b", meta=meta), pod("c", meta=meta, nodeName="n"), node("n"))
        assert (group.title, group.minimum, group.running, len(group.pods)) == ("default/train", 3, 1, 2)
        assert group.name == "PodGroup/default/train@dovetail.dev"

    def test_roles_of_different_size(self) -> None:
        launcher = notes(gang="mpi", gang_size="5", gang_role="launcher", gang_role_size="1")
        worker = notes(gang="mpi", gang_size="5", gang_role="worker", gang_role_size="4")
        group = only_group(pod("l", meta=launcher), *(pod(f"w{number}", meta=worker) for number in range(4)))
        assert roles(group) == {"launcher": 1, "worker": 4}
        assert {member.name: member.role for member in group.pods} == {
            "l": "launcher", **{f"w{number}": "worker" for number in range(4)},
        }  # fmt: skip

    def test_pods_that_disagree_need_the_largest_number(self) -> None:
        group = only_group(pod("a", meta=notes(gang="g", gang_size="2")), pod("b", meta=notes(gang="g", gang_size="4")))
        assert group.minimum == 4

    def test_topology_of_a_gang_without_roles(self) -> None:
        meta = notes(
            gang="g", gang_size="2", topology_required=RACK, topology_preferred=HOST, topology_spread=f"{HOST}<=8"
        )
        group = only_group(pod(meta=meta))
        assert group.topology == TopologyRule(RACK, HOST, (DomainSpread(HOST, most_each=8),))

    def test_topology_of_a_role_and_of_the_whole_gang(self) -> None:
        meta = notes(
            gang="g", gang_size="2", gang_role="worker", gang_role_size="2",
            topology_required=HOST, gang_topology_required=RACK,
        )  # fmt: skip
        group = only_group(pod(meta=meta))
        assert group.topology == TopologyRule(RACK)
        assert group.roles == (Role("worker", 2, TopologyRule(HOST)),)

    def test_spread_over_racks_and_hosts(self) -> None:
        meta = notes(gang="g", gang_size="9", topology_spread=f"{RACK} >= 3, {HOST}<=8, {RACK}<=20")
        assert only_group(pod(meta=meta)).topology.spreads == (DomainSpread(RACK, 3, 20), DomainSpread(HOST, 0, 8))

    @pytest.mark.parametrize(
        ("given", "field", "message"),
        [
            ({"gang": "g"}, "gang-size", "is missing; write how many pods of the gang start together"),
            ({"gang": "g", "gang_size": "many"}, "gang-size", "'many' is no number of pods"),
            ({"gang": "g", "gang_size": "0"}, "gang-size", "'0' is no number of pods"),
            ({"gang": "g", "gang_size": "10001"}, "gang-size", "at most 10,000 are read"),
            ({"gang": "g", "gang_size": "2", "gang_role_size": "2"}, "gang-role-size", "has no effect without"),
            ({"gang": "g", "gang_size": "2", "topology_required": "a b"}, "topology-required", "is no node label"),
            ({"gang": "g", "gang_size": "2", "topology_spread": "rack=3"}, "topology-spread", "write LABEL>=N"),
            ({"gang": "g", "gang_size": "2", "topology_spread": "rack>=0"}, "topology-spread", "write LABEL>=N"),
            ({"gang": "g", "gang_size": "2", "topology_spread": "r>=1,r>=2"}, "topology-spread", "stands there twice"),
            ({"gang": "true"}, "gang", "means the pod's JobSet, LeaderWorkerSet or Job, and it has none"),
        ],
    )
    def test_what_is_wrong_names_the_field_and_the_cure(self, given: dict[str, str], field: str, message: str) -> None:
        found = read(pod(meta=notes(**given)))
        refusal = found.groups[0].pods[0].refusal
        assert refusal is not None
        assert refusal.reason is Reason.INVALID_REQUEST
        assert message in refusal.message
        assert said(found, "error", f"metadata.annotations.dovetail.dev/{field}")

    def test_a_rule_without_a_gang_is_pointed_out_and_changes_nothing(self) -> None:
        found = read(pod(meta=notes(topology_required=RACK)))
        (group,) = found.groups
        assert (group.topology, group.pods[0].refusal) == (ANYWHERE, None)
        assert said(found, "warning", "metadata.annotations.dovetail.dev/topology-required")

    def test_a_plain_job(self) -> None:
        template = {"metadata": notes(gang="true", gang_size="4"), "spec": {"containers": [container()]}}
        group = only_group(workload("Job", "train", template, parallelism=4, completions=4))
        assert (group.title, group.minimum, len(group.pods)) == ("default/job-train", 4, 4)


class TestKoordinator:
    def test_a_gang_without_a_pod_group(self) -> None:
        meta = koordinator("g", min_available="2", waiting_time="10m", total_number="3", mode="NonStrict")
        group = only_group(pod("a", meta=meta), pod("b", meta=meta), pod("c", meta=meta))
        assert (group.title, group.minimum, group.roles) == ("default/g", 2, ())
        assert group.pods[0].terms.time_limit == 600.0

    def test_a_pod_group_counts_before_the_annotation(self) -> None:
        item = other("PodGroup", "scheduling.sigs.k8s.io/v1alpha1", "g", spec={"minMember": 5})
        assert only_group(item, pod(meta=koordinator("g", min_available="2"))).minimum == 5

    def test_without_a_minimum_the_pod_waits(self) -> None:
        refusal = only_group(pod(meta=koordinator("g"))).pods[0].refusal
        assert refusal is not None
        assert refusal.reason is Reason.GROUP_UNKNOWN

    def test_gangs_that_start_together_are_one_group(self) -> None:
        """2 of `ps` and 3 of `worker`: 5 start together, each gang is a role."""
        both = '["default/ps", "default/worker"]'
        parts = [pod(f"p{n}", meta=koordinator("ps", min_available="2", groups=both)) for n in range(2)]
        parts += [pod(f"w{n}", meta=koordinator("worker", min_available="3", groups=both)) for n in range(3)]
        group = only_group(*parts)
        assert (group.title, group.minimum) == ("default/ps+worker", 5)
        assert roles(group) == {"default/ps": 2, "default/worker": 3}
        assert {member.role for member in group.pods} == {"default/ps", "default/worker"}

    def test_a_partner_that_is_not_known_is_named(self) -> None:
        both = '["default/ps", "ml/worker"]'
        refusal = only_group(pod(meta=koordinator("ps", min_available="1", groups=both))).pods[0].refusal
        assert refusal is not None
        assert refusal.reason is Reason.GROUP_UNKNOWN
        assert "PodGroup ml/worker" in refusal.message

    def test_pod_groups_that_start_together(self) -> None:
        both = {"gang.scheduling.koordinator.sh/groups": '["default/a", "default/b"]'}
        items = [
            other("PodGroup", "scheduling.sigs.k8s.io/v1alpha1", name, spec={"minMember": size})
            for name, size in (("a", 1), ("b", 2))
        ]
        for item in items:
            item["metadata"]["annotations"] = both
        label = "pod-group.scheduling.sigs.k8s.io"
        pods = [pod(name, meta={"labels": {label: name[0]}}) for name in ("a0", "b0", "b1")]
        group = only_group(*items, *pods)
        assert (group.title, group.minimum, roles(group)) == ("default/a+b", 3, {"default/a": 1, "default/b": 2})

    @pytest.mark.parametrize("text", ["x", "[]", '["a"]', '["default/other"]', '["a/b/c", "default/g"]'])
    def test_a_wrong_list_of_gangs(self, text: str) -> None:
        refusal = only_group(pod(meta=koordinator("g", min_available="1", groups=text))).pods[0].refusal
        assert refusal is not None
        assert refusal.reason is Reason.INVALID_REQUEST


def volcano(**spec: Any) -> Object:
    return other("PodGroup", "scheduling.volcano.sh/v1beta1", "g", spec=spec)


def task(name: str) -> Object:
    return {"annotations": {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": name}}


class TestVolcano:
    def test_tasks_with_their_own_minimums(self) -> None:
        item = volcano(minMember=3, minTaskMember={"ps": 1, "worker": 2}, queue="ml")
        group = only_group(item, pod("p", meta=task("ps")), pod("w", meta=task("worker")))
        assert (group.minimum, roles(group)) == (3, {"ps": 1, "worker": 2})
        assert {(member.role, member.queue) for member in group.pods} == {
            ("ps", "volcano/ml"),
            ("worker", "volcano/ml"),
        }

    def test_tasks_count_only_up_to_the_minimum_of_the_group(self) -> None:
        """Volcano's gang plugin leaves tasks out whose minimums together exceed minMember: 1 + 4 > 3."""
        item = volcano(minMember=3, minTaskMember={"ps": 1, "worker": 4})
        assert roles(only_group(item, pod(meta=task("ps")))) == {}

    @pytest.mark.parametrize(
        ("given", "rule"),
        [
            ({"mode": "hard", "highestTierAllowed": 2}, TopologyRule("volcano.sh/hypernode-tier-2")),
            ({"mode": "soft"}, TopologyRule(preferred="volcano.sh/hypernode-tier-1")),
            ({"mode": "hard"}, ANYWHERE),
            ({"mode": "hard", "highestTierName": "spine"}, TopologyRule("volcano.sh/hypernode-tier-name-spine")),
        ],
    )
    def test_network_topology(self, given: Object, rule: TopologyRule) -> None:
        assert only_group(volcano(minMember=1, networkTopology=given), pod(meta=task("w"))).topology == rule

    def test_a_volcano_job_gives_its_tasks_and_its_topology(self) -> None:
        tasks = [
            {"name": name, "replicas": count, "template": {"spec": {"containers": [container()]}}}
            for name, count in (("ps", 1), ("worker", 2))
        ]
        spec = {"tasks": tasks, "minAvailable": 3, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
        group = only_group(
            {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
        )
        assert (group.minimum, roles(group)) == (3, {"ps": 1, "worker": 2})
        assert group.topology == TopologyRule("volcano.sh/hypernode-tier-1")
        assert [member.role for member in group.pods] == ["ps", "worker", "worker"]


class TestKai:
    def test_sub_groups(self) -> None:
        levels = {"topology": "cluster", "requiredTopologyLevel": RACK}
        spec = {
            "minMember": 3,
            "queue": "ml",
            "topologyConstraint": {**levels, "preferredTopologyLevel": HOST},
            "subGroups": [
                {"name": "all", "topologyConstraint": levels},
                {"name": "decode", "minMember": 2, "parent": "all"},
                {
                    "name": "prefill",
                    "minMember": 1,
                    "parent": "all",
                    "topologyConstraint": {"requiredTopologyLevel": HOST},
                },
            ],
        }
        meta = {"annotations": {"pod-group-name": "g"}, "labels": {"kai.scheduler/subgroup-name": "decode"}}
        group = only_group(other("PodGroup", "scheduling.run.ai/v2alpha2", "g", spec=spec), pod(meta=meta))
        assert (group.minimum, group.topology) == (3, TopologyRule(RACK, HOST))
        assert group.roles == (
            Role("decode", 2, TopologyRule(RACK)),
            Role("prefill", 1, TopologyRule(HOST)),
        )
        assert (group.pods[0].role, group.pods[0].queue) == ("decode", "kai/ml")


class TestKubernetes:
    def test_a_topology_constraint(self) -> None:
        spec = {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": RACK}]},
        }
        item = other("PodGroup", "scheduling.k8s.io/v1beta1", "g", spec=spec)
        assert only_group(item, pod(schedulingGroup={"podGroupName": "g"})).topology == TopologyRule(RACK)

    def test_the_workload_of_1_35_and_its_replicas(self) -> None:
        spec = {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]}
        item = other("Workload", "scheduling.k8s.io/v1alpha1", "train", spec=spec)
        ref = {"name": "train", "podGroup": "workers"}
        pods = [pod(f"{key}{n}", workloadRef={**ref, "podGroupReplicaKey": key}) for key in "xy" for n in range(2)]
        groups = read(item, *pods).groups
        assert [(group.title, group.minimum, len(group.pods)) for group in groups] == [
            ("default/train/workers/x", 2, 2),
            ("default/train/workers/y", 2, 2),
        ]

    def test_a_workload_that_is_not_there(self) -> None:
        refusal = only_group(pod(workloadRef={"name": "train", "podGroup": "workers"})).pods[0].refusal
        assert refusal is not None
        assert "the group workers of Workload default/train is not in the input" in refusal.message


def job_set(opt_in: bool = True, **more: Any) -> Object:
    template = {"spec": {"containers": [container()]}, "metadata": notes(gang="true") if opt_in else {}}
    jobs = [
        {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": pods, "template": template}}}
        for name, replicas, pods in (("driver", 1, 1), ("workers", 2, 3))
    ]
    return other("JobSet", "jobset.x-k8s.io/v1alpha2", "js", spec={"replicatedJobs": jobs, **more})


class TestSets:
    def test_a_whole_job_set(self) -> None:
        """1 driver and 2 Jobs of 3 workers: 7 pods start together."""
        group = only_group(job_set())
        assert (group.minimum, len(group.pods), roles(group)) == (7, 7, {"driver": 1, "workers": 6})

    def test_a_job_set_without_the_annotation_is_no_gang(self) -> None:
        assert {len(group.pods) for group in read(job_set(opt_in=False)).groups} == {1}

    def test_jobs_that_wait_for_others_are_not_needed_to_start(self) -> None:
        group = only_group(job_set(startupPolicy={"startupPolicyOrder": "InOrder"}))
        assert (group.minimum, roles(group)) == (1, {"driver": 1})

    def test_each_group_of_a_leader_worker_set_is_a_gang(self) -> None:
        template = {"metadata": notes(gang="true"), "spec": {"containers": [container()]}}
        spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template}}
        groups = read(other("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "lws", spec=spec)).groups
        assert [(group.title, group.minimum, len(group.pods)) for group in groups] == [
            ("default/lws-0", 3, 3),
            ("default/lws-1", 3, 3),
        ]
        assert roles(groups[0]) == {"leader": 1, "worker": 2}
