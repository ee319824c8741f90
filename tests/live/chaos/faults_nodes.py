"""Faults of nodes and cards: registers, labels, amounts, taints, locks, and nodes that go and come back.

Each is a function of the world; when it returns, the nodes are as they were. Pods may come and go at every `pause`.
"""

from __future__ import annotations

import json
import time

from tests.live.chaos.machines import LABELS, Machine
from tests.live.chaos.world import SETTLE, WHOLE, World, put_back
from tools.controlplane.objects import GPU, REGISTER, node, pod

CORDON = "hami.io/device-cordon"


def register_removed(w: World) -> None:
    one = w.machine("hami", "lock")
    w.fill(3)
    w.note("Node", one.name, REGISTER, None)
    w.pause(0.3, 3.0)
    w.register(one.name, one.register())
    w.pause(0.5, 1.5)


def register_emptied(w: World) -> None:
    one, text = w.machine("hami", "lock"), w.dice.choice(("", "[]", " "))
    w.details.append(repr(text))
    w.fill(3)
    w.note("Node", one.name, REGISTER, text)
    w.pause(0.3, 3.0)
    w.register(one.name, one.register())
    w.pause(0.5, 1.5)


def register_garbled(w: World) -> None:
    one = w.machine("hami", "lock")
    backwards = json.dumps(one.register()[::-1])
    text = w.dice.choice(("[{broken", "{}", "[1]", '[{"id": 7}]', backwards))
    w.details.append(repr(text[:12]))
    w.fill(3)
    w.note("Node", one.name, REGISTER, text)
    w.pause(0.3, 3.0)
    w.register(one.name, one.register())
    w.pause(0.5, 1.5)


def node_recreated(w: World) -> None:
    one = w.machine("hami", "lock")
    w.fill(3)
    w.api.delete("Node", one.name)
    w.pause(0.1, 3.0)
    w.api.create(one.node())
    w.pause(0.5, 1.5)


def node_recreated_register_late(w: World) -> None:
    one = w.machine("hami", "lock")
    w.fill(3)
    w.api.delete("Node", one.name)
    w.pause(0.1, 1.0)
    w.api.create(one.node(register=False))
    w.pause(0.3, 2.0)
    w.register(one.name, one.register())
    w.pause(0.5, 1.5)


def register_lost_then_recreated(w: World) -> None:
    one = w.machine("hami", "lock")
    w.fill(3)
    w.note("Node", one.name, REGISTER, None)
    w.pause(0.3, 1.5)
    w.api.delete("Node", one.name)
    w.pause(0.3, 1.5)
    w.api.create(one.node())
    w.pause(0.5, 1.5)


def _newcomer(w: World, kind: str) -> Machine:
    machine = Machine(w.name("late"), kind)
    w.witness.machines[machine.name] = machine
    w.details.append(machine.name)
    w.fill(8)
    w.pause(0.2, 0.5)
    return machine


def _dismiss(w: World, machine: Machine) -> None:
    """The node leaves and takes its pods along."""
    for name in w.running(lambda item: item["spec"]["nodeName"] == machine.name):
        w.remove(name, now=True)
    w.api.delete("Node", machine.name)
    for name in w.running(lambda item: item["spec"]["nodeName"] == machine.name):
        w.remove(name, now=True)
    del w.witness.machines[machine.name]


def allocatable_before_register(w: World) -> None:
    """HAMi's plugin on a new node: kubelet publishes 40 slots, the register comes a moment later."""
    machine = _newcomer(w, "hami")
    w.api.create(node(machine.name, resources={GPU: "40"}))
    w.pause(0.2, 1.5)
    w.register(machine.name, machine.register())
    w.pause(1.0, 2.0)
    _dismiss(w, machine)


def pods_before_their_node(w: World) -> None:
    """Pods that name a node which is not there yet, and others that wait for its cards."""
    machine = _newcomer(w, "hami")
    names = [w.name("early") + f"-{number}" for number in range(2)]
    for name in names:
        w.create(pod(name, WHOLE, scheduler="other", nodeName=machine.name))
    w.pause(0.3, 1.0)
    w.api.create(machine.node())
    w.pause(1.0, 2.0)
    _dismiss(w, machine)


def slicing_labels_late(w: World) -> None:
    machine = _newcomer(w, "stock")
    shared = {**LABELS, "nvidia.com/gpu.product": "Tesla-T4-SHARED"}
    w.api.create(node(machine.name, resources={GPU: "40"}, labels=shared))
    w.pause(0.2, 1.5)
    labels = {"nvidia.com/gpu.count": "4", "nvidia.com/gpu.replicas": "10"}
    w.api.patch("Node", machine.name, {"metadata": {"labels": labels}})
    w.pause(0.5, 1.5)
    _dismiss(w, machine)


def stock_shrinks_and_grows(w: World) -> None:
    one, fewer = w.machine("stock"), w.dice.choice((0, 2, 3))
    w.details.append(f"4→{fewer}→4")
    w.fill(4)
    w.pause(0.3, 0.8)
    w.allocatable(one.name, fewer)
    w.pause(0.3, 2.0)
    w.allocatable(one.name, one.cards)
    w.pause(0.5, 1.5)


def stock_recreated(w: World) -> None:
    one = w.machine("stock")
    w.fill(4)
    w.api.delete("Node", one.name)
    w.pause(0.1, 2.0)
    w.api.create(one.node())
    w.pause(0.5, 1.5)


def stock_labels_vanish(w: World) -> None:
    """Feature discovery restarts: its labels go and come back."""
    one = w.machine("stock")
    labels = one.node()["metadata"]["labels"]
    found = {key: value for key, value in labels.items() if key.startswith("nvidia.com/")}
    w.fill(4)
    w.pause(0.3, 0.8)
    w.api.patch("Node", one.name, {"metadata": {"labels": dict.fromkeys(found)}})
    w.pause(0.3, 2.0)
    w.api.patch("Node", one.name, {"metadata": {"labels": found}})
    w.pause(0.5, 1.5)


