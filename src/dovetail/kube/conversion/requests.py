"""One pod spec → the model's Pod: cards, effective node resources, allowed nodes, policies.

What cannot be read becomes a refusal with an error that names the field; such a pod is not placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dovetail.kube.conversion.amounts import added, amounts, within_priorities
from dovetail.kube.conversion.asks import ContainerAsks, asked
from dovetail.kube.conversion.bounded import Excess, bounded_meta, bounded_spec, listed
from dovetail.kube.conversion.forecasts import expected_cpu_milli, network_kbit
from dovetail.kube.conversion.known_names import check_pod_names, names_of
from dovetail.kube.conversion.limits import check_limits
from dovetail.kube.conversion.policies import plugin_profile, why_not_allowed
from dovetail.kube.conversion.preemption import NEVER_PREEMPTS, qos_of
from dovetail.kube.conversion.relations import Whose, preferences_of, relations_of
from dovetail.kube.conversion.resize import UNRESIZED, in_force, is_infeasible, status_of
from dovetail.kube.conversion.rules import node_rules
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import Vendor, Vendors
from dovetail.kube.objects import bounds
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.node import CPU, MEMORY, PODS
from dovetail.model.pod import Container, ContainerKind, DeviceRules, Pod, Refusal, at_once
from dovetail.model.reason import Reason

# What a container without a request counts in scores (pkg/scheduler/util/pod_resources.go).
SCORED_CPU, SCORED_MEMORY = 100, 200 << 20
POD_LEVEL_RESOURCES = (CPU, MEMORY, "hugepages-")  # what spec.resources may state (KEP-2837)
TRUE = ("1", "t", "T", "true", "TRUE", "True")  # Go's strconv.ParseBool
FALSE = ("0", "f", "F", "false", "FALSE", "False", "")


@dataclass(frozen=True, slots=True)
class Template:
    """An admitted pod spec, and the object that it belongs to."""

    where: str
    path: str  # of the spec: "spec" for a pod, "spec.template.spec" for a workload
    namespace: str
    name: str
    meta: objects.Meta
    spec: objects.PodSpec
    status: objects.PodStatus = UNRESIZED
    exists: bool = True  # a pod; else the name is that of the workload that will create it


@dataclass(frozen=True, slots=True)
class _Part:
    """One container, after reading."""

    name: str
    kind: ContainerKind
    asked: ContainerAsks
    requests: dict[str, int]
    limits: dict[str, int]
    right: bool

    @property
    def scored(self) -> dict[str, int]:
        return {CPU: self.requests.get(CPU, SCORED_CPU), MEMORY: self.requests.get(MEMORY, SCORED_MEMORY)}


def pod_from(template: Template, settings: Settings, problems: Problems) -> Pod:
    """The pod without owner, group, queue, age and uid, which the caller adds."""
    refusals = _Refusals()
    template = _within_bounds(template, settings.vendors, refusals, problems)
    spec, where, meta = template.spec, template.where, template.meta
    parts = _parts(template, settings.vendors, refusals, problems)
    if not spec.containers:
        problems.error(where, f"{template.path}.containers", "is empty; a pod has at least one container")
        refusals.invalid("the pod has no containers")
    resources, scored, use = _effective(template, parts, refusals, problems)
    rules, complaint = node_rules(spec, template.path, where, problems)
    refusals.invalid(complaint)
    whose = Whose(template.namespace, meta.labels, template.name if template.exists else "", template.path, where)
    relations, complaint = relations_of(spec, whose, problems)
    preferences, other_complaint = preferences_of(spec, whose, problems)
    refusals.invalid(complaint or other_complaint)
    wants = any(part.asked.asks for part in parts) or any(amount and "/" in name for name, amount in resources.items())
    default = settings.default_profile(wants, bool(preferences.nodes))
    beside = problems.below(template.path.removesuffix("spec"))  # the annotations' path
    asks = [ask for part in parts for ask in part.asked.asks]
    profile, default, complaint = plugin_profile(meta.annotations, default, asks, settings, where, beside)
    if complaint:
        refusals.invalid(complaint)
    elif complaint := why_not_allowed(profile, default, settings):
        refusals.add(Reason.POLICY_NOT_ALLOWED, complaint)
    _claims_and_gates(template, refusals, problems)
    check_pod_names(template.meta, spec, template.path, names_of(settings.vendors), where, problems)
    return Pod(
        namespace=template.namespace,
        name=template.name,
        uid=f"{template.namespace}/{template.name}",
        resources=_counted(resources, settings.vendors),
        scored_cpu_milli=scored[CPU],
        scored_memory=scored[MEMORY],
        containers=tuple(Container(part.name, part.kind, part.asked.asks) for part in parts),
        device_rules=_device_rules(meta.annotations, settings.vendors, where, beside, refusals),
        node_rules=rules,
        profile=profile,
        priority=within_priorities(spec.priority or 0),
        scheduler=spec.scheduler_name,
        quota_use=use,
        refusal=refusals.first,
        labels=template.meta.labels,
        relations=relations,
        preferences=preferences,
        leaving=bool(template.meta.deletion_timestamp),
        preempts=spec.preemption_policy != NEVER_PREEMPTS,
        **_class_and_forecast(template, parts, beside),
    )


def _class_and_forecast(template: Template, parts: Sequence[_Part], problems: Problems) -> dict[str, Any]:
    """The pod's class, the CPU that it will likely use, and the network load that it states."""
    overhead, _ = amounts("", "", template.spec.overhead, Problems())  # errors were reported already
    staying = ((part.limits, part.requests) for part in parts if part.kind is not ContainerKind.INIT)
    return {
        "qos": qos_of(template.spec),
        "expected_cpu_milli": min(expected_cpu_milli(staying, overhead.get(CPU, 0)), bounds.AMOUNT.most),
        "network_kbit": network_kbit(template.meta.annotations, template.where, problems),
    }


