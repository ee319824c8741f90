"""The fields that the API server would have filled in before a scheduler sees the pod; each one is noted.

Priority, LimitRange defaults, requests from limits, RuntimeClass overhead and scheduling, tolerations for extended
resources (Kubernetes' plugin/pkg/admission: priority, limitranger, runtimeclass, extendedresourcetoleration). Admission
acts when a pod is created: a pod that exists is read unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from dovetail.kube.conversion.amounts import HIGHEST_PRIORITY, within_priorities
from dovetail.kube.conversion.asks import count_by_webhook
from dovetail.kube.conversion.preemption import tolerance_of
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.decode import Objects
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.core import Quantities
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.node import Node
from dovetail.model.pod import Tolerance

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": HIGHEST_PRIORITY}


@dataclass(frozen=True, slots=True)
class Admission:
    """The cluster's rules for new pods."""

    priorities: Mapping[str, int] = field(default_factory=dict)  # class -> value
    policies: Mapping[str, str] = field(default_factory=dict)  # class -> its preemptionPolicy
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)  # class -> what its pods tolerate
    default_priority: tuple[str, int] | None = None  # the global default class
    limits: Mapping[str, tuple[objects.LimitRangeItem, ...]] = field(default_factory=dict)  # by namespace
    runtimes: Mapping[str, objects.RuntimeClass] = field(default_factory=dict)
    taint_keys: frozenset[str] = frozenset()  # of the cluster's nodes: a toleration matters only for these

    def admit(
        self, spec: objects.PodSpec, namespace: str, vendors: Vendors, where: str, problems: Problems
    ) -> objects.PodSpec:
        """The spec as the API server would store it."""
        spec = self._with_defaults(spec, namespace, where, problems)
        spec = self._with_runtime(spec, where, problems)
        spec = self._with_tolerations(spec, vendors, where, problems)
        return self.with_priority(spec, where, problems)

    def with_priority(self, spec: objects.PodSpec, where: str, problems: Problems) -> objects.PodSpec:
        """The spec with a priority number, and with the preemption policy of its class.

        A pod that exists lacks nothing else: the API server always writes both, people often leave them out of files.
        """
        name = spec.priority_class_name
        if not name and spec.priority is None and self.default_priority is not None:
            name = self.default_priority[0]
        policy = spec.preemption_policy or self.policies.get(name, "")
        return msgspec.structs.replace(spec, priority=self._priority(spec, where, problems), preemption_policy=policy)

    def _priority(self, spec: objects.PodSpec, where: str, problems: Problems) -> int:
        if spec.priority is not None:
            return spec.priority
        name = spec.priority_class_name
        if not name:
            if self.default_priority is None:
                return 0
            name, value = self.default_priority
            problems.note(where, "spec.priority", f"{value}, by the default PriorityClass {name}")
            return value
        given = self.priorities.get(name) if name in self.priorities else SYSTEM_PRIORITIES.get(name)
        if given is None:
            message = f"PriorityClass {printable(name)} is not in the input; priority 0 is used. Add it with -f"
            problems.warning(where, "spec.priorityClassName", message)
            return 0
        problems.note(where, "spec.priority", f"{given}, by PriorityClass {name}")
        return given

    def _with_defaults(self, spec: objects.PodSpec, namespace: str, where: str, problems: Problems) -> objects.PodSpec:
        items = self.limits.get(namespace, ())
        if not items:
            return spec
        lists = {"containers": spec.containers, "initContainers": spec.init_containers}
        filled = {
            path: [_defaulted(c, items, f"spec.{path}[{i}].resources", where, problems) for i, c in enumerate(given)]
            for path, given in lists.items()
        }
        return msgspec.structs.replace(spec, containers=filled["containers"], init_containers=filled["initContainers"])

    def _with_runtime(self, spec: objects.PodSpec, where: str, problems: Problems) -> objects.PodSpec:
        name = spec.runtime_class_name
        if not name:
            return spec
        runtime = self.runtimes.get(name)
        if runtime is None:
            message = f"RuntimeClass {printable(name)} is not in the input; its overhead, if any, is not counted"
            problems.warning(where, "spec.runtimeClassName", message)
            return spec
        overhead = spec.overhead
        if not overhead and runtime.overhead.pod_fixed:
            overhead = runtime.overhead.pod_fixed
            said = ", ".join(f"{key} {value}" for key, value in overhead.items())
            problems.note(where, "spec.overhead", f"{said}, by RuntimeClass {name}")
        return msgspec.structs.replace(
            spec,
            overhead=overhead,
            node_selector={**runtime.scheduling.node_selector, **spec.node_selector},
            tolerations=[*spec.tolerations, *runtime.scheduling.tolerations],
        )

    def _with_tolerations(
        self, spec: objects.PodSpec, vendors: Vendors, where: str, problems: Problems
    ) -> objects.PodSpec:
        tolerated = {t.key for t in spec.tolerations if t.operator == "Exists" and t.effect in ("", "NoSchedule")}
        missing = [name for name in _extended(spec, vendors) if name not in tolerated]
        if not missing:
            return spec
        noted = ", ".join(name for name in missing if name in self.taint_keys)
        if noted:
            message = f"taint tolerated, as the resource of its name is asked for: {noted}"
            problems.note(where, "spec.tolerations", message)
        added = [objects.Toleration(name, "Exists", effect="NoSchedule") for name in missing]
        return msgspec.structs.replace(spec, tolerations=[*spec.tolerations, *added])


