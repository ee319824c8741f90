"""The machines of a chaos run as they physically are: what a fault hides or garbles does not change them."""

from __future__ import annotations

from dataclasses import dataclass

from tools.controlplane.client import Object
from tools.controlplane.objects import GPU, HANDSHAKE, card, node

MEMORY = 15360  # MiB of each card
SIGNED = "Reported 2026-01-01 00:00:00"  # the handshake of HAMi's plugin
LABELS = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": str(MEMORY)}
CANARY = "canary"  # a node that no fault touches and that takes canaries only
CANARY_TAINT = {"key": CANARY, "value": "only", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Machine:
    """One machine with alike cards; `kind`: hami (register), lock (register and handshake), stock (labels only)."""

    name: str
    kind: str
    cards: int = 4

    @property
    def uuids(self) -> list[str]:
        return [f"GPU-{self.name}-{index}" for index in range(self.cards)]

    def register(self) -> list[Object]:
        return [card(uuid, index, MEMORY) for index, uuid in enumerate(self.uuids)]

    def node(self, name: str = "", register: bool = True) -> Object:
        """The Node object, under another name or without its register where a fault wants that."""
        name, kind = name or self.name, {"kind": self.kind}
        if self.kind == "stock":
            labels = {**LABELS, "nvidia.com/gpu.count": str(self.cards), **kind}
            return node(name, resources={GPU: str(self.cards)}, labels=labels)
        notes = {HANDSHAKE: SIGNED} if self.kind == "lock" else {}
        made = node(name, gpus=self.register(), annotations=notes, labels=kind)
        if not register:
            del made["metadata"]["annotations"]["hami.io/node-nvidia-register"]
        if name == CANARY:
            made["spec"]["taints"] = [CANARY_TAINT]
        return made


def machines() -> dict[str, Machine]:
    """Four HAMi nodes, two whose plugin keeps HAMi's lock, two stock nodes, and the canaries' own."""
    made = [Machine(f"h{n}", "hami") for n in range(4)] + [Machine(f"k{n}", "lock") for n in range(2)]
    made += [Machine(f"s{n}", "stock") for n in range(2)] + [Machine(CANARY, "hami", 1)]
    return {machine.name: machine for machine in made}
