"""Single changes to a pod that might place it, cheapest for the user first: `suggest` tries them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dovetail.engine.ledger.intern import takes_idle_cards
from dovetail.engine.wording import amount_of, pod_term, resource_title, unit_of
from dovetail.model.node import CPU, MEMORY, STORAGE, Node, Taint
from dovetail.model.pod import CardResources, Container, DeviceAsk, DeviceRules, Pod, at_once
from dovetail.model.relations import Relations
from dovetail.model.rules import AffinityTerm, NodeRules, Toleration
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

# Kubernetes' taints of nodes that are cordoned, not ready, out of memory and so on: no pod should be sent there.
CONDITION_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
LEAST_PART = Fraction(1, 2)  # of what was asked: a smaller part is never suggested


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    sentence: str
    apply: Callable[[Pod], Pod]
    for_replicas: bool = False  # works only if placed pods of the same owner change too


Works = Callable[[SuggestedChange], object]  # true if the pod is placed with the change


def less(pod: Pod, works: Works, biggest: Mapping[str, int]) -> Iterator[SuggestedChange]:
    """The largest amount below the asked one that fits, for one resource at a time. Found by halving: many tries.

    `biggest`: MiB of the largest card of each vendor, which is the size of a whole card.
    """
    by_cards = set()
    for c, container in enumerate(pod.containers):
        for a, ask in enumerate(container.asks):
            by_cards.add(ask.resources.count if ask.resources is not None else "")
            for asked, change_to in _parts_of_cards(pod, c, a, biggest.get(ask.vendor, 0)):
                yield from _largest(asked, change_to, works)
    for name, amount in sorted(pod.resources.items()):
        if name not in by_cards:
            yield from _largest(amount // unit_of(name), _resource(name, amount), works)
    for name in (CPU, MEMORY, STORAGE):
        limit = pod.quota_use.get(f"limits.{name}", 0)
        yield from _largest(limit // unit_of(name), _limit(name, limit), works)


def fewer_cards(pod: Pod) -> Iterator[SuggestedChange]:
    for c, container in enumerate(pod.containers):
        for a, ask in enumerate(container.asks):
            for count in range(ask.count - 1, least(ask.count) - 1, -1):
                change = _asking(c, a, "count", count=count)
                yield SuggestedChange(
                    f"{_of(pod, c)}ask for {count} GPU{'s' * (count > 1)} instead of {ask.count}", change
                )


def other_models(pod: Pod, models: Mapping[str, Sequence[str]]) -> Iterator[SuggestedChange]:
    """Another GPU model of the cluster, if the pod names models; `models` by vendor."""
    for rules in pod.device_rules:
        if not (rules.use_types or rules.nouse_types):
            continue
        said = f"instead of {','.join(rules.use_types)}" if rules.use_types else "as well"
        for model in models.get(rules.vendor, ()):
            if not rules.accepts(model):
                changed = replace(rules, use_types=(model,), nouse_types=())
                yield SuggestedChange(f"take the GPU type {model} {said}", _other_rules(changed))


def _other_rules(changed: DeviceRules) -> Callable[[Pod], Pod]:
    return lambda pod: replace(
        pod, device_rules=tuple(changed if rules.vendor == changed.vendor else rules for rules in pod.device_rules)
    )


def constraints_dropped(pod: Pod) -> Iterator[SuggestedChange]:
    yield from _rules_about_nodes(pod)
    yield from _rules_about_pods(pod)
    yield from _rules_about_cards(pod)


def _rules_about_nodes(pod: Pod) -> Iterator[SuggestedChange]:
    """Rules about nodes, dropped one at a time.

    The node of a DaemonSet's pod is not dropped: the pod is made for it.
    """
    rules, own = pod.node_rules, pod.own_node
    if rules.node_name and not own:
        yield _node_rules(f"drop nodeName {rules.node_name}", node_name="")
    for n, (label, value) in enumerate(rules.selector):
        rest = rules.selector[:n] + rules.selector[n + 1 :]
        yield _node_rules(f"drop nodeSelector {label}={value}", selector=rest)
    if rules.affinity is not None:
        pinned = own and not rules.node_name
        kept = tuple(AffinityTerm(fields=term.fields) for term in rules.affinity) if pinned else None
        if kept != rules.affinity:
            yield _node_rules("drop the required node affinity", affinity=kept)


def _rules_about_pods(pod: Pod) -> Iterator[SuggestedChange]:
    """Rules about pods, dropped one at a time. Anti-affinity of replicas works both ways, so all of them drop it."""
    relations = pod.relations
    for term in relations.affinity:
        yield _relation(f"drop the required pod affinity {pod_term(term)}", "affinity", term)
    for term in relations.anti_affinity:
        change = _relation(f"drop the required pod anti-affinity {pod_term(term)}", "anti_affinity", term)
        yield replace(change, for_replicas=True)
    for constraint in relations.spread:
        if constraint.hard:
            what = f"over {constraint.topology_key} (maxSkew {constraint.max_skew})"
            yield _relation(f"drop the topology spread constraint {what}", "spread", constraint)
    for port in relations.ports:
        yield _relation(f"drop the host port {port.port}/{port.protocol}", "ports", port)


def _rules_about_cards(pod: Pod) -> Iterator[SuggestedChange]:
    for devices in pod.device_rules:
        for field, name, nothing in (
            ("use_types", "use-gputype", ()),
            ("nouse_types", "nouse-gputype", ()),
            ("use_uuids", "use-gpuuuid", ()),
            ("nouse_uuids", "nouse-gpuuuid", ()),
            ("numa_bind", "numa-bind", False),
            ("mode", "vgpu-mode", ""),
        ):
            value = getattr(devices, field)
            if value:
                shown = "" if value is True else f" {value if isinstance(value, str) else ','.join(value)}"
                yield SuggestedChange(f"drop {name}{shown}", _device_rule(devices, field, nothing))


def taints_tolerated(pod: Pod, nodes: Iterable[Node]) -> Iterator[SuggestedChange]:
    """One taint at a time, most frequent first; without taints by which Kubernetes marks nodes that do not work."""
    taints: dict[Taint, int] = {}
    for node in nodes:
        taint = pod.node_rules.untolerated(node.static)
        if taint is not None and not taint.key.startswith(CONDITION_TAINTS):
            taints[taint] = taints.get(taint, 0) + 1
    for taint in sorted(taints, key=lambda t: (-taints[t], str(t))):
        operator = "Equal" if taint.value else "Exists"
        toleration = Toleration(taint.key, operator, taint.value, taint.effect)
        yield _node_rules(f"tolerate the taint {taint}", tolerations=(*pod.node_rules.tolerations, toleration))


def other_policies(pod: Pod, alone: bool) -> Iterator[SuggestedChange]:
    """Other policies. A GPU policy matters for several cards or pods; a node policy only if other pods follow."""
    asks = [ask for container in pod.containers for ask in container.asks]
    picky = takes_idle_cards(pod) or any(DEVICE_POLICIES[name].idle_only for name in pod.profile.device)
    any_card_will_do = alone and not picky and len(asks) <= 1 and all(ask.count == 1 for ask in asks)
    joint = NODE_POLICIES[pod.profile.node].offer is not None  # such a policy uses no GPU policy
    for name in DEVICE_POLICIES:
        if pod.profile.device != (name,) and not any_card_will_do and not joint:
            yield SuggestedChange(
                f"use the GPU policy {name} instead of {','.join(pod.profile.device)}", _policy("device", (name,))
            )
    for name in NODE_POLICIES:
        if (not alone or (joint and not any_card_will_do)) and pod.profile.node != name:
            yield SuggestedChange(f"use the node policy {name} instead of {pod.profile.node}", _policy("node", name))


def least(asked: int) -> int:
    """The smallest amount that is suggested instead of the asked one."""
    return -(-asked * LEAST_PART.numerator // LEAST_PART.denominator)


def _largest(asked: int, change_to: Callable[[int], SuggestedChange], works: Works) -> Iterator[SuggestedChange]:
    """The change to the largest amount below `asked` that works, or nothing."""
    low, high = least(asked), asked
    if low >= high or not works(change_to(low)):
        return
    while high - low > 1:
        middle = (low + high) // 2
        if works(change_to(middle)):
            low = middle
        else:
            high = middle
    yield change_to(low)


def _parts_of_cards(pod: Pod, c: int, a: int, biggest: int) -> Iterator[tuple[int, Callable[[int], SuggestedChange]]]:
    """(asked amount, the change to less) for each part of an ask that a manifest can state."""
    ask = pod.containers[c].asks[a]
    if ask.memory_percent is not None and not ask.plain:
        yield ask.memory_percent, _percent(pod, c, a)
    elif ask.resources is None or ask.resources.memory:
        whole = ask.memory_percent is not None
        yield (biggest if whole else ask.memory_mib) // _memory_unit(ask), _memory(pod, c, a)
    if ask.resources is None or ask.resources.compute:
        yield ask.compute_milli // 10, _compute(pod, c, a)


def _memory(pod: Pod, c: int, a: int) -> Callable[[int], SuggestedChange]:
    ask, unit = pod.containers[c].asks[a], _memory_unit(pod.containers[c].asks[a])
    whole = "the whole GPU" if ask.count == 1 else "whole GPUs"
    asked = f"{ask.memory_mib:,}" if ask.memory_percent is None else whole

    def to(units: int) -> SuggestedChange:
        sentence = f"{_of(pod, c)}ask for {units * unit:,} MiB of GPU memory instead of {asked}"
        part = {"memory_mib": units * unit, "memory_percent": None, "compute_milli": _compute_of_part(pod, ask)}
        return SuggestedChange(sentence, _asking(c, a, "memory", plain=False, **part))

    return to


def _percent(pod: Pod, c: int, a: int) -> Callable[[int], SuggestedChange]:
    ask = pod.containers[c].asks[a]
    part = {"compute_milli": _compute_of_part(pod, ask)}
    return lambda percent: SuggestedChange(
        f"{_of(pod, c)}ask for {percent} % of the GPU's memory instead of {ask.memory_percent} %",
        _asking(c, a, "percentage", memory_percent=percent, **part),
    )


def _compute(pod: Pod, c: int, a: int) -> Callable[[int], SuggestedChange]:
    asked = pod.containers[c].asks[a].compute_milli
    return lambda percent: SuggestedChange(
        f"{_of(pod, c)}ask for {percent} % of the GPU's compute instead of {asked / 10:g} %",
        _asking(c, a, "compute", compute_milli=percent * 10, plain=False),
    )


def _compute_of_part(pod: Pod, ask: DeviceAsk) -> int:
    """Compute for a part of a card. HAMi's webhook makes whole cards exclusive if compute is not stated.

    Less memory undoes that.
    """
    named = ask.resources
    is_stated = named is None or f"requests.{named.compute}" in pod.quota_use
    if not ask.plain and (is_stated or not ask.whole):
        return ask.compute_milli
    return named.shared_compute_milli if named is not None else 0


def _memory_unit(ask: DeviceAsk) -> int:
    return ask.resources.memory_unit_mib if ask.resources is not None else 1


def _resource(name: str, asked: int) -> Callable[[int], SuggestedChange]:
    def to(units: int) -> SuggestedChange:
        amount = units * unit_of(name)
        what = f"{amount_of(name, amount)} {resource_title(name)} instead of {amount_of(name, asked)}"
        return SuggestedChange(f"ask for {what}", lambda pod: _requesting(pod, name, amount))

    return to


def _limit(name: str, before: int) -> Callable[[int], SuggestedChange]:
    """A change of a limit, which a quota may count. The request is lowered to the limit."""

    def to(units: int) -> SuggestedChange:
        limit = units * unit_of(name)

        def apply(pod: Pod) -> Pod:
            changed = _requesting(pod, name, min(limit, pod.resources.get(name, 0)))
            return replace(changed, quota_use={**changed.quota_use, f"limits.{name}": limit})

        what = f"{amount_of(name, limit)} {resource_title(name)} instead of {amount_of(name, before)}"
        return SuggestedChange(f"limit the pod to {what}", apply)

    return to


def _requesting(pod: Pod, name: str, amount: int) -> Pod:
    """The pod with this request for a resource, also in what quotas count."""
    resources = {**pod.resources, name: amount} if name in pod.resources else pod.resources
    counted = {f"requests.{name}": amount, **({name: amount} if name in pod.quota_use else {})}
    return replace(pod, resources=resources, quota_use={**pod.quota_use, **counted})


def _asking(c: int, a: int, part: str, **changed: object) -> Callable[[Pod], Pod]:
    """Change one ask; `part` is the field of CardResources by which Kubernetes counts the change."""

    def apply(pod: Pod) -> Pod:
        container = pod.containers[c]
        ask: DeviceAsk = replace(container.asks[a], **changed)  # type: ignore[arg-type]
        asks = (*container.asks[:a], ask, *container.asks[a + 1 :])
        containers = (*pod.containers[:c], replace(container, asks=asks), *pod.containers[c + 1 :])
        if ask.resources is None:
            return replace(pod, containers=containers)
        amount = at_once((one.kind, _stated(one, ask.resources, part)) for one in containers)
        return _requesting(replace(pod, containers=containers), getattr(ask.resources, part), amount)

    return apply


def _stated(container: Container, resources: CardResources, part: str) -> int:
    """What a container states about its cards, in Kubernetes' unit; a plain ask states only the number of cards."""
    asks = [ask for ask in container.asks if ask.resources == resources]
    if part == "count":
        return sum(ask.count for ask in asks)
    amounts = {"memory": "memory_mib", "percentage": "memory_percent", "compute": "compute_milli"}
    unit = {"memory": resources.memory_unit_mib, "compute": 10}.get(part, 1)
    return sum((getattr(ask, amounts[part]) or 0) // unit for ask in asks if not ask.plain)


def _node_rules(sentence: str, **changed: object) -> SuggestedChange:
    def apply(pod: Pod) -> Pod:
        rules: NodeRules = replace(pod.node_rules, **changed)  # type: ignore[arg-type]
        return replace(pod, node_rules=rules)

    return SuggestedChange(sentence, apply)


def _device_rule(of: DeviceRules, field: str, value: object) -> Callable[[Pod], Pod]:
    changed: DeviceRules = replace(of, **{field: value})  # type: ignore[arg-type]
    return _other_rules(changed)


def _relation(sentence: str, field: str, dropped: object) -> SuggestedChange:
    def apply(pod: Pod) -> Pod:
        rest = tuple(one for one in getattr(pod.relations, field) if one != dropped)
        relations: Relations = replace(pod.relations, **{field: rest})
        return replace(pod, relations=relations)

    return SuggestedChange(sentence, apply)


def _policy(field: str, value: object) -> Callable[[Pod], Pod]:
    return lambda pod: replace(pod, profile=replace(pod.profile, **{field: value}))  # type: ignore[arg-type]


def _of(pod: Pod, c: int) -> str:
    return f"container {pod.containers[c].name}: " if len(pod.containers) > 1 else ""
