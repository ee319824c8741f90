"""What a hostile tenant writes into a pod: huge numbers and lists, forged records and marks, odd characters."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from tests.kube.live.hostile import values
from tests.live.fuzz.pods import (
    ALLOCATED,
    AMOUNTS,
    GANG,
    LARGEST_NOTE,
    NODES,
    ODD,
    PERCENT,
    POLICIES,
    SOUND,
    TO_ALLOCATE,
    Twist,
    limits,
    many,
    notes,
    plain,
    twisted,
    word,
)
from tools.controlplane.client import Object
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY

OTHER_PLUGINS = ("aliyun.com/gpu-mem", "tencent.com/vcuda-core", "tencent.com/vcuda-memory")
KNOWN_NOTES = (
    *(ALLOCATED, TO_ALLOCATE, "hami.io/bind-phase", "hami.io/bind-time", "hami.io/vgpu-node", "hami.io/vgpu-time"),
    *("hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy", "hami.io/device-scoring-weights"),
    *("nvidia.com/use-gputype", "nvidia.com/nouse-gputype", "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"),
    *("nvidia.com/numa-bind", "nvidia.com/vgpu-mode", "hami.io/resource-pool", "scheduling.k8s.io/group-name"),
    *("dovetail.dev/epoch", "dovetail.dev/bound-by", "dovetail.dev/gpu-policy", "dovetail.dev/node-policy"),
)


def huge_amounts(dice: random.Random, item: Object) -> None:
    for resource in dice.sample([GPU, GPU_MEMORY, GPU_CORES, PERCENT], dice.randrange(1, 4)):
        limits(item)[resource] = dice.choice(AMOUNTS)


def huge_resources(dice: random.Random, item: Object) -> None:
    limits(item)[dice.choice(("cpu", "memory", "ephemeral-storage", "hugepages-2Mi"))] = dice.choice(AMOUNTS)
    limits(item).setdefault("memory", "1Gi")


def other_plugins(dice: random.Random, item: Object) -> None:
    """Cards of gpushare or gpu-manager, which no node has, and what their schedulers would have written."""
    for resource in dice.sample(OTHER_PLUGINS, dice.randrange(1, 4)):
        limits(item)[resource] = dice.choice((*AMOUNTS, "1", "100", "150"))
    notes(item)["ALIYUN_COM_GPU_MEM_IDX"] = dice.choice(("0", "0," * 20_000, *ODD))
    notes(item)["tencent.com/predicate-gpu-idx-0"] = dice.choice(("0,1", "0," * 20_000, *ODD))


def many_resources(dice: random.Random, item: Object) -> None:
    """New names each time: none of them has a node."""
    count, stem = many(dice, 20_000), word(dice)
    limits(item).update({f"x.io/{stem}{number}": "1" for number in range(count)})


def many_containers(dice: random.Random, item: Object) -> None:
    first, share = {"image": item["spec"]["containers"][0]["image"]}, {GPU: "1", GPU_MEMORY: "1"}
    for number in range(many(dice, 400)):
        item["spec"]["containers"].append({**first, "name": f"m{number}", "resources": {"limits": dict(share)}})


def large_note(dice: random.Random, item: Object) -> None:
    key = dice.choice((*KNOWN_NOTES, "x", "y.example.com/z"))
    piece = dice.choice(("x", "[", "GPU-h0-0,NVIDIA,1,1:", "T4,", "💥", "spread,", "\x1b[31m"))
    notes(item)[key] = piece * (LARGEST_NOTE // len(piece.encode()))


def policy_chains(dice: random.Random, item: Object) -> None:
    names = dice.choices((*POLICIES, "no-such-policy", *ODD), k=many(dice, 3000))
    notes(item)[dice.choice(("dovetail.dev/gpu-policy", "hami.io/gpu-scheduler-policy"))] = ",".join(names)
    notes(item)["hami.io/device-scoring-weights"] = f"slot={dice.choice(AMOUNTS)},core=1,memory=1"


def many_types(dice: random.Random, item: Object) -> None:
    count, key = many(dice, 5000), dice.choice(("use-gputype", "nouse-gputype"))
    stem = word(dice)
    notes(item)[f"nvidia.com/{key}"] = ",".join(f"{stem}{number}" for number in range(count))


def many_uuids(dice: random.Random, item: Object) -> None:
    count, key = many(dice, 5000), dice.choice(("use-gpuuuid", "nouse-gpuuuid"))
    stem = word(dice)
    notes(item)[f"nvidia.com/{key}"] = ",".join(f"GPU-{stem}-{number}" for number in range(count))


def forged_record(dice: random.Random, item: Object) -> None:
    notes(item)[dice.choice((ALLOCATED, TO_ALLOCATE))] = record(dice)


def forged_marks(dice: random.Random, item: Object) -> None:
    notes(item)["dovetail.dev/epoch"] = dice.choice(("0", "9" * 40, "test/1", "x", *ODD))
    notes(item)["dovetail.dev/bound-by"] = dice.choice(("kube-system/dovetail-scheduler", "other/lease", *ODD))
    notes(item)["hami.io/bind-phase"] = dice.choice(("allocating", "success", "failed", *ODD))
    item["metadata"]["labels"]["hami.io/vgpu-node"] = dice.choice(NODES)


def odd_notes(dice: random.Random, item: Object) -> None:
    for key in dice.sample(KNOWN_NOTES, 4):
        notes(item)[key] = dice.choice(ODD)


def odd_fields(dice: random.Random, item: Object) -> None:
    """Texts that the API server does not look into."""
    container = item["spec"]["containers"][0]
    container["env"] = [{"name": "A", "value": dice.choice(ODD)}]
    container["command"] = [dice.choice(ODD), dice.choice(ODD)]
    container["image"] = dice.choice(("a\x1b[31mb", "😀", "x" * 5000, container["image"]))
    item["spec"]["schedulerName"] = dice.choice(("dovetail", "dovetail", "dove\x1b[2Jtail", "x" * 3000))


def values_of_the_old_test(dice: random.Random, item: Object) -> None:
    for value in values(dice.randrange(1 << 30), 3):
        notes(item)[dice.choice(KNOWN_NOTES)] = value


def thousand_tolerations(dice: random.Random, item: Object) -> None:
    stem = word(dice)
    made = [{"key": f"{stem}{number}", "operator": "Exists"} for number in range(many(dice, 1000))]
    item["spec"]["tolerations"] = made


def thousand_terms(dice: random.Random, item: Object) -> None:
    count, kind = many(dice, 1000), dice.choice(("podAffinity", "podAntiAffinity", "nodeAffinity"))
    rules = [{"key": f"k{number}", "operator": "NotIn", "values": [word(dice)]} for number in range(count)]
    terms: list[Object] = [{"matchExpressions": [rule]} for rule in rules]
    if kind == "nodeAffinity":
        required: object = {"nodeSelectorTerms": terms}
    else:
        hosts = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}}
        required = [{"labelSelector": term, **hosts} for term in terms]
    item["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def thousand_spreads(dice: random.Random, item: Object) -> None:
    item["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": dice.choice((1, 2147483647)),
            "topologyKey": f"key{number}",
            "whenUnsatisfiable": dice.choice(("DoNotSchedule", "ScheduleAnyway")),
            "minDomains": None,
            "labelSelector": {},
        }
        for number in range(many(dice, 1000))
    ]


def thousand_ports(dice: random.Random, item: Object) -> None:
    start = dice.randrange(1000, 60000)
    made = [{"containerPort": start + n, "hostPort": start + n} for n in range(many(dice, 1000))]
    item["spec"]["containers"][0]["ports"] = made


def thousand_volumes(dice: random.Random, item: Object) -> None:
    names = [f"{word(dice)}{number}" for number in range(many(dice, 500))]
    item["spec"]["volumes"] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]


def gates(dice: random.Random, item: Object) -> None:
    names = [f"example.com/{word(dice)}" for _ in range(many(dice, 200))]
    item["spec"]["schedulingGates"] = [{"name": name} for name in dict.fromkeys(names)]


def strange_gang(dice: random.Random, item: Object) -> None:
    name = dice.choice((word(dice), "canary", "x" * 63, f"g{dice.randrange(12)}"))
    where = dice.randrange(3)
    if where == 0:
        item["metadata"]["labels"][GANG] = name
    elif where == 1:
        notes(item)["scheduling.k8s.io/group-name"] = dice.choice((name, f"canary/{name}", *ODD))
    else:
        item["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"] = name


def many_labels(dice: random.Random, item: Object) -> None:
    stem = word(dice)
    item["metadata"]["labels"].update({f"{stem}{number}": word(dice) for number in range(many(dice, 2000))})


def resource_claims(dice: random.Random, item: Object) -> None:
    item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": word(dice)}]


def never_gone(dice: random.Random, item: Object) -> None:
    """Its deletion ends when the tenant takes the finalizer away."""
    item["metadata"]["finalizers"] = ["example.com/stay"]


def straight_to_a_node(dice: random.Random, item: Object) -> None:
    """Past every scheduler, with a record of its own. The name tells the witness."""
    item["metadata"]["name"] = "direct-" + item["metadata"]["name"]
    item["spec"]["nodeName"] = dice.choice(NODES)
    notes(item)[ALLOCATED] = record(dice)


def record(dice: random.Random) -> str:
    """What a pod holds, as HAMi writes it: of honest cards and of none, with any amounts."""
    amounts = ("0", "1", "-5", "15360", "2147483647", "9" * 30, "1e9", "½", "")
    entries = []
    for _ in range(many(dice, 500)):
        uuid = f"GPU-{dice.choice(('h0', 'h1', 'h2', 's0', 'canary', 'a-liar', word(dice)))}-{dice.randrange(4)}"
        entries.append(f"{uuid},NVIDIA,{dice.choice(amounts)},{dice.choice(amounts)}:")
        if dice.random() < 0.1:
            entries.append(dice.choice((";", ";;", *ODD)))
    return "".join(entries) + dice.choice((";", ""))


def group_spec(dice: random.Random) -> Object:
    """The spec of a PodGroup: mostly of a size that can be."""
    odd: tuple[object, ...] = (0, -1, 2**31 - 1, 2**31, 2**63 - 1, 10**30, 1.5, "3", None, [], {"a": 1})
    minimum = dice.choice(odd) if dice.random() < 0.3 else dice.randrange(1, 5)
    more = {"minResources": {GPU: dice.choice(AMOUNTS)}, "queue": dice.choice(ODD)} if dice.random() < 0.2 else {}
    if dice.random() < 0.05:
        more["notes"] = json.dumps([word(dice)] * 20_000)
    return {"minMember": minimum, **more}


HOSTILE: tuple[Twist, ...] = (
    *(huge_amounts, huge_amounts, huge_resources, many_resources, many_containers, large_note, policy_chains),
    *(many_types, many_uuids, forged_record, forged_marks, odd_notes, odd_fields, values_of_the_old_test),
    *(thousand_tolerations, thousand_terms, thousand_spreads, thousand_ports, thousand_volumes, gates, strange_gang),
    *(many_labels, resource_claims, never_gone, straight_to_a_node, other_plugins),
)


def hostile(dice: random.Random, name: str, namespace: str, known: Sequence[Twist] = HOSTILE) -> tuple[Object, str]:
    """A pod with something that no sound one has, and the names of its twists."""
    twists = [*dice.choices(SOUND, k=dice.choice((0, 0, 1))), *dice.choices(known, k=dice.choice((1, 1, 2)))]
    return twisted(dice, plain(dice, name, namespace), twists)