class _Refusals:
    """Keeps the first reason for which the pod cannot be placed."""

    def __init__(self) -> None:
        self.first: Refusal | None = None

    def add(self, reason: Reason, message: str) -> None:
        self.first = self.first or Refusal(reason, printable(message, 400))

    def invalid(self, message: str) -> None:
        """Refuse the pod for what is wrong with its spec; "" = nothing is."""
        if message:
            self.add(Reason.INVALID_REQUEST, message)

    def beyond(self, found: Iterable[Excess], where: str, problems: Problems) -> None:
        """Refuse the pod for exceeded bounds: a warning, because the request is understood."""
        for excess in found:
            problems.warning(where, excess.field, f"{excess}; the pod is not placed")
            self.add(Reason.LIMIT_EXCEEDED, f"{excess.field}: {excess}")


def _within_bounds(template: Template, vendors: Vendors, refusals: _Refusals, problems: Problems) -> Template:
    spec, found = bounded_spec(template.spec, template.path, vendors)
    meta, others = bounded_meta(template.meta, template.path.removesuffix("spec"), vendors)
    if not found and not others:
        return template
    refusals.beyond((*found, *others), template.where, problems)
    return replace(template, spec=spec, meta=meta)


class _Given(NamedTuple):
    """One container in the spec."""

    container: objects.Container
    kind: ContainerKind
    at: str  # "initContainers[0]"


def _containers(spec: objects.PodSpec) -> list[_Given]:
    """All containers, init containers first, in HAMi's order."""
    result = []
    for number, container in enumerate(spec.init_containers):
        kind = ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT
        result.append(_Given(container, kind, f"initContainers[{number}]"))
    result.extend(_Given(c, ContainerKind.APP, f"containers[{number}]") for number, c in enumerate(spec.containers))
    return result


def _parts(template: Template, vendors: Vendors, refusals: _Refusals, problems: Problems) -> list[_Part]:
    """The containers. Those whose cards would exceed the pod's bound are read without cards."""
    parts, cards, most = [], 0, bounds.CARDS_PER_POD
    for given in _containers(template.spec):
        part = _part(template, given, vendors, problems)
        if part.asked.excess is not None:
            refusals.beyond((part.asked.excess,), template.where, problems)
        elif part.asked.wrong or not part.right:
            refusals.invalid(part.asked.wrong or f"container {part.name}: a resource amount is wrong")
        cards += sum(ask.count for ask in part.asked.asks)
        parts.append(part if cards <= most.most else replace(part, asked=ContainerAsks()))
    if cards > most.most:
        refusals.beyond((Excess(f"{template.path}.containers", most, cards),), template.where, problems)
    return _with_one_card(parts, vendors)


