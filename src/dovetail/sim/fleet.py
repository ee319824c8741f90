"""The nodes of a cluster as machines of a trace: which GPU models there are, and which of them a pod may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dovetail.model.device import Device
from dovetail.model.node import CPU, MEMORY, Node, StaticNode
from dovetail.model.pod import DeviceRules
from dovetail.model.reason import Reason
from dovetail.model.rules import NodeRules
from dovetail.sim.cast import MIB
from dovetail.sim.racks import BLOCK_LABEL, RACK_LABEL
from dovetail.sim.trace import Machine

MIXED = "node with GPUs of several kinds: the machine has those of which it has most"


class AcceptedModels(NamedTuple):
    """The GPU models of the nodes that a pod may use."""

    models: tuple[str, ...]  # () = any
    exact: bool  # whether the pod may use every node with one of these models, and no other


class _Place(NamedTuple):
    """A node of the cluster, without what is only so for now."""

    node: StaticNode
    vendor: str  # of its GPUs; "" = it has none
    model: str


class Fleet:
    """The machines of a cluster."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.machines: list[Machine] = []
        self.remarks: dict[str, list[str]] = {}
        self._places: list[_Place] = []
        self._memory: dict[str, int] = {}  # machine -> memory of each GPU
        self._known: dict[object, AcceptedModels] = {}
        for node in nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        cards = [device for device in node.devices if not device.quarantined]
        kinds = Counter((card.model, card.memory_mib) for card in cards)
        (model, memory), gpus = min(kinds.items(), key=lambda item: (-item[1], item[0]), default=(("", 0), 0))
        if len(kinds) > 1:
            self.remarks.setdefault(MIXED, []).append(node.name)
        amounts, labels = node.allocatable, node.labels
        self.machines.append(
            Machine(
                name=node.name,
                cpu_milli=amounts.get(CPU, 0),
                memory_mib=amounts.get(MEMORY, 0) // MIB,
                gpus=gpus,
                model=model,
                gpu_memory_mib=memory,
                block=labels.get(BLOCK_LABEL, "") if RACK_LABEL in labels else "",
                rack=labels.get(RACK_LABEL, ""),
            )
        )
        self._memory[node.name] = memory
        vendor = _vendor(cards, model)
        self._places.append(_Place(replace(node.static, unschedulable=False), vendor, model))

    def memory_of(self, node: str, models: Sequence[str]) -> int:
        """GPU memory of the node, if it is known; else the least of the GPUs of these models (() = of all)."""
        if self._memory.get(node):
            return self._memory[node]
        places = (one for one in self._places if one.vendor and (not models or one.model in models))
        return min((self._memory[one.node.name] for one in places), default=0)

    def models_for(self, node_rules: NodeRules, rules: DeviceRules) -> AcceptedModels:
        """The models on nodes that these rules accept. `rules` names the vendor."""
        key = (node_rules, rules)
        if key not in self._known:
            self._known[key] = self._models_for(node_rules, rules)
        return self._known[key]

    def _models_for(self, node_rules: NodeRules, rules: DeviceRules) -> AcceptedModels:
        places = [one for one in self._places if one.vendor]
        of_vendor = [one for one in places if one.vendor == rules.vendor and rules.accepts(one.model)]
        taken = [one for one in of_vendor if node_rules.refusal(one.node) is Reason.OK]
        models = {one.model for one in taken}
        if not taken:
            return AcceptedModels(tuple(sorted({one.model for one in of_vendor})) or rules.use_types, False)
        exact = all(one in taken for one in places if one.model in models)
        everything = {one.model for one in places} == models
        return AcceptedModels(() if everything else tuple(sorted(models)), exact)

    def takes_all(self, node_rules: NodeRules) -> bool:
        """Whether these rules accept every node."""
        key = ("", node_rules)
        if key not in self._known:
            exact = all(node_rules.refusal(one.node) is Reason.OK for one in self._places)
            self._known[key] = AcceptedModels((), exact)
        return self._known[key].exact


def _vendor(cards: Sequence[Device], model: str) -> str:
    return next((card.vendor for card in cards if card.model == model), "")
