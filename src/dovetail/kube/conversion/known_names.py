"""Misspelt names of annotations, labels and resources: `hami.io/gpu-schedular-policy`, `nvidia.com/gpu-mem`.

Kubernetes accepts any name, and a name that no component reads has no effect. Only names that resemble a known one are
reported: the domains belong to vendors, who have other names (`nvidia.com/mig-1g.5gb`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from dovetail.kube.conversion.forecasts import NETWORK_KEYS
from dovetail.kube.conversion.memberships import OWN_NAMES
from dovetail.kube.conversion.policies import DEVICE_POLICY_KEYS, NODE_POLICY_KEYS, WEIGHTS_KEY
from dovetail.kube.conversion.queue_names import OWN_QUEUE
from dovetail.kube.conversion.settings import WEBHOOK
from dovetail.kube.conversion.topology_rules import ROLE_RULES
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable

MAX_NAMES_CHECKED = 200  # of one mapping
LONGEST_LOOKED_AT = 120  # characters; no name of ours is longer
SIMILAR_NAMES = 0.78  # of two names of one domain, by difflib: `gpumemory` and `gpumem` are 0.8, `gpus` and `gpu` 0.857
OUR_DOMAIN = "dovetail.dev/"
OUR_OTHERS = ("dovetail.dev/enforcer", "dovetail.dev/epoch", "dovetail.dev/bound-by", OWN_QUEUE)
GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"

# Correct names that resemble ours: names of HAMi's, the vendors' and Volcano's own components.
OTHERS = frozenset(
    (
        *("hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/bind-phase", "hami.io/bind-time", "hami.io/mutex.lock"),
        *("hami.io/vgpu-mig-allocations", "hami.io/scheduler-role", "hami.io/resource-pool", "hami.io/device-cordon"),
        *("hami.io/node-handshake", "scheduling.k8s.io/group-min-member"),
        *("nvidia.com/gpu.shared", "nvidia.com/pgpu", "nvidia.com/vgpu", "nvidia.com/hostdev"),
        *("aliyun.com/gpu", "aliyun.com/gpu-count", "tencent.com/vcuda-core-limit", "tencent.com/vcuda-device"),
        *("tencent.com/gpu-assigned",),
        *("mthreads.com/gpu", "enflame.com/shared-gcu", "metax-tech.com/vgpu", "hygon.com/dcu", "iluvatar.ai/gpu"),
    )
)
OTHERS_PREFIXES = (
    *("nvidia.com/mig-", "nvidia.com/gpu.", "nvidia.com/cuda.", "nvidia.com/mps.", "nvidia.com/gpu-driver"),
    *("aliyun.com/gpu-core", "tencent.com/predicate-"),
    *("cambricon.com/mlu", "cambricon.com/real-mlu", "huawei.com/npu-", "huawei.com/Ascend"),
)
_JOINTS = re.compile(r"[-_.]")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The known names for one table of vendors."""

    annotations: frozenset[str]
    labels: frozenset[str]
    resources: frozenset[str]
    parts: frozenset[str]  # resources that are parts of cards
    not_for_labels: frozenset[str]  # correct elsewhere, but not as labels
    right: frozenset[str]  # correct somewhere, for us or for other components
    domains: tuple[str, ...]  # "hami.io/"
    endings: Mapping[str, str]  # an annotation's name without its domain -> its whole name

    def may_be_a_slip(self, name: str) -> bool:
        """Whether the name may be misspelt. Quickly False for nearly all names that do not concern scheduling."""
        if len(name) > LONGEST_LOOKED_AT or name in self.right or name.startswith(OTHERS_PREFIXES):
            return False
        return name.startswith(self.domains) or name.rpartition("/")[2] in self.endings


@lru_cache(maxsize=8)
def names_of(vendors: Vendors) -> KnownNames:
    rows = vendors.rows
    annotations = frozenset(
        (
            *NODE_POLICY_KEYS,
            *DEVICE_POLICY_KEYS,
            WEIGHTS_KEY,
            GROUP_ANNOTATION,
            *OWN_NAMES,
            *NETWORK_KEYS,
            *(key for row in rows for key in row.pod_keys if key),
        )
    )
    labels, parts = frozenset((WEBHOOK, *GROUP_LABELS)), vendors.share_names
    resources = frozenset((*parts, *vendors.by_count))
    written = {key for row in rows for key in (row.to_allocate, row.register, row.score) if key}
    right = frozenset((*annotations, *labels, *resources, *written, *OUR_OTHERS, *OTHERS))
    domains = sorted({f"{name.partition('/')[0]}/" for name in (*annotations, *labels, *resources) if "/" in name})
    endings = {name.rpartition("/")[2]: name for name in sorted(annotations)}
    return KnownNames(annotations, labels, resources, parts, annotations | parts, right, tuple(domains), endings)


