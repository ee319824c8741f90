"""Single changes to a pod that might place it: what `suggest` tries, in the order in which they cost the user least."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dovetail.model.node import CPU, MEMORY, STORAGE, Node, Taint
from dovetail.model.pod import Container, DeviceAsk, DeviceRules, Pod
from dovetail.model.rules import NodeRules, Toleration
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES


@dataclass(frozen=True, slots=True)
class Change:
    sentence: str
    apply: Callable[[Pod], Pod]


Works = Callable[[Change], object]  # true where the pod is placed with the change


def less(pod: Pod, works: Works) -> Iterator[Change]:
    """The largest amount below the asked one that fits, of one thing at a time: found by halving, so tried often."""
    for c, container in enumerate(pod.containers):
        for a, ask in enumerate(container.asks):
            yield from _largest(ask.memory_mib if ask.memory_percent is None else 0, _memory(pod, c, a), works)
            yield from _largest(ask.memory_percent or 0, _percent(pod, c, a), works)
            yield from _largest(ask.compute_milli // 10, _compute(pod, c, a), works)
    for name, amount in sorted(pod.resources.items()):
        unit = 2**20 if name in (MEMORY, STORAGE) else 1
        if not any(container.asks for container in pod.containers) or name in (CPU, MEMORY, STORAGE):
            yield from _largest(amount // unit, _resource(name, unit), works)


def fewer_cards(pod: Pod) -> Iterator[Change]:
    for c, container in enumerate(pod.containers):
        for a, ask in enumerate(container.asks):
            for count in range(ask.count - 1, 0, -1):
                change = _asking(c, a, count=count)
                yield Change(f"{_of(pod, c)}ask for {count} GPU{'s' * (count > 1)} instead of {ask.count}", change)


def constraints_dropped(pod: Pod) -> Iterator[Change]:
    rules = pod.node_rules
    if rules.node_name:
        yield _node_rules(f"drop nodeName {rules.node_name}", node_name="")
    for n, (label, value) in enumerate(rules.selector):
        rest = rules.selector[:n] + rules.selector[n + 1 :]
        yield _node_rules(f"drop nodeSelector {label}={value}", selector=rest)
    if rules.affinity is not None:
        yield _node_rules("drop the required node affinity", affinity=None)
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
                yield Change(f"drop {name}{shown}", _device_rule(devices, field, nothing))


def taints_tolerated(pod: Pod, nodes: Iterable[Node]) -> Iterator[Change]:
    """One taint at a time; a cordoned node counts as one."""
    taints: dict[Taint, int] = {}
    for node in nodes:
        taint = pod.node_rules.untolerated(node)
        if node.unschedulable:
            taint = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
        if taint is not None:
            taints[taint] = taints.get(taint, 0) + 1
    for taint in sorted(taints, key=lambda t: (-taints[t], str(t))):
        operator = "Equal" if taint.value else "Exists"
        toleration = Toleration(taint.key, operator, taint.value, taint.effect)
        yield _node_rules(f"tolerate the taint {taint}", tolerations=(*pod.node_rules.tolerations, toleration))


def other_policies(pod: Pod, alone: bool) -> Iterator[Change]:
    """Which cards a policy takes decides what is left for the next; which node, only where others follow the pod."""
    asks = [ask for container in pod.containers for ask in container.asks]
    picky = any(DEVICE_POLICIES[name].idle_only for name in pod.profile.device)
    any_card_will_do = alone and not picky and len(asks) <= 1 and all(ask.count == 1 for ask in asks)
    joint = NODE_POLICIES[pod.profile.node].offer is not None  # no GPU policy is asked
    for name in DEVICE_POLICIES:
        if pod.profile.device != (name,) and not any_card_will_do and not joint:
            yield Change(
                f"use the GPU policy {name} instead of {','.join(pod.profile.device)}", _policy("device", (name,))
            )
    for name in NODE_POLICIES:
        if (not alone or (joint and not any_card_will_do)) and pod.profile.node != name:
            yield Change(f"use the node policy {name} instead of {pod.profile.node}", _policy("node", name))


def _largest(asked: int, change_to: Callable[[int], Change], works: Works) -> Iterator[Change]:
    """Nothing, or the change to the largest amount below `asked` that works."""
    if asked <= 1 or not works(change_to(1)):
        return
    low, high = 1, asked
    while high - low > 1:
        middle = (low + high) // 2
        if works(change_to(middle)):
            low = middle
        else:
            high = middle
    yield change_to(low)


def _memory(pod: Pod, c: int, a: int) -> Callable[[int], Change]:
    asked = pod.containers[c].asks[a].memory_mib
    return lambda mib: Change(
        f"{_of(pod, c)}ask for {mib:,} MiB of GPU memory instead of {asked:,}", _asking(c, a, memory_mib=mib)
    )


def _percent(pod: Pod, c: int, a: int) -> Callable[[int], Change]:
    asked = pod.containers[c].asks[a].memory_percent
    return lambda percent: Change(
        f"{_of(pod, c)}ask for {percent} % of the GPU's memory instead of {asked} %",
        _asking(c, a, memory_percent=percent),
    )


def _compute(pod: Pod, c: int, a: int) -> Callable[[int], Change]:
    asked = pod.containers[c].asks[a].compute_milli
    return lambda percent: Change(
        f"{_of(pod, c)}ask for {percent} % of the GPU's compute instead of {asked / 10:g} %",
        _asking(c, a, compute_milli=percent * 10),
    )


def _resource(name: str, unit: int) -> Callable[[int], Change]:
    shown = {CPU: "m CPU", MEMORY: " MiB memory", STORAGE: " MiB ephemeral storage"}.get(name, f" {name}")

    def to(amount: int) -> Change:
        def apply(pod: Pod) -> Pod:
            return replace(pod, resources={**pod.resources, name: amount * unit})

        return Change(f"ask for {amount:,}{shown} on the node", apply)

    return to


def _asking(c: int, a: int, **changed: object) -> Callable[[Pod], Pod]:
    def apply(pod: Pod) -> Pod:
        container = pod.containers[c]
        ask: DeviceAsk = replace(container.asks[a], **changed)  # type: ignore[arg-type]
        asks = (*container.asks[:a], ask, *container.asks[a + 1 :])
        changed_container: Container = replace(container, asks=asks)
        return replace(pod, containers=(*pod.containers[:c], changed_container, *pod.containers[c + 1 :]))

    return apply


def _node_rules(sentence: str, **changed: object) -> Change:
    def apply(pod: Pod) -> Pod:
        rules: NodeRules = replace(pod.node_rules, **changed)  # type: ignore[arg-type]
        return replace(pod, node_rules=rules)

    return Change(sentence, apply)


def _device_rule(of: DeviceRules, field: str, value: object) -> Callable[[Pod], Pod]:
    def apply(pod: Pod) -> Pod:
        changed: DeviceRules = replace(of, **{field: value})  # type: ignore[arg-type]
        return replace(pod, device_rules=tuple(changed if r.vendor == of.vendor else r for r in pod.device_rules))

    return apply


def _policy(field: str, value: object) -> Callable[[Pod], Pod]:
    return lambda pod: replace(pod, profile=replace(pod.profile, **{field: value}))  # type: ignore[arg-type]


def _of(pod: Pod, c: int) -> str:
    return f"container {pod.containers[c].name}: " if len(pod.containers) > 1 else ""
