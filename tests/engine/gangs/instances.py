"""Random small clusters and gangs, and a checker of placements that shares no code with the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from dovetail.engine.scheduler import Scheduler
from dovetail.model.decision import Decision
from dovetail.model.events import NodeChanged, PodObserved, TopologyChanged
from dovetail.model.gang import ANYWHERE, DomainSpread, Role, TopologyRule
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, RunningPod
from tests.builders import ask, node, pod

BLOCK, RACK, HOST = "topology/block", "topology/rack", "kubernetes.io/hostname"
LEVELS = (BLOCK, RACK, HOST)


@dataclass(frozen=True)
class Instance:
    nodes: tuple[Node, ...]
    used: Mapping[str, int]  # node -> GPUs that other pods hold
    group: Group

    def scheduler(self, mode: str = "interpreted") -> Scheduler:
        scheduler = Scheduler(mode=mode)
        for one in self.nodes:
            scheduler.handle(NodeChanged(0.0, one))
        scheduler.handle(TopologyChanged(0.0, "default", LEVELS))
        for name, gpus in self.used.items():
            for number in range(gpus):
                other = pod(f"other-{name}-{number}", ask(1, 8000, 100))
                scheduler.handle(PodObserved(0.0, RunningPod(other, name, None)))
        return scheduler


def draw(seed: int) -> Instance:
    dice = Random(seed)
    nodes, used = [], {}
    for block in range(dice.randint(1, 2)):
        for rack in range(dice.randint(1, 3)):
            for host in range(dice.randint(1, 3)):
                name, gpus = f"n{block}{rack}{host}", dice.choice((2, 4, 4, 8))
                labels = {BLOCK: f"b{block}", RACK: f"r{rack}", HOST: name}
                nodes.append(node(name, gpus=gpus, cpu=1000 * dice.choice((8, 16, 32)), labels=labels))
                used[name] = dice.choice((0, 0, 1, gpus // 2))
    return Instance(tuple(nodes), used, _gang(dice))


def _gang(dice: Random) -> Group:
    roles, pods = [], []
    for number in range(dice.randint(1, 3)):
        name, count = f"role{number}", dice.randint(1, 5)
        gpus, cpu = dice.choice((0, 1, 1, 2, 2, 3, 4)), 1000 * dice.choice((1, 2, 4, 7))
        asks = (ask(gpus, 8000, 100),) if gpus else ()
        pods += [pod(f"{name}-{n}", *asks, cpu=cpu, group="gang", role=name) for n in range(count)]
        minimum = count if dice.random() < 0.7 else dice.randint(1, count)
        roles.append(Role(name, minimum, _rule(dice) if dice.random() < 0.3 else ANYWHERE))
    least = sum(role.minimum for role in roles)
    total = dice.choice((least, least, dice.randint(least, len(pods))))
    return Group("gang", tuple(pods), total, roles=tuple(roles), topology=_rule(dice))


def _rule(dice: Random) -> TopologyRule:
    required = dice.choice(("", "", BLOCK, RACK))
    preferred = dice.choice(("", RACK, RACK)) if required != RACK else ""
    spreads = []
    if dice.random() < 0.3:
        spreads.append(DomainSpread(HOST, most_each=dice.randint(1, 3)))
    if dice.random() < 0.25 and required != RACK:
        spreads.append(DomainSpread(RACK, least_domains=2, most_each=dice.choice((0, 3, 4))))
    return TopologyRule(required, preferred, tuple(spreads))


def path(one: Node, level: str) -> tuple[str, ...]:
    """What identifies the node's domain: the values of this level and of all wider ones."""
    return tuple(one.labels[label] for label in LEVELS[: LEVELS.index(level) + 1])


def wrongs(instance: Instance, decisions: Sequence[Decision]) -> list[str]:
    """Every rule that the decisions break; [] = none. A gang that was not placed breaks none."""
    group, by_name = instance.group, {one.name: one for one in instance.nodes}
    placed = [(p, by_name[d.node]) for p, d in zip(group.pods, decisions, strict=True) if d.node is not None]
    if not placed:
        return []
    found = _overbooked(instance, placed)
    roles = Counter(one.role for one, _ in placed)
    found += [f"{role.name}: {roles[role.name]}" for role in group.roles if roles[role.name] < role.minimum]
    if len(placed) < group.minimum:
        found.append(f"{len(placed)} of {group.minimum}")
    found += _broken(group.topology, [where for _, where in placed])
    for role in group.roles:
        found += _broken(role.topology, [where for one, where in placed if one.role == role.name])
    return found


def _overbooked(instance: Instance, placed: Sequence[tuple[Pod, Node]]) -> list[str]:
    found = []
    for one in instance.nodes:
        here = [each for each, where in placed if where is one]
        if sum(map(gpus_of, here)) + instance.used[one.name] > len(one.devices):
            found.append(f"{one.name}: GPUs")
        if sum(each.resources.get("cpu", 0) for each in here) > one.allocatable["cpu"]:
            found.append(f"{one.name}: CPU")
    return found


def gpus_of(one: Pod) -> int:
    return sum(each.count for container in one.containers for each in container.asks)


def _broken(rule: TopologyRule, where: Sequence[Node]) -> list[str]:
    found = []
    if not where:
        return []
    if rule.required and len({path(one, rule.required) for one in where}) > 1:
        found.append(f"several domains of {rule.required}")
    for spread in rule.spreads:
        counts = Counter(path(one, spread.level) for one in where)
        if spread.most_each and max(counts.values()) > spread.most_each:
            found.append(f"{max(counts.values())} in one domain of {spread.level}")
        if len(counts) < spread.least_domains:
            found.append(f"{len(counts)} domains of {spread.level}")
    return found
