"""Sets of Kubernetes objects, right, wrong and hostile ones, as an API server could serve them.

`object_set` draws from anything that has `random.Random`'s methods: a seed, or Hypothesis, which can shrink a set.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.kube.live.hostile import NUMBERS, TEXTS
from tests.kube.manifests import ALLOCATED, REGISTER, Object, card
from tests.kube.one_reading import gangs
from tests.kube.one_reading.rules import placement_rules

NAMESPACES = ("default", "ml", "team-b")
SAID = ("GPU-a", "GPU-b", "NVIDIA", "8000", "100", "-5", "9" * 30, "1e9", "½", "", " ", "💥", "\x00", "\u202e")
AMOUNTS: tuple[Any, ...] = (0, 1, 2, 3, "1", "2000", "-1", "0.5", "1e3", "1Gi", "x", "", 2**62, 9e300)
WHEN = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z", "yesterday", "")


def object_set(dice: Random) -> list[Object]:
    """A whole cluster: everything that is there, in no order."""
    nodes = [_node(dice, f"n{number}") for number in range(dice.choice((0, 1, 2, 2, 3, 3, 4, 5)))]
    cards = sorted({uuid for each in nodes for uuid in _cards_of(each)} | {"GPU-stray"})
    runs = [_running(dice, number, nodes, cards) for number in range(_few(dice, 6))]
    waits = [_pending(dice, number, nodes, cards) for number in range(_few(dice, 8))]
    found = [*nodes, *runs, *waits, *(_namespace(dice, name) for name in NAMESPACES)]
    found += [_pod_group(dice, name) for name in ("g0", "g1") for _ in range(_few(dice, 4))]
    found += _gang_objects(dice, [each["metadata"]["name"] for each in nodes])
    found += [_quota(dice, name) for name in ("q0", "q1") if dice.random() < 0.2]
    found += _volumes(dice) + _selecting(dice, [*runs, *waits])
    return list({(each["apiVersion"], each["kind"], *_names(each)): each for each in found}.values())


def _names(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _few(dice: Random, most: int) -> int:
    return dice.randint(0, most)


def _chance(dice: Random, part: float) -> bool:
    return dice.random() < part


def _object(api_version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> Object:
    meta: Object = {"name": name, "uid": f"uid-{kind}-{namespace}-{name}", "resourceVersion": "1"}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {**meta, **({"namespace": namespace} if namespace else {})},
        **fields,
    }


# ---- nodes ------------------------------------------------------------------------------------------------------


def _node(dice: Random, name: str) -> Object:
    cpu, pods = dice.choice(("8", "8", "8", "16", "500m", "x")), dice.choice(("110", "110", "2"))
    allocatable: Object = {"cpu": cpu, "memory": "32Gi", "pods": pods}
    labels: Object = {"kubernetes.io/hostname": name, "zone": dice.choice("ab")}
    notes: Object = {}
    kind = dice.choice((_registers, _registers, _registers, _counts, _labelled, _mig, _plain))
    kind(dice, name, allocatable, labels, notes)
    if _chance(dice, 0.1):
        where = dice.choice((notes, labels))
        where["dovetail.dev/enforcer"] = dice.choice(("dovetail", "hami", "stock", "bogus"))
    if _chance(dice, 0.1):
        notes["hami.io/node-handshake"] = dice.choice(("Requesting_2026", "Deleted_2026", ""))
    taints = [{"key": "gpu", "value": "yes", "effect": dice.choice(("NoSchedule", "PreferNoSchedule", "bogus"))}]
    spec = {"unschedulable": _chance(dice, 0.1), "taints": taints if _chance(dice, 0.15) else []}
    item = _object("v1", "Node", name, spec=spec, status={"allocatable": allocatable})
    item["metadata"] |= {"labels": labels, "annotations": notes, "creationTimestamp": dice.choice(WHEN[:2])}
    return item


def _registers(dice: Random, name: str, allocatable: Object, labels: Object, notes: Object) -> None:
    cards = [_card(dice, f"GPU-{name}-{number}") for number in range(dice.randint(1, 3))]
    if _chance(dice, 0.15):
        cards.append(card("GPU-shared"))  # which another node may register, too
    text = json.dumps(cards)
    notes[REGISTER] = text[: dice.randrange(len(text))] if _chance(dice, 0.05) else text
    if _chance(dice, 0.3):
        allocatable["nvidia.com/gpu"] = dice.choice((0, 1, 10, 40))
    if _chance(dice, 0.1):
        notes["hami.io/device-cordon"] = f"GPU-{name}-0"


def _card(dice: Random, uuid: str) -> Object:
    found = card(uuid, memory=dice.choice((8000, 16000)), numa=dice.choice((0, 1)))
    if _chance(dice, 0.15):
        found[dice.choice([*found, "mode", "index"])] = dice.choice((*NUMBERS, *TEXTS, "mig", "hami-core"))
    return found


def _counts(dice: Random, name: str, allocatable: Object, labels: Object, notes: Object) -> None:
    allocatable["nvidia.com/gpu"] = dice.choice(("1", "2", "8", "40", "-1", "x"))


def _labelled(dice: Random, name: str, allocatable: Object, labels: Object, notes: Object) -> None:
    _counts(dice, name, allocatable, labels, notes)
    given = {"product": "NVIDIA-A100", "memory": "8000", "count": dice.choice(("2", "x")), "replicas": "1"}
    labels.update({f"nvidia.com/gpu.{key}": value for key, value in given.items() if not _chance(dice, 0.2)})


def _mig(dice: Random, name: str, allocatable: Object, labels: Object, notes: Object) -> None:
    allocatable["nvidia.com/mig-1g.5gb"] = "7"
    labels["nvidia.com/mig.strategy"] = dice.choice(("mixed", "single"))


def _plain(dice: Random, name: str, allocatable: Object, labels: Object, notes: Object) -> None:
    if _chance(dice, 0.3):
        allocatable["example.com/dongle"] = "2"


def _cards_of(item: Object) -> list[str]:
    try:
        return [str(each["id"]) for each in json.loads(item["metadata"]["annotations"].get(REGISTER, "[]"))]
    except ValueError:
        return []


# ---- pods -------------------------------------------------------------------------------------------------------


def _pod(dice: Random, name: str) -> Object:
    item = _object("v1", "Pod", name, dice.choice((*NAMESPACES, "ml", "ml")))
    meta = item["metadata"]
    meta |= {"creationTimestamp": dice.choice(WHEN), "labels": {"app": dice.choice("xy")}, "annotations": {}}
    item["spec"] = {"schedulerName": "dovetail", "containers": [_container(dice, n) for n in range(_few(dice, 2) or 1)]}
    if _chance(dice, 0.15):
        starting = _container(dice, 7) | ({"restartPolicy": "Always"} if _chance(dice, 0.5) else {})
        item["spec"]["initContainers"] = [starting]
    if _chance(dice, 0.3):
        item["spec"]["priority"] = dice.choice((1, 1000, -5, 2_000_001_000, 2**31, -(2**40)))
    if _chance(dice, 0.1):
        meta["deletionTimestamp"] = "2026-01-03T00:00:00Z"
    if _chance(dice, 0.1):
        meta["labels"][dice.choice(("hami.io/webhook", "hami.io/vgpu-node"))] = "ignore"
    if _chance(dice, 0.25):
        _join_group(dice, item)
    elif _chance(dice, 0.25):
        gangs.join_gang(dice, item)
    if _chance(dice, 0.2):
        owner = {"kind": dice.choice(("ReplicaSet", "ReplicationController")), "name": "rs", "uid": "u"}
        meta["ownerReferences"] = [owner | {"controller": True}]
    return item


def _join_group(dice: Random, item: Object) -> None:
    """Members of one kind and another, of PodGroups that may not be there."""
    name, meta = dice.choice(("g0", "g0", "g1")), item["metadata"]
    match dice.choice((0, 0, 0, 1, 2, 3, 3)):
        case 0:
            meta["labels"]["scheduling.x-k8s.io/pod-group"] = name
        case 1:
            meta["labels"]["pod-group.scheduling.sigs.k8s.io"] = name
        case 2:
            meta["annotations"]["scheduling.k8s.io/group-name"] = name
        case _:
            item["spec"]["schedulingGroup"] = {"podGroupName": name}


def _container(dice: Random, number: int) -> Object:
    limits: Object = {}
    if _chance(dice, 0.7):
        limits["nvidia.com/gpu"] = _amount(dice, 1, 1, 2)
    if limits and _chance(dice, 0.5):
        limits["nvidia.com/gpumem"] = _amount(dice, 2000, 4000, 8000)
    if _chance(dice, 0.08):
        limits["nvidia.com/gpumem-percentage"] = _amount(dice, 50, 100)
    if limits and _chance(dice, 0.5):
        limits["nvidia.com/gpucores"] = _amount(dice, 30, 50, 100)
    requests: Object = {"cpu": _amount(dice, "100m", "1", "6")} if _chance(dice, 0.4) else {}
    if _chance(dice, 0.05):
        requests["example.com/dongle"] = 1
    return {"name": f"c{number}", "resources": {"limits": limits, "requests": requests}}


def _amount(dice: Random, *sound: Any) -> Any:
    return dice.choice(sound) if _chance(dice, 0.99) else dice.choice(AMOUNTS)


def _running(dice: Random, number: int, nodes: list[Object], cards: list[str]) -> Object:
    item = _pod(dice, f"r{number}")
    names = [each["metadata"]["name"] for each in nodes]
    item["spec"]["nodeName"] = dice.choice((*names, *names, *names, "gone"))
    item["spec"]["schedulerName"] = dice.choice(("dovetail", "dovetail", "hami-scheduler", "default-scheduler"))
    item["status"] = {"phase": dice.choice(("Running", "Running", "Running", "Pending", "Succeeded", "Failed"))}
    notes = item["metadata"]["annotations"]
    own = next((_cards_of(each) for each in nodes if each["metadata"]["name"] == item["spec"]["nodeName"]), [])
    if _chance(dice, 0.8):
        notes[ALLOCATED] = _record(dice, item, own or cards, cards)
    if _chance(dice, 0.15):
        notes["hami.io/vgpu-devices-to-allocate"] = _record(dice, item, own or cards, cards)
    starting = item["spec"].get("initContainers", [])
    if starting and _chance(dice, 0.5):
        ended = {"name": starting[0]["name"], "state": {"terminated": {"exitCode": dice.choice((0, 1))}}}
        item["status"]["initContainerStatuses"] = [ended]
    if _chance(dice, 0.1):
        given = {"requests": {"cpu": dice.choice(("2", "x"))}}
        item["status"]["containerStatuses"] = [{"name": "c0", "resources": given, "allocatedResources": {"cpu": "3"}}]
    return item


def _record(dice: Random, item: Object, own: list[str], cards: list[str]) -> str:
    """What the pod is said to hold: what it asks for, something else, or nothing legible."""
    kind = dice.random()
    if kind < 0.1:
        entries = [",".join(dice.choice(SAID) for _ in range(dice.randrange(6))) for _ in range(dice.randrange(5))]
        return "".join(entry + dice.choice((":", ";", ":;", ";;", ",", "")) for entry in entries)
    known = own if kind < 0.8 else [*cards, "GPU-unknown"]
    text = ""
    for each in (*item["spec"].get("initContainers", ()), *item["spec"]["containers"]):
        asked = each["resources"]["limits"].get("nvidia.com/gpu", 0)
        count = asked if isinstance(asked, int) and asked < 5 and kind < 0.7 else dice.randrange(4)
        memory, cores = dice.choice((2000, 4000, 8000, 10**9)), dice.choice((0, 30, 100, 500))
        text += "".join(f"{dice.choice(known)},NVIDIA,{memory},{cores}:" for _ in range(count)) + ";"
    return text


def _pending(dice: Random, number: int, nodes: list[Object], cards: list[str]) -> Object:
    item = _pod(dice, f"p{number}")
    spec, notes = item["spec"], item["metadata"]["annotations"]
    if _chance(dice, 0.4):
        placement_rules(dice, spec, [each["metadata"]["name"] for each in nodes])
    if _chance(dice, 0.1):
        notes[dice.choice(("hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"))] = dice.choice(
            ("binpack", "spread", "numa", "bogus", *TEXTS)
        )
    if _chance(dice, 0.15):
        key = dice.choice(("use-gputype", "nouse-gputype", "use-gpuuuid", "nouse-gpuuuid", "numa-bind", "use-gputyp"))
        notes[f"nvidia.com/{key}"] = dice.choice((*cards, "A100", "H100", "true", ",", *TEXTS))
    if _chance(dice, 0.03):
        spec["schedulingGates"] = [{"name": "example.com/gate"}]
    if _chance(dice, 0.02):
        spec["resourceClaims"] = [{"name": "gpu"}]
    if _chance(dice, 0.05):
        spec["overhead"] = {"cpu": dice.choice(("250m", "x"))}
    if _chance(dice, 0.05):
        spec["resources"] = {"requests": {dice.choice(("cpu", "nvidia.com/gpu")): "2"}}
    if _chance(dice, 0.08):
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": dice.choice(("c0", "c1", "c9"))}}]
    if _chance(dice, 0.05):
        notes[ALLOCATED] = _record(dice, item, cards, cards)  # which nobody has given it
    if _chance(dice, 0.08):
        item["status"] = {"nominatedNodeName": dice.choice((*(each["metadata"]["name"] for each in nodes), "gone"))}
    return item


# ---- the others -------------------------------------------------------------------------------------------------


def _namespace(dice: Random, name: str) -> Object:
    item = _object("v1", "Namespace", name)
    if _chance(dice, 0.3):
        item["metadata"]["labels"] = dice.choice(({"team": "a"}, {"hami.io/webhook": "ignore"}))
    if _chance(dice, 0.08):
        item["metadata"]["deletionTimestamp"] = "2026-01-03T00:00:00Z"
    return item


def _pod_group(dice: Random, name: str) -> Object:
    group = dice.choice(("scheduling.x-k8s.io", *gangs.POD_GROUPS))
    namespace = dice.choice((*NAMESPACES, "ml", "ml"))
    version = f"{group}/{gangs.POD_GROUPS[group]}"
    item = _object(version, "PodGroup", name, namespace, spec=gangs.pod_group_spec(dice, group))
    item["metadata"]["annotations"] = gangs.pod_group_notes(dice, group)
    return item


def _gang_objects(dice: Random, nodes: list[str]) -> list[Object]:
    """Other kinds that describe gangs, and topologies."""
    found = []
    for name in gangs.NAMES[:2]:
        if _chance(dice, 0.3):
            found.append(_object("scheduling.k8s.io/v1alpha1", "Workload", name, "ml", spec=gangs.workload_spec(dice)))
        if _chance(dice, 0.3):
            found.append(_object("jobset.x-k8s.io/v1alpha2", "JobSet", name, "ml", spec=gangs.job_set_spec(dice)))
    for group in ("kueue.x-k8s.io/v1beta1", "kai.scheduler/v1alpha1"):
        if _chance(dice, 0.2):
            found.append(_object(group, "Topology", "t", spec=gangs.topology_spec(dice)))
    for name in ("h0", "h1"):
        if _chance(dice, 0.2):
            spec = gangs.hyper_node_spec(dice, nodes)
            found.append(_object("topology.volcano.sh/v1alpha1", "HyperNode", name, spec=spec))
    return found


def _quota(dice: Random, name: str) -> Object:
    names = (
        "limits.nvidia.com/gpumem",
        "limits.nvidia.com/gpucores",
        "pods",
        "requests.cpu",
        "requests.nvidia.com/gpu",
    )
    hard = {each: dice.choice(("0", "1", "4000", "100", "x")) for each in names if _chance(dice, 0.4)}
    return _object("v1", "ResourceQuota", name, dice.choice(NAMESPACES), spec={"hard": hard})


def _volumes(dice: Random) -> list[Object]:
    if _chance(dice, 0.6):
        return []
    mode = dice.choice(("WaitForFirstConsumer", "Immediate"))
    found = [_object("storage.k8s.io/v1", "StorageClass", "fast", provisioner="x", volumeBindingMode=mode)]
    for name in ("c0", "c1"):
        spec: Object = {"storageClassName": "fast", "accessModes": [dice.choice(("ReadWriteOnce", "ReadWriteOncePod"))]}
        claim = _object("v1", "PersistentVolumeClaim", name, dice.choice(NAMESPACES), spec=spec)
        if _chance(dice, 0.4):
            spec["volumeName"] = f"v-{name}"
            claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        spec["resources"] = {"requests": {"storage": dice.choice(("1Gi", "x"))}}
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        place = {"required": {"nodeSelectorTerms": terms}}
        room = {"capacity": {"storage": "2Gi"}, "storageClassName": "fast", "nodeAffinity": place}
        found += [claim, _object("v1", "PersistentVolume", f"v-{name}", spec=room)]
    return found


def _selecting(dice: Random, pods: list[Object]) -> list[Object]:
    """A Service, and controllers that have made all the pods that they want."""
    found = []
    for namespace in NAMESPACES:
        if _chance(dice, 0.3):
            found.append(_object("v1", "Service", "web", namespace, spec={"selector": {"app": "x"}}))
        for kind, version in (("ReplicaSet", "apps/v1"), ("ReplicationController", "v1")):
            made = sum(_is_made_by(each, kind, namespace) for each in pods)
            template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c"}]}}
            selector: Object = {"matchLabels": {"app": "x"}} if kind == "ReplicaSet" else {"app": "x"}
            spec = {"replicas": made if _chance(dice, 0.6) else 0, "selector": selector, "template": template}
            if _chance(dice, 0.4):
                found.append(_object(version, kind, "rs", namespace, spec=spec))
    return found


def _is_made_by(item: Object, kind: str, namespace: str) -> bool:
    meta, phase = item["metadata"], item.get("status", {}).get("phase")
    by = any(owner["kind"] == kind for owner in meta.get("ownerReferences", ()))
    there = phase not in ("Succeeded", "Failed") and "deletionTimestamp" not in meta
    return by and there and meta["namespace"] == namespace


def admission_rules(dice: Random) -> list[Object]:
    """Objects by which the API server changes pods that are made."""
    high = _object("scheduling.k8s.io/v1", "PriorityClass", "high", value=dice.choice((1000, -5)))
    high["globalDefault"] = _chance(dice, 0.3)
    limits = [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": dice.choice(("1", "x"))}}]
    scheduling = {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    runtime = _object("node.k8s.io/v1", "RuntimeClass", "kata", handler="kata", scheduling=scheduling)
    runtime["overhead"] = {"podFixed": {"cpu": "250m"}}
    ranges = [_object("v1", "LimitRange", "defaults", "ml", spec={"limits": limits})]
    return [high, runtime, *(ranges if _chance(dice, 0.5) else [])]
