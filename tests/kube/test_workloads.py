"""Which pods run, which wait, and which a workload still has to make."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from dovetail.kube.conversion.cluster import load
from dovetail.kube.conversion.owners import NEWEST_CREATION
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files import decode
from dovetail.kube.files.documents import parse
from dovetail.kube.objects.problems import Problems
from tests.kube.manifests import GPU, Object, container, node, pod, pods_of, read, said, workload


def owned(kind: str, owner: str, name: str, **fields: Any) -> Object:
    reference = {"kind": kind, "name": owner, "controller": True, "uid": "u"}
    meta = {"ownerReferences": [reference], **fields.pop("meta", {})}
    return pod(name, meta=meta, **fields)


def names(*objects: Object) -> list[str]:
    return [found.name for found in pods_of(read(*objects))]


def test_replicas_are_named_by_ordinal_and_ordered_as_numbers() -> None:
    assert names(workload("Deployment", replicas=12)) == [f"web-{i}" for i in range(12)]
    assert names(workload("Deployment")) == ["web-0"]  # replicas default to 1
    assert names(workload("Deployment", replicas=0)) == []


def test_replicas_that_exist_are_not_made_twice() -> None:
    replica_set = workload("ReplicaSet", "web-5d4f", replicas=3)
    replica_set["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "web", "controller": True}]
    running = owned("ReplicaSet", "web-5d4f", "web-5d4f-abcde", nodeName="n")
    waiting = owned("ReplicaSet", "web-5d4f", "web-5d4f-fghij")
    given = read(workload("Deployment", replicas=3), replica_set, running, waiting, node("n"))
    assert [found.name for found in pods_of(given)] == ["web-0", "web-5d4f-fghij"]  # 3 − 1 running − 1 waiting = 1 new
    assert {found.owner for found in pods_of(given)} == {"Deployment/default/web"}
    assert given.running[0].pod.owner == "Deployment/default/web"


def test_replica_sets_of_a_deployment_that_is_not_there_count_their_own_pods() -> None:
    old, new = workload("ReplicaSet", "web-old", replicas=2), workload("ReplicaSet", "web-new", replicas=2)
    for replica_set in (old, new):
        replica_set["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "web", "controller": True}]
    running = [owned("ReplicaSet", "web-old", f"web-old-{letter}", nodeName="n") for letter in "ab"]
    given = read(node("n"), old, new, *running)
    assert [found.name for found in pods_of(given)] == ["web-new-0", "web-new-1"]  # old: 2 − 2, new: 2 − 0
    owners = {found.owner for found in (*pods_of(given), *(each.pod for each in given.running))}
    assert owners == {"Deployment/default/web"}  # siblings in every other respect


def test_without_the_replica_set_its_name_and_the_hash_tell() -> None:
    meta = {"labels": {"pod-template-hash": "5d4f"}}
    existing = owned("ReplicaSet", "web-5d4f", "web-5d4f-x", meta=meta, nodeName="n")
    assert names(workload("Deployment", replicas=2), existing, node("n")) == ["web-0"]


def test_ordinals_that_are_taken_are_left_out() -> None:
    assert names(workload("Deployment", replicas=2), pod("web-1", nodeName="n"), node("n")) == ["web-0", "web-2"]


def test_stateful_sets_keep_identities() -> None:
    existing = owned("StatefulSet", "web", "web-1", nodeName="n")
    assert names(workload("StatefulSet", replicas=3), existing, node("n")) == ["web-0", "web-2"]
    assert names(workload("StatefulSet", replicas=2, ordinals={"start": 5})) == ["web-5", "web-6"]


def test_terminating_pods_hold_their_node_and_are_replaced() -> None:
    going = owned("ReplicaSet", "web", "web-x", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}, nodeName="n")
    given = read(workload("ReplicaSet", replicas=1), going, node("n"))
    assert [running.pod.name for running in given.running] == ["web-x"]
    assert [found.name for found in pods_of(given)] == ["web-0"]


def test_finished_pods_hold_nothing_and_going_ones_that_never_ran_are_left_out() -> None:
    done = pod("done", nodeName="n", status={"phase": "Succeeded"})
    going = pod("going", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    given = read(done, going, node("n"))
    assert (given.running, given.groups) == ((), ())
    assert said(given, "note", "deletionTimestamp")


def test_jobs_make_what_is_left() -> None:
    assert names(workload("Job", parallelism=3, completions=2)) == ["web-0", "web-1"]
    finished = owned("Job", "web", "web-a", status={"phase": "Succeeded"})
    active = owned("Job", "web", "web-b", nodeName="n")
    job = workload("Job", parallelism=3, completions=4)
    assert names(job, finished, active, node("n")) == ["web-0", "web-1"]  # min(3, 4 − 1) − 1 active
    assert names({**job, "status": {"succeeded": 4}}) == []
    assert names(workload("Job", parallelism=2), finished) == []  # a work queue that is being emptied
    assert names(workload("Job", suspend=True)) == []
    complete = {**job, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert names(complete) == []


def test_paused_deployments_make_nothing_new() -> None:
    given = read(workload("Deployment", paused=True))
    assert given.groups == ()
    assert said(given, "note", "spec.paused")


def test_daemons_go_to_every_node_that_lets_them() -> None:
    template = {"spec": {"containers": [container()], "nodeSelector": {"gpu": "on"}}}
    tainted = node("b", labels={"gpu": "on"}, spec={"taints": [{"key": "x", "effect": "NoSchedule"}]})
    cordoned = node("c", labels={"gpu": "on"}, spec={"unschedulable": True})
    cluster = [node("a", labels={"gpu": "on"}), tainted, cordoned, node("d"), node("e", labels={"gpu": "on"})]
    existing = owned("DaemonSet", "agent", "agent-x", nodeName="e")
    given = read(workload("DaemonSet", "agent", template), existing, *cluster)
    found = {member.name: member.node_rules.node_name for member in pods_of(given)}
    assert found == {"agent-a": "a", "agent-c": "c"}  # cordoned nodes are tolerated by every DaemonSet


def test_order_is_priority_age_namespace_name() -> None:
    def made(name: str, priority: int, age: str | None, namespace: str = "default") -> Object:
        return pod(name, meta={"creationTimestamp": age, "namespace": namespace}, priority=priority)

    old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    objects = [made("z", 0, None), made("y", 0, new), made("x-10", 0, old), made("x-2", 0, old), made("w", 5, new)]
    objects.append(made("a", 0, old, "zoo"))
    expected = ["w", "x-2", "x-10", "a", "y", "z"]
    assert names(*objects) == expected
    assert names(*reversed(objects)) == expected
    assert pods_of(read(made("z", 0, None)))[0].created == NEWEST_CREATION


def test_cron_jobs_and_other_kinds_are_counted() -> None:
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": {}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}}
    foreign = {"apiVersion": "metrics.example.com/v1", "kind": "Node", "metadata": {"name": "n"}, "spec": 3}
    given = read(cron, config, config, foreign)
    assert given.ignored == {"ConfigMap": 2, "CronJob": 1, "Node": 1}
    assert said(given, "note")[0].where == "m.json#1 CronJob nightly"


def test_a_pod_on_a_node_nobody_knows_is_left_out_with_a_warning() -> None:
    given = read(pod("p", nodeName="gone"))
    assert given.running == ()
    assert said(given, "warning", "spec.nodeName")


def test_pods_that_share_a_uid_are_told_apart() -> None:
    given = read(pod("a", meta={"uid": "u"}), pod("b", meta={"uid": "u"}))
    assert [found.uid for found in pods_of(given)] == ["u", "default/b"]
    assert said(given, "warning", "metadata.uid")


def test_names_are_unique_whoever_makes_them() -> None:
    given = read(workload("Deployment", replicas=2), workload("StatefulSet", replicas=2), workload("Job"))
    made = [(found.owner.partition("/")[0], found.name) for found in pods_of(given)]
    assert sorted(made) == [
        ("Deployment", "web-2"),
        ("Deployment", "web-3"),
        ("Job", "web-4"),
        ("StatefulSet", "web-0"),
        ("StatefulSet", "web-1"),
    ]


def test_generated_names_do_not_collide() -> None:
    def unnamed() -> Object:
        source = pod("")
        source["metadata"] = {"generateName": "run-"}
        return source

    assert names(unnamed(), unnamed()) == ["run-1", "run-2"]
    assert names(unnamed(), pod("run-1"), unnamed()) == ["run-1", "run-2", "run-3"]


def test_many_generated_names_are_numbered_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name was looked for from number 1 on: 6,000 pods took 30 s, and twice as many four times as long."""
    tried: list[int] = []

    def counted(start: int) -> Iterator[int]:
        for number in count(start):
            tried.append(number)
            yield number

    monkeypatch.setattr(decode, "count", counted)
    unnamed = {**pod("p"), "metadata": {"generateName": "run-"}}
    assert len(names(*[unnamed] * 200, pod("run-7"))) == 201
    assert len(tried) == 201  # 1 to 201 without 7, which is tried as well


def test_generated_names_are_unique_over_files_in_any_order() -> None:
    def job(cards: int) -> Object:
        made = workload("Job", template={"spec": {"containers": [container({GPU: cards})]}})
        return {**made, "metadata": {"generateName": "train-"}}

    files = {"a.json": [job(1)], "b.json": [job(1)], "c.json": [pod("p"), job(2)]}

    def made(order: list[str]) -> list[tuple[str, int]]:
        problems = Problems()
        documents = [one for name in order for one in parse(name, "\n".join(map(json.dumps, files[name])), problems)]
        found = pods_of(load(documents, Settings(), problems))
        return [(each.name, each.resources[GPU]) for each in found if each.name != "p"]

    expected = [
        ("train-1-0", 1),
        ("train-2-0", 1),
        ("train-3-0", 2),
    ]  # a.json and b.json say the same, and are two Jobs
    assert made(["a.json", "b.json", "c.json"]) == made(["c.json", "b.json", "a.json"]) == expected


def test_absurd_numbers_of_replicas_are_an_error_not_a_hang() -> None:
    given = read(workload("Deployment", replicas=2**31))
    assert given.groups == ()
    assert said(given, "error", "spec.replicas")
