"""Many pods at once and room for some: small clusters of their own, side by side, and who should get in by which order.

The order is told apart from others that one might take it for: each case says whether they would let others in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import Any

from tests.live.oracle_cases import RANKS
from tools.controlplane.client import Object
from tools.controlplane.objects import node, pod

WAVES = 4  # of pods, each a second after the one before: timestamps have no fractions
LABEL = "example.com/case"
SIZES = (1000, 1500, 2000, 3000)  # each fits alone, so that whoever is first is placed


@dataclass(frozen=True)
class Contender:
    name: str
    wave: int
    rank: str  # a PriorityClass; "" = none
    milli: int

    @property
    def priority(self) -> int:
        return RANKS.get(self.rank, 0)


@dataclass(frozen=True)
class Contest:
    """Nodes of one size. Either there is one, or pods are all alike: which node a pod gets does not matter."""

    number: int
    nodes: int
    milli: int
    pods: tuple[Contender, ...]

    def node_objects(self, side: str) -> list[Object]:
        names = (f"{side}-{self.number}-{n}" for n in range(self.nodes))
        has = {"cpu": f"{self.milli}m"}
        return [node(name, labels={LABEL: f"{side}-{self.number}"}, resources=has) for name in names]

    def pod_object(self, one: Contender, side: str, scheduler: str) -> Object:
        made = pod(one.name, {"cpu": f"{one.milli}m"}, scheduler, namespace=side)
        made["spec"]["nodeSelector"] = {LABEL: f"{side}-{self.number}"}
        if one.rank:
            made["spec"]["priorityClassName"] = one.rank
        return made

    def admitted(self, order: Callable[[Contender], Any]) -> frozenset[str]:
        """Who gets in, one after the other in this order; who does not fit holds nobody up."""
        room, placed = [self.milli] * self.nodes, set()
        for one in sorted(self.pods, key=order):
            for n, left in enumerate(room):
                if one.milli <= left:
                    room[n] -= one.milli
                    placed.add(one.name)
                    break
        return frozenset(placed)

    @property
    def priority_matters(self) -> bool:
        return self.admitted(in_order) != self.admitted(lambda one: (one.wave, one.name))

    @property
    def age_matters(self) -> bool:
        return self.admitted(in_order) != self.admitted(lambda one: (-one.priority, one.name))


def in_order(one: Contender) -> tuple[int, int, str]:
    return (-one.priority, one.wave, one.name)


def contest(number: int) -> Contest:
    chance = Random(number)
    alike = chance.random() < 0.5
    nodes, milli = (chance.randint(1, 3), 2000) if alike else (1, 4000)
    ranks = chance.sample(("", *RANKS), chance.choice((1, 2, 4)))
    pods = []
    for n in range(nodes * 2 + chance.randint(1, 4) if alike else chance.randint(4, 8)):
        name = f"{''.join(chance.choices(ascii_lowercase, k=3))}-{number}-{n}"
        size = 1000 if alike else chance.choice(SIZES)
        pods.append(Contender(name, chance.randrange(WAVES), chance.choice(ranks), size))
    return Contest(number, nodes, milli, tuple(pods))
