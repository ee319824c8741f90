"""Cases in which `plan` and the live scheduler read the same objects differently once, each with what both say now."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dovetail.model.decision import Share
from dovetail.model.reason import Reason
from tests.kube.manifests import ALLOCATED, GPU, MEM, Object, card, container, node
from tests.kube.one_reading.readers import Picture, by_files, by_watches
from tests.kube.one_reading.test_one_reading import differences

GROUP = "scheduling.x-k8s.io/pod-group"


def both(*items: Object) -> Picture:
    """What both readers make of the objects, watches in a few orders."""
    picture = by_files(items)
    for seed in range(4):
        assert not differences(picture, by_watches(items, Random(seed)))
    return picture


def gpu_node(name: str, *uuids: str, **more: Any) -> Object:
    item = node(name, *map(card, uuids), **more)
    item["metadata"] |= {
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z",
    }
    return item


def pod(name: str, limits: Object | None = None, meta: Object | None = None, **spec: Any) -> Object:
    given = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "1"}
    given |= {"creationTimestamp": "2026-01-02T00:00:00Z", **(meta or {})}
    status = spec.pop("status", {})
    containers = [container({GPU: 1} if limits is None else limits)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": given,
        "spec": {"schedulerName": "dovetail", "containers": containers, **spec},
        "status": status,
    }


def record(*uuids: str, memory: int = 8000) -> Object:
    return {"annotations": {ALLOCATED: "".join(f"{uuid},NVIDIA,{memory},100:" for uuid in uuids) + ";"}}


def namespace(labels: Object | None = None, **meta: Any) -> Object:
    given = {"name": "ml", "uid": "uid-ml", "resourceVersion": "1", "labels": labels or {}, **meta}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": given}


def pod_group(name: str, minimum: int, group: str = "scheduling.x-k8s.io", version: str = "v1alpha1") -> Object:
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"apiVersion": f"{group}/{version}", "kind": "PodGroup", "metadata": meta, "spec": {"minMember": minimum}}


def quota(name: str, **hard: Any) -> Object:
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "1"}
    named = {key.replace("_", "."): value for key, value in hard.items()}
    named = {key.replace("limits.gpumem", f"limits.{MEM}"): value for key, value in named.items()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": named}}


# ---- what running pods hold -------------------------------------------------------------------------------------


def test_a_pod_that_asks_for_no_gpu_holds_none_whatever_its_record_says() -> None:
    found = both(gpu_node("n0", "GPU-a"), pod("r", {}, record("GPU-a"), nodeName="n0"), pod("p"))
    assert found.holds["uid-r"] == ("n0", ())
    assert found.placed["uid-p"][0] == "n0"


def test_a_record_of_more_cards_than_the_pod_asks_for_is_not_believed() -> None:
    """One card is asked for and two are named: one is charged, as a guess."""
    found = both(gpu_node("n0", "GPU-a", "GPU-b"), pod("r", None, record("GPU-a", "GPU-b"), nodeName="n0"))
    assert len(found.holds["uid-r"][1]) == 1


def test_an_unprintable_card_in_a_record_is_the_same_card_in_both() -> None:
    found = both(gpu_node("n0", "GPU-a"), pod("r", None, record("GPU-\u202e"), nodeName="n0"))
    assert found.holds["uid-r"][1] == (Share(0, "GPU-\\u202e", 8000, 1000),)


def test_the_cards_that_kubelet_picks_are_guessed_in_the_order_of_the_pods() -> None:
    """Records mean nothing on a node whose kubelet picks: the older pod is charged the first card, with one or not."""
    stock = gpu_node("n0", labels={"nvidia.com/gpu.product": "T4", "nvidia.com/gpu.count": "2"}, allocatable={GPU: 2})
    old = pod("old", {GPU: 1}, {"creationTimestamp": "2026-01-01T00:00:00Z"}, nodeName="n0")
    new = pod("new", {GPU: 1, "nvidia.com/gpucores": 50}, record("GPU-x"), nodeName="n0")
    found = both(stock, old, new)
    used = {one.device.uuid: one.compute_used_milli for one in found.uses["n0"][1]}
    assert used == {"n0/gpu-0": 1000, "n0/gpu-1": 500}


def test_a_pod_on_a_node_that_is_not_there_is_a_member_of_its_gang() -> None:
    """One of two members runs elsewhere: the other one may be placed."""
    labels = {"labels": {GROUP: "g"}}
    found = both(gpu_node("n0", "GPU-a"), pod_group("g", 2), pod("r", {}, labels, nodeName="x"), pod("p", {}, labels))
    assert found.placed["uid-p"][0] == "n0"


# ---- nodes ------------------------------------------------------------------------------------------------------


def test_of_two_nodes_that_register_one_card_the_younger_takes_no_gpu_pods() -> None:
    found = both(gpu_node("n0", "GPU-a"), gpu_node("n1", "GPU-a"), pod("p", nodeSelector={"no": "such"}))
    assert found.nodes["n1"].unsettled == "card GPU-a is also registered by node n0"
    assert found.nodes["n0"].unsettled == ""


def test_records_without_a_register_unsettle_a_node_that_only_counts_its_gpus() -> None:
    counts = gpu_node("n0", allocatable={GPU: 2})
    found = both(counts, pod("r", None, record("GPU-gone"), nodeName="n0"), pod("p"))
    assert found.nodes["n0"].unsettled == "its pods hold cards of a register that is gone"
    assert found.placed == {}


def test_a_node_is_kept_for_the_pod_that_is_nominated_to_it() -> None:
    """GPU-a is taken, GPU-b is for the nominated pod, whether it is heard of before the running one or after."""
    runs = pod("r", None, record("GPU-a"), nodeName="n0")
    first = pod("first", None, priority=9, status={"nominatedNodeName": "n0"}, schedulingGates=[{"name": "x"}])
    found = both(gpu_node("n0", "GPU-a", "GPU-b"), runs, first, pod("p"))
    assert found.placed == {}


# ---- namespaces, priorities and quotas --------------------------------------------------------------------------


def test_the_label_of_a_namespace_keeps_hamis_webhook_off_its_pods() -> None:
    """Without the webhook a whole card is not exclusive: two pods that state no memory share nothing but compute."""
    found = both(gpu_node("n0", "GPU-a"), namespace({"hami.io/webhook": "ignore"}), pod("p"))
    assert found.waits["uid-p"].containers[0].asks[0].compute_milli == 0
    assert both(namespace(), pod("p")).waits["uid-p"].containers[0].asks[0].compute_milli == 1000


def test_nothing_is_placed_in_a_namespace_that_is_being_deleted() -> None:
    ending = namespace(deletionTimestamp="2026-01-03T00:00:00Z")
    found = both(gpu_node("n0", "GPU-a"), ending, pod("p"))
    assert found.placed == {}
    assert found.waits == {}


def test_a_priority_is_a_32_bit_number() -> None:
    found = both(pod("p", priority=2**40), pod("q", priority=-(2**40)))
    assert [found.waits[uid].priority for uid in ("uid-p", "uid-q")] == [2_000_001_000, -(2**31)]


def test_what_kubernetes_counts_holds_for_pods_that_are_still_to_be_made() -> None:
    """A pod that exists was admitted, and counts: of two pods that the quota allows, one more can be made."""
    exists, new, other = pod("p", {}), pod("new", {}), pod("other", {})
    for item in (new, other):
        del item["metadata"]["uid"]
    allowed = quota("q", pods=2)
    assert both(gpu_node("n0"), quota("q", pods=0), exists).placed["uid-p"][0] == "n0"
    found = by_files([gpu_node("n0"), allowed, exists, new, other])
    assert sorted(found.placed) == ["ml/new", "uid-p"]
    assert found.told["ml/other"] == ("QuotaExceeded", "quota q: pods requested 1, used 2, limited to 2.")


def test_a_quota_on_gpu_memory_is_the_reason_where_it_alone_says_no() -> None:
    quotas = quota("b", limits_gpumem=1000), quota("a", limits_gpumem=2000)
    found = both(gpu_node("n0", "GPU-a"), *quotas, pod("p", {GPU: 1, MEM: 4000}))
    said = "quota a: NVIDIA memory 0 of 2,000 MiB in use; quota b: NVIDIA memory 0 of 1,000 MiB in use"
    assert found.told["uid-p"] == ("QuotaExceeded", f"namespace quota exceeded: {said}.")


# ---- gangs and other pods ---------------------------------------------------------------------------------------


def test_a_pod_whose_group_is_missing_waits_and_names_its_namesakes() -> None:
    other = pod_group("g", 1, "scheduling.sigs.k8s.io")
    found = both(gpu_node("n0", "GPU-a"), other, pod("p", {}, {"labels": {GROUP: "g"}}))
    assert found.placed == {}
    assert found.reasons["uid-p"] is Reason.GROUP_UNKNOWN
    assert "does not exist (there is one of scheduling.sigs.k8s.io" in found.told["uid-p"][1]


@pytest.mark.parametrize(
    ("items", "finds"),
    [
        ([], "the cluster has no nodes"),
        ([gpu_node("n0")], "claim c does not exist"),
    ],
)
def test_a_gang_says_what_its_next_member_finds(items: list[Object], finds: str) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}] if items else []
    members = [pod(name, {}, {"labels": {GROUP: "g"}}, volumes=volumes) for name in ("p", "q")]
    found = both(*items, pod_group("g", 2), *members)
    assert found.told["uid-p"][1] == f"0 of 2 members of ml/g fit, 2 must start together; the next finds {finds}."


def test_a_gang_that_lacks_one_member_says_so_of_the_gang() -> None:
    labels = {"labels": {GROUP: "g"}}
    runs, waits = pod("r", {}, labels, nodeName="n0"), pod("p", {"cpu": 99}, labels)
    found = both(gpu_node("n0"), pod_group("g", 2), runs, waits)
    assert found.told["uid-p"][1].startswith("0 of 1 members of ml/g fit, 1 must start together beside 1 that runs")


def test_a_member_with_a_missing_claim_names_what_the_gangs_next_member_lacks() -> None:
    labels, volumes = {"labels": {GROUP: "g"}}, [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    found = both(
        gpu_node("n0"), pod_group("g", 2), pod("p", {"cpu": 99}, labels), pod("q", {}, labels, volumes=volumes)
    )
    assert found.told["uid-q"] == found.told["uid-p"]
    assert found.told["uid-q"][0] == "Unschedulable"


def test_a_member_that_is_refused_itself_says_why_though_its_gang_is_incomplete() -> None:
    wrong = pod("p", {GPU: "x"}, {"labels": {GROUP: "g"}})
    assert both(gpu_node("n0"), pod_group("g", 2), wrong).told["uid-p"][0] == "InvalidRequest"


def test_a_pod_that_must_be_near_a_later_one_is_placed_after_it() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    later = pod("later", {}, {"labels": {"app": "x"}, "creationTimestamp": "2026-01-03T00:00:00Z"})
    found = both(gpu_node("n0", labels={"zone": "a"}), pod("p", {}, affinity=near), later)
    assert sorted(found.placed) == ["uid-later", "uid-p"]


def _controller(kind: str, version: str, replicas: int, selector: Object) -> Object:
    meta = {"name": "rs", "namespace": "ml", "uid": "uid-rs", "resourceVersion": "1"}
    spec = {"replicas": replicas, "selector": selector, "template": {"spec": {"containers": [container()]}}}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


@pytest.mark.parametrize(
    ("controller", "spreads"),
    [
        (_controller("ReplicationController", "v1", 2, {"app": "x"}), True),
        (_controller("ReplicaSet", "apps/v1", 2, {"matchLabels": {"app": "x"}}), True),
        (_controller("ReplicaSet", "apps/v1", 0, {"matchLabels": {"app": "x"}}), False),
    ],
)
def test_pods_are_spread_by_the_controllers_that_want_pods(controller: Object, spreads: bool) -> None:
    """n0 is the emptier one; the pod's sister is there."""
    owner = {"kind": controller["kind"], "name": "rs", "uid": "uid-rs", "controller": True}
    meta = {"labels": {"app": "x"}, "ownerReferences": [owner]}
    nodes = [gpu_node(f"n{n}", labels={"kubernetes.io/hostname": f"n{n}"}) for n in (0, 1)]
    filler = pod("filler", {"cpu": 1}, nodeName="n1")
    found = both(*nodes, controller, filler, pod("sister", {"cpu": "10m"}, meta, nodeName="n0"), pod("p", {}, meta))
    assert found.placed["uid-p"][0] == ("n1" if spreads else "n0")