def admission(found: Objects, nodes: Iterable[Node], problems: Problems) -> Admission:
    """The rules from the input's PriorityClasses, LimitRanges and RuntimeClasses."""
    classes = {item.name: item.value for item in found.of("PriorityClass")}
    defaults = sorted((c.value, name) for name, c in classes.items() if c.global_default)
    for item in found.of("PriorityClass"):
        if not -(2**31) <= item.value.value <= HIGHEST_PRIORITY:
            problems.error(item.where, "value", "must be a 32-bit number, at most 1000000000 for your own classes")
    limits: dict[str, list[objects.LimitRangeItem]] = {}
    for item in sorted(found.of("LimitRange"), key=lambda item: (item.namespace, item.name)):
        rows = limits.setdefault(item.namespace, [])
        rows.extend(_completed(row) for row in item.value.spec.limits if row.type == "Container")
    return Admission(
        priorities={name: within_priorities(c.value) for name, c in classes.items()},
        policies={name: c.preemption_policy for name, c in classes.items()},
        tolerances=_tolerances(found, problems),
        # Kubernetes takes the smallest of several defaults (plugin/pkg/admission/priority)
        default_priority=(defaults[0][1], defaults[0][0]) if defaults else None,
        limits={namespace: tuple(rows) for namespace, rows in limits.items() if rows},
        runtimes={item.name: item.value for item in found.of("RuntimeClass")},
        taint_keys=frozenset(taint.key for node in nodes for taint in node.taints if taint.effect == "NoSchedule"),
    )


def _tolerances(found: Objects, problems: Problems) -> dict[str, Tolerance]:
    read = ((item.name, tolerance_of(item.value, item.where, problems)) for item in found.of("PriorityClass"))
    return {name: tolerance for name, tolerance in read if tolerance is not None}


def _completed(item: objects.LimitRangeItem) -> objects.LimitRangeItem:
    """The item with its derived defaults: max → default → defaultRequest, and min → defaultRequest.

    As in Kubernetes' pkg/apis/core/v1/defaults.go.
    """
    default = {**item.max, **item.default}
    request = {**item.min, **default, **item.default_request}
    return msgspec.structs.replace(item, default=default, default_request=request)


def _defaulted(
    container: objects.Container, items: Iterable[objects.LimitRangeItem], path: str, where: str, problems: Problems
) -> objects.Container:
    limits: Quantities = dict(container.resources.limits)
    requests: Quantities = {**limits, **container.resources.requests}  # requests default to limits first
    for item in items:
        for name, value in item.default.items():
            if name not in limits:
                limits[name] = value
                problems.note(where, f"{path}.limits.{name}", f"{value}, by the namespace's LimitRange")
        for name, value in item.default_request.items():
            if name not in requests:
                requests[name] = value
                problems.note(where, f"{path}.requests.{name}", f"{value}, by the namespace's LimitRange")
    resources = msgspec.structs.replace(container.resources, limits=limits, requests=requests)
    return msgspec.structs.replace(container, resources=resources)


def is_extended(name: str) -> bool:
    """Whether the resource is extended: its name has a domain that is not Kubernetes' own (pkg/apis/core/v1/helper)."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _extended(spec: objects.PodSpec, vendors: Vendors) -> dict[str, None]:
    """Requested extended resources, with the counts that HAMi's webhook adds.

    After a webhook has changed a pod, the admission plugins run once more.
    """
    names: dict[str, None] = {}
    for resources in (container.resources for container in (*spec.init_containers, *spec.containers)):
        written = (v.count for v in vendors.concerned(resources.limits) if count_by_webhook(resources, v))
        for name in (*resources.limits, *resources.requests, *written):
            if is_extended(name):
                names[name] = None
    return names