def check_pod_names(
    meta: objects.Meta, spec: objects.PodSpec, path: str, names: KnownNames, where: str, problems: Problems
) -> None:
    """Report misspelt names of a pod. `path`: the spec's; the metadata are beside it."""
    beside = f"{path.removesuffix('spec')}metadata" if path.endswith("spec") else "metadata"
    for place, given, known in (
        ("annotations", meta.annotations, names.annotations),
        ("labels", meta.labels, names.labels),
    ):
        for name in islice(given, MAX_NAMES_CHECKED):
            message = _wrong_place(name, place, names) or _slip(name, known, names)
            if message:
                problems.mistake(where, f"{beside}.{place}.{printable(name)}", message)
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for number, container in enumerate(containers[:MAX_NAMES_CHECKED]):
            _check_resources(container.resources, f"{path}.{kind}[{number}].resources", names, where, problems)


def check_workload_names(
    kind: str, meta: objects.Meta, template: objects.Meta, names: KnownNames, where: str, problems: Problems
) -> None:
    """Report annotations and labels on a workload that belong on its pods: no component reads them there."""
    for place, given, inside, known in (
        ("annotations", meta.annotations, template.annotations, names.annotations),
        ("labels", meta.labels, template.labels, names.labels),
    ):
        for name in islice(given, MAX_NAMES_CHECKED):
            if name in known and name not in inside and not (kind == "JobSet" and name in ROLE_RULES):
                message = f"has no effect on a {kind}; write it under spec.template.metadata.{place}, for its pods"
                problems.mistake(where, f"metadata.{place}.{name}", message)


def _check_resources(given: objects.Resources, path: str, names: KnownNames, where: str, problems: Problems) -> None:
    for part, amounts in (("limits", given.limits), ("requests", given.requests)):
        for name in islice(amounts, MAX_NAMES_CHECKED):
            if part == "requests" and name in given.limits:
                continue  # reported there already
            likely = likely_name(name, names.resources, names) if names.may_be_a_slip(name) else ""
            if likely:
                message = f"is no resource that HAMi or Dovetail knows; did you mean {likely}?"
                problems.mistake(where, f"{path}.{part}.{printable(name)}", message)


def _wrong_place(name: str, place: str, names: KnownNames) -> str:
    if name in names.parts:
        return f"is a resource and no {place[:-1]}; write it under resources.limits"
    if place == "labels" and name in names.annotations:
        return "is an annotation and no label; write it under annotations"
    if place == "annotations" and name in names.labels:
        return "is a label and no annotation; write it under labels"
    return ""


def _slip(name: str, known: Iterable[str], names: KnownNames) -> str:
    likely = likely_name(name, known, names) if names.may_be_a_slip(name) else ""
    if likely:
        return f"is nothing that HAMi or Dovetail reads; did you mean {likely}?"
    if name.startswith(OUR_DOMAIN) and name not in names.right:
        return f"is nothing that Dovetail reads; it reads {NODE_POLICY_KEYS[0]} and {DEVICE_POLICY_KEYS[0]}"
    return ""


def likely_name(name: str, known: Iterable[str], names: KnownNames) -> str:
    """The known name that this one resembles, of the same domain if there is one; "" = none."""
    domain, _, ending = name.rpartition("/")
    for ours, hamis in (NODE_POLICY_KEYS, DEVICE_POLICY_KEYS):
        if f"{domain}/" == OUR_DOMAIN and ending == hamis.rpartition("/")[2]:
            return ours
    same = {one.rpartition("/")[2]: one for one in known if one.rpartition("/")[0] == domain}
    plain = _JOINTS.sub("", ending.lower())
    for candidate, whole in same.items():
        if _JOINTS.sub("", candidate.lower()) == plain:
            return whole
    elsewhere = names.endings.get(ending, "")
    if elsewhere in known:
        return elsewhere
    close = difflib.get_close_matches(ending, same, n=1, cutoff=SIMILAR_NAMES)
    return same[close[0]] if close else ""
