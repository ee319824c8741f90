"""Requests that exceed everything in the cluster: they would not fit even if other pods left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.wording import amount_of, resource_title
from dovetail.model.device import Device
from dovetail.model.node import Node
from dovetail.model.pod import DeviceAsk, Pod


def beyond_all(scheduler: Scheduler, pod: Pod) -> tuple[str, ...]:
    """What no card or node could give even if it were empty, with the largest available."""
    ledger = scheduler.ledger
    nodes = [ledger.nodes[row] for _, row in sorted(ledger.row_of.items()) if ledger.is_active(row)]
    asks = dict.fromkeys(ask for container in pod.containers for ask in container.asks)
    return tuple(
        dict.fromkeys([*(said for ask in asks for said in _cards(pod, ask, nodes)), *_resources(scheduler, pod, nodes)])
    )


def _cards(pod: Pod, ask: DeviceAsk, nodes: Sequence[Node]) -> Iterator[str]:
    rules = pod.rules_for(ask.vendor)
    taken: list[list[Device]] = [
        [card for card in node.devices if card.vendor == ask.vendor and rules.accepts(card.model)] for node in nodes
    ]
    cards = [card for here in taken for card in here]
    if not cards:
        return
    wanted = f" of type {','.join(rules.use_types)}" if rules.use_types else ""
    biggest = max(cards, key=lambda card: card.memory_mib)
    if ask.memory_percent is None and ask.memory_mib > biggest.memory_mib > 0:
        there = f"the biggest GPU{wanted} has {biggest.memory_mib:,} MiB ({biggest.model})"
        yield f"{ask.memory_mib:,} MiB of one GPU's memory are asked for; {there}"
    most = max(len(here) for here in taken)
    if ask.count > most:
        yield f"{ask.count} GPUs{wanted} are asked for by one container; no node has more than {most}"


def _resources(scheduler: Scheduler, pod: Pod, nodes: Sequence[Node]) -> Iterator[str]:
    columns = scheduler.intern.columns
    for name, amount in sorted(pod.resources.items()):
        column = columns.known(name)
        most = max((node.allocatable.get(name, 0) for node in nodes), default=0)
        enforced = column is None or scheduler.ledger.rows.enforced[column]
        if enforced and 0 < most < amount:
            title = resource_title(name)
            yield f"{amount_of(name, amount)} {title} are asked for; no node has more than {amount_of(name, most)}"