def _with_one_card(parts: list[_Part], vendors: Vendors) -> list[_Part]:
    """The containers, where a plugin gives a pod one card: the first that asks gets the sum, the others share it."""
    for vendor in (row for row in vendors.rows if row.one_card):
        own = [(n, ask) for n, part in enumerate(parts) for ask in part.asked.asks if ask.vendor == vendor.word]
        whole = replace(own[0][1], memory_mib=sum(ask.memory_mib for _, ask in own)) if len(own) > 1 else None
        for n, ask in own if whole is not None else ():
            asks = tuple(one for one in parts[n].asked.asks if one is not ask)
            asks = (*asks, whole) if whole is not None and n == own[0][0] else asks
            parts[n] = replace(parts[n], asked=replace(parts[n].asked, asks=asks))
    return parts


def _part(template: Template, given: _Given, vendors: Vendors, problems: Problems) -> _Part:
    container, kind, at = given
    path, where, resources = f"{template.path}.{at}", template.where, container.resources
    cards = asked(resources, vendors, path, where, problems, kind is not ContainerKind.APP)
    check_limits(resources, path, where, problems)
    plain = {name: value for name, value in resources.requests.items() if not _is_device(name, vendors)}
    capped = {name: value for name, value in resources.limits.items() if not _is_device(name, vendors)}
    requests, right = amounts(where, f"{path}.resources.requests", plain, problems)
    limits, also_right = amounts(where, f"{path}.resources.limits", capped, problems)
    shares = _share_amounts(resources, vendors)
    requests = {**limits, **requests}  # requests default to limits
    if template.status is not UNRESIZED and kind is not ContainerKind.INIT:
        now = in_force(requests, status_of(container.name, template.status), is_infeasible(template.status))
        requests = {name: value for name, value in now.items() if not _is_device(name, vendors)}
    requests = {**requests, **shares, **cards.counts}
    return _Part(container.name or at, kind, cards, requests, limits, right and also_right)


def _is_device(name: str, vendors: Vendors) -> bool:
    return name in vendors.by_count or name in vendors.share_names


def _share_amounts(resources: objects.Resources, vendors: Vendors) -> dict[str, int]:
    """`gpumem` and similar resources as Kubernetes' own quota counts them: plain sums. Errors were reported already."""
    given = {**resources.limits, **resources.requests}
    quiet = Problems()
    result, _ = amounts("", "", {name: given[name] for name in given if name in vendors.share_names}, quiet)
    return result