def stock_gets_a_register(w: World) -> None:
    """HAMi is installed on a node in use, and removed again."""
    one = w.machine("stock")
    w.fill(4)
    w.pause(0.3, 0.8)
    w.register(one.name, one.register())
    w.pause(0.5, 2.0)
    w.note("Node", one.name, REGISTER, None)
    w.pause(0.5, 1.5)
    for name in w.running(lambda item: item["spec"]["nodeName"] == one.name):
        w.remove(name)


def card_unregistered(w: World) -> None:
    index = w.dice.randrange(4)
    one = w.machine("hami", "lock")
    w.details.append(str(index))
    w.fill(3)
    _take_out(w, one, index)


def card_unregistered_beside_a_foreign_pod(w: World) -> None:
    """A pod of another scheduler without a record: its card is not known."""
    one, index, foreign = w.machine("hami"), w.dice.randrange(4), w.name("foreign")
    w.details.append(str(index))
    with w.reserved(one.name):
        w.create(pod(foreign, WHOLE, scheduler="other", nodeName=one.name))
        time.sleep(SETTLE)
    w.fill(4)
    w.pause(0.5, 0.8)
    _take_out(w, one, index)
    w.remove(foreign, now=True)


def _take_out(w: World, one: Machine, index: int) -> None:
    cards = one.register()
    w.register(one.name, cards[:index] + cards[index + 1 :])
    w.pause(0.3, 2.0)
    w.register(one.name, cards)
    w.pause(0.5, 1.5)


def card_sick(w: World) -> None:
    one, index = w.machine("hami", "lock"), w.dice.randrange(4)
    w.details.append(str(index))
    cards = one.register()
    cards[index]["health"] = False
    w.fill(2)
    w.register(one.name, cards)
    w.pause(0.3, 6.0)
    w.register(one.name, one.register())
    w.pause(0.3, 1.0)


def card_cordoned(w: World) -> None:
    one, index = w.machine("hami", "lock"), w.dice.randrange(4)
    w.details.append(str(index))
    w.fill(2)
    w.note("Node", one.name, CORDON, one.uuids[index])
    w.pause(0.3, 6.0)
    w.note("Node", one.name, CORDON, None)
    w.pause(0.3, 1.0)


def card_shrunk(w: World) -> None:
    one, index = w.machine("hami", "lock"), w.dice.randrange(4)
    cards = one.register()
    cards[index]["devmem"] = w.dice.choice((1, 4000, 8000))
    w.details.append(f"{index} to {cards[index]['devmem']} MiB")
    w.register(one.name, cards)
    w.pause(0.3, 6.0)
    w.register(one.name, one.register())
    w.pause(0.3, 1.0)


def allocatable_zero(w: World) -> None:
    """A plugin that restarts: nothing to be had, though the register stays."""
    one = w.machine("hami", "lock")
    w.allocatable(one.name, 0)
    w.fill(2)
    w.pause(1.0, 6.0)
    w.allocatable(one.name, 40)
    w.pause(0.3, 1.0)


def uuids_under_a_new_name(w: World) -> None:
    """A node is renamed while its pods are still there."""
    one = w.machine("hami")
    other = w.name("renamed")
    w.fill(3)
    w.api.delete("Node", one.name)
    w.api.create(one.node(other))
    w.pause(0.5, 2.5)
    w.api.delete("Node", other)
    for name in w.running(lambda item: item["spec"]["nodeName"] == other):
        w.remove(name, now=True)
    w.api.create(one.node())
    w.pause(0.5, 1.0)


def enforcer_changed(w: World) -> None:
    """The label that says which plugin hands out the cards is set to another, and removed."""
    one = w.machine("hami")
    w.label("Node", one.name, "dovetail.dev/enforcer", w.dice.choice(("stock", "hamii")))
    w.fill(3)
    w.pause(0.5, 2.0)
    w.label("Node", one.name, "dovetail.dev/enforcer", None)
    w.pause(0.5, 1.5)


def tainted(w: World) -> None:
    one = w.machine("hami", "lock", "stock")
    taint = {"key": "chaos", "value": "y", "effect": w.dice.choice(("NoSchedule", "NoExecute"))}
    with put_back(w, one.name, {"spec": {"taints": [taint]}}, {"spec": {"taints": []}}):
        w.fill(2)
        w.pause(0.3, 6.0)


def cordoned(w: World) -> None:
    one = w.machine("hami", "lock", "stock")
    with put_back(w, one.name, {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": False}}):
        w.fill(2)
        w.pause(0.3, 6.0)


def relabelled(w: World) -> None:
    """Pods that select a label which leaves its node, and comes back."""
    one = w.machine("hami", "lock")
    w.fill(2, nodeSelector={"kind": one.kind})
    w.label("Node", one.name, "kind", "other")
    w.pause(0.3, 6.0)
    w.label("Node", one.name, "kind", one.kind)
    w.pause(0.3, 1.0)


NODE_FAULTS = (
    *(register_removed, register_emptied, register_garbled, register_lost_then_recreated),
    *(node_recreated, node_recreated_register_late, allocatable_before_register, slicing_labels_late),
    *(pods_before_their_node, stock_labels_vanish, enforcer_changed),
    *(stock_shrinks_and_grows, stock_recreated, stock_gets_a_register),
    *(
        card_unregistered,
        card_unregistered_beside_a_foreign_pod,
        card_sick,
        card_cordoned,
        card_shrunk,
        allocatable_zero,
    ),
    *(uuids_under_a_new_name, tainted, cordoned, relabelled),
)
