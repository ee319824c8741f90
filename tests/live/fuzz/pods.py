"""Pods that a tenant may write, by the dice: all shapes that make sense, and what the API server lets through besides.

A *twist* is a function that changes one thing of a pod. Every pod is a plain one with some twists; the names of the
twists are told, so that a finding can be repeated. No twist lets a pod onto the canaries' node.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping

from tests.kube.live.hostile import TEXTS
from tools.controlplane.client import Object
from tools.controlplane.objects import GPU, GPU_MEMORY, gpu_limits, pod

Twist = Callable[[random.Random, Object], None]

ALLOCATED, TO_ALLOCATE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"
PERCENT = "nvidia.com/gpumem-percentage"
GANG = "scheduling.x-k8s.io/pod-group"
NODES = ("h0", "h1", "s0", "a-liar", "z-liar", "not-there")
CLAIMS = ("claim-0", "claim-1", "claim-of-no-class", "not-there")
POLICIES = ("binpack", "spread", "mutex", "numa", "topology-aware", "first-fit", "random", "best-fit")
NODE_POLICIES = ("binpack", "spread", "spread-replicas", "least-allocated", "fgd", "snug", "gpu-packing", "random")
AMOUNTS = (
    *("0", "1", "2", "16", "1000", "2147483647", "2147483648", "4294967296", "9223372036854775807"),
    *("9223372036854775808", "99999999999999999999999999", "1e3", "1e9", "1E18", "16Gi", "1Ki", "1Ei", "100k", "-1"),
)
ODD = (
    *TEXTS,
    *(
        "\x1b[2J\x1b[31mred",
        "a\nb",
        "\r\n\t",
        "\u200d\u200b",
        "e" + "\u0301" * 300,
        "\x7f\x80\x9b",
        "\ufeff",
        "\U000e0001",
    ),
)
LARGEST_NOTE = 250_000  # bytes; the API server keeps 256 KiB of annotations for a pod


def word(dice: random.Random, length: int = 6) -> str:
    return "".join(dice.choices(string.ascii_lowercase + string.digits, k=length))


def many(dice: random.Random, most: int) -> int:
    """How long a list is: mostly short, so that the API server keeps up, and sometimes as long as it may be."""
    return most if dice.random() < 0.05 else dice.randrange(2, max(3, most // 20))


def notes(item: Object) -> dict[str, str]:
    found: dict[str, str] = item["metadata"].setdefault("annotations", {})
    return found


def limits(item: Object, container: int = 0) -> dict[str, str]:
    found: dict[str, str] = item["spec"]["containers"][container]["resources"]["limits"]
    return found


def plain(dice: random.Random, name: str, namespace: str) -> Object:
    """A share of a card, a whole one or two, a percentage, or no card at all."""
    share = gpu_limits(1, memory=dice.randrange(500, 8000), cores=dice.randrange(1, 60))
    shapes: tuple[Mapping[str, str | int], ...] = (
        *(share, share, gpu_limits(1), gpu_limits(2), gpu_limits(1, memory=15360, cores=100)),
        *({GPU: 1, PERCENT: dice.randrange(1, 100)}, {GPU_MEMORY: 2000}, {"cpu": "10m"}, {"cpu": "1", "memory": "1Gi"}),
    )
    return pod(name, dice.choice(shapes), namespace=namespace, labels={"app": f"a{dice.randrange(8)}"})


# --- what makes sense


def several_containers(dice: random.Random, item: Object) -> None:
    first = {key: item["spec"]["containers"][0][key] for key in ("name", "image")}
    for number in range(dice.randrange(1, 4)):
        more = {"limits": {GPU: "1", GPU_MEMORY: str(dice.randrange(100, 2000))}} if dice.random() < 0.5 else {}
        item["spec"]["containers"].append({**first, "name": f"c{number}", "resources": {"limits": {}, **more}})


def init_containers(dice: random.Random, item: Object) -> None:
    first = item["spec"]["containers"][0]
    made = []
    for number in range(dice.randrange(1, 3)):
        one = {"name": f"i{number}", "image": first["image"], "resources": {"limits": {GPU: "1", GPU_MEMORY: "700"}}}
        made.append({**one, "restartPolicy": "Always"} if dice.random() < 0.4 else one)
    item["spec"]["initContainers"] = made


def gang(dice: random.Random, item: Object) -> None:
    item["metadata"]["labels"][GANG] = f"g{dice.randrange(12)}"


def urgent(dice: random.Random, item: Object) -> None:
    item["spec"]["priorityClassName"] = "urgent"


def affinity(dice: random.Random, item: Object) -> None:
    kind = dice.choice(("podAffinity", "podAntiAffinity"))
    term = {
        "labelSelector": {"matchLabels": {"app": f"a{dice.randrange(8)}"}},
        "topologyKey": dice.choice(("kubernetes.io/hostname", "kind")),
    }
    if dice.random() < 0.3:
        term["namespaceSelector"] = {}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": term}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]} if dice.random() < 0.5 else preferred
    item["spec"]["affinity"] = {kind: rule}


def node_affinity(dice: random.Random, item: Object) -> None:
    values = dice.sample(["hami", "stock", "lock", "none"], 2)
    operator = dice.choice(("In", "NotIn"))
    terms = [{"matchExpressions": [{"key": "kind", "operator": operator, "values": values}]}]
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    item["spec"].setdefault("affinity", {})["nodeAffinity"] = rule


def spread(dice: random.Random, item: Object) -> None:
    item["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": dice.randrange(1, 4),
            "topologyKey": dice.choice(("kubernetes.io/hostname", "kind")),
            "whenUnsatisfiable": dice.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {"app": f"a{dice.randrange(8)}"}},
        }
    ]


def ports(dice: random.Random, item: Object) -> None:
    port = 8000 + dice.randrange(20)
    item["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]


def claims(dice: random.Random, item: Object) -> None:
    name = dice.choice(CLAIMS)
    item["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def policies(dice: random.Random, item: Object) -> None:
    notes(item)["dovetail.dev/node-policy"] = dice.choice(NODE_POLICIES)
    notes(item)["hami.io/gpu-scheduler-policy"] = ",".join(dice.sample(POLICIES, dice.randrange(1, 5)))


def wishes(dice: random.Random, item: Object) -> None:
    """Which cards and nodes it wants, as HAMi spells it."""
    notes(item)[dice.choice(("nvidia.com/use-gputype", "nvidia.com/nouse-gputype"))] = dice.choice(("T4", "A100", "a"))
    notes(item)["nvidia.com/use-gpuuuid"] = ",".join(f"GPU-h{dice.randrange(3)}-{n}" for n in range(4))


def owner(dice: random.Random, item: Object) -> None:
    """A new one each time: what is kept by owner must be given up again."""
    made = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": word(dice),
        "uid": word(dice, 30),
        "controller": True,
    }
    item["metadata"]["ownerReferences"] = [made]


def one_node(dice: random.Random, item: Object) -> None:
    """With all taints tolerated: only beside a node selector, or the pod could take the canaries' node."""
    item["spec"]["nodeSelector"] = {"kubernetes.io/hostname": dice.choice(NODES)}
    item["spec"]["tolerations"] = [{"operator": "Exists"}]


SOUND: tuple[Twist, ...] = (
    *(several_containers, init_containers, gang, gang, urgent, affinity, node_affinity, spread, ports, claims),
    *(policies, wishes, owner, one_node),
)


def sound(dice: random.Random, name: str, namespace: str) -> tuple[Object, str]:
    """A pod that makes sense, and the names of its twists."""
    return twisted(dice, plain(dice, name, namespace), dice.choices(SOUND, k=dice.choice((0, 0, 1, 1, 2, 3))))


def twisted(dice: random.Random, item: Object, twists: list[Twist]) -> tuple[Object, str]:
    once = dict.fromkeys(twists)  # the API server refuses two containers of one name
    for twist in once:
        twist(dice, item)
    return item, "+".join(twist.__name__ for twist in once) or "plain"