def _effective(
    template: Template, parts: Sequence[_Part], refusals: _Refusals, problems: Problems
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """(requests, requests for scores, amounts for quotas), overhead included."""
    spec = template.spec
    requests = _aggregate(parts, [part.requests for part in parts])
    limits = _aggregate(parts, [part.limits for part in parts])
    scored = _aggregate(parts, [part.scored for part in parts])
    path = f"{template.path}.resources"
    level, right = _pod_level(spec, requests, path, template.where, problems)
    if level:
        now = in_force(level, template.status, is_infeasible(template.status))
        level = {name: now.get(name, 0) for name in level}
    given = spec.resources.limits if spec.resources else {}
    top, top_right = amounts(template.where, f"{path}.limits", given, problems)
    overhead, fine = amounts(template.where, f"{template.path}.overhead", spec.overhead, problems)
    if not (right and top_right and fine):
        refusals.invalid("a pod-level resource amount is wrong")
    requests = added(({**requests, **level}, overhead))
    scored = {name: level.get(name, value) + overhead.get(name, 0) for name, value in scored.items()}
    limits = {**limits, **top}
    limits = added((limits, {name: value for name, value in overhead.items() if name in limits}))
    if any(value > bounds.AMOUNT.most for value in (*requests.values(), *scored.values())):
        problems.error(template.where, f"{template.path}.containers", "together ask for more than anything that exists")
        refusals.invalid("the containers together ask for more than anything that exists")
        return {}, {CPU: 0, MEMORY: 0}, {}
    return requests, scored, _quota_use(requests, limits)


def _aggregate(parts: Sequence[_Part], amounts_of: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """For each resource, the maximum that the containers hold at one time."""
    kinds = [part.kind for part in parts]
    names = dict.fromkeys((CPU, MEMORY, *(name for own in amounts_of for name in own)))
    return {name: at_once(zip(kinds, (own.get(name, 0) for own in amounts_of), strict=True)) for name in names}


def _pod_level(
    spec: objects.PodSpec, requests: Mapping[str, int], path: str, where: str, problems: Problems
) -> tuple[dict[str, int], bool]:
    """The requests with spec.resources, which replaces the containers' sum.

    A limit alone is the request where the containers request nothing.
    """
    if spec.resources is None:
        return {}, True
    given, right = amounts(where, f"{path}.requests", spec.resources.requests, problems)
    limits, fine = amounts(where, f"{path}.limits", spec.resources.limits, problems)
    for name, value in limits.items():
        given.setdefault(name, requests.get(name, 0) or value)
    odd = sorted(name for name in given if not name.startswith(POD_LEVEL_RESOURCES))
    if odd:
        problems.error(where, f"{path}.requests.{odd[0]}", "only cpu, memory and hugepages can be asked for per pod")
    return {name: value for name, value in given.items() if name not in odd}, right and fine and not odd


def _quota_use(requests: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, int]:
    """The amounts by the names of a ResourceQuota (pkg/quota/v1/evaluator/core/pods.go)."""
    use = {PODS: 1, "count/pods": 1}
    for name, value in requests.items():
        use[f"requests.{name}"] = value
        if "/" not in name:
            use[name] = value  # `cpu` is short for `requests.cpu`
    use.update((f"limits.{name}", value) for name, value in limits.items() if "/" not in name)
    return use


def _counted(resources: Mapping[str, int], vendors: Vendors) -> dict[str, int]:
    """The resources that a node must have; parts of cards are checked with the cards."""
    return {name: value for name, value in resources.items() if value and name not in vendors.share_names}


def _claims_and_gates(template: Template, refusals: _Refusals, problems: Problems) -> None:
    spec, where = template.spec, template.where
    claims = spec.resource_claims or any(c.resources.claims for c in (*spec.init_containers, *spec.containers))
    if claims:
        message = (
            "resource claims (DRA) are not placed yet, the pod stays pending; ask by a resource such as nvidia.com/gpu"
        )
        problems.warning(where, f"{template.path}.resourceClaims", message)
        refusals.add(Reason.RESOURCE_CLAIMS, message)
    if spec.scheduling_gates:
        names = [str(gate.get("name", "")) if isinstance(gate, dict) else "" for gate in spec.scheduling_gates[:10]]
        refusals.add(Reason.SCHEDULING_GATED, f"waits until its scheduling gates are removed: {', '.join(names)}")


def _device_rules(
    annotations: Mapping[str, str], vendors: Vendors, where: str, problems: Problems, refusals: _Refusals
) -> tuple[DeviceRules, ...]:
    rules = [_vendor_rules(annotations, vendor, where, problems, refusals) for vendor in vendors.concerned(annotations)]
    return tuple(rule for rule in rules if rule != DeviceRules(rule.vendor))


def _vendor_rules(
    annotations: Mapping[str, str], vendor: Vendor, where: str, problems: Problems, refusals: _Refusals
) -> DeviceRules:
    def entries(key: str, bound: bounds.Bound) -> tuple[str, ...]:
        named, found = listed(annotations, key, bound)
        refusals.beyond(found, where, problems)
        return named

    bind = annotations.get(vendor.numa_bind, "").strip() if vendor.numa_bind else ""
    if bind not in (*TRUE, *FALSE):
        field = f"metadata.annotations.{vendor.numa_bind}"
        problems.warning(where, field, f"{printable(bind, 40)!r} is neither true nor false; it counts as false")
    return DeviceRules(
        vendor.word,
        entries(vendor.use_type, bounds.CARD_TYPES),
        entries(vendor.nouse_type, bounds.CARD_TYPES),
        entries(vendor.use_uuid, bounds.CARD_UUIDS),
        entries(vendor.nouse_uuid, bounds.CARD_UUIDS),
        bind in TRUE,
        annotations.get(vendor.mode, "").strip() if vendor.mode else "",
    )


def renamed(pod: Pod, name: str) -> Pod:
    """The same pod with another name: another replica."""
    return replace(pod, name=name, uid=f"{pod.namespace}/{name}")
