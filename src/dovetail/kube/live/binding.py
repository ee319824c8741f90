"""The one write of a placement: a Binding with the node, the cards and, as preconditions, the identity of the pod.

The API server merges the annotations (and, from 1.35, the label) into the pod in the same transaction as nodeName.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.kube.conversion.assigned import encode
from dovetail.kube.conversion.plugin_amounts import Handout
from dovetail.kube.conversion.plugins import PLUGINS
from dovetail.kube.conversion.reading import NODE_LABEL
from dovetail.kube.conversion.seals import NO_SEALS, SEAL, Seals
from dovetail.kube.conversion.templates import ASSIGNED_TIME, BIND_TIME, BOUND_BY, PHASE
from dovetail.kube.conversion.vendors import Vendors
from dovetail.model.decision import Decision
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import ContainerKind, Pod

ALLOCATING, SUCCESS = "allocating", "success"
LONGEST_LABEL = 63  # characters of a label's value
LABELS_SINCE = (1, 35)


class UnknownCard(ValueError):
    """A decision names a card that its node does not have: the pod would run without a record of its cards."""


def binding(
    pod: Pod,
    decision: Decision,
    node: Node,
    version: str,
    vendors: Vendors,
    now: float,
    locked: bool,
    claimed: Iterable[str] = (),
    bound_by: str = "",
    seals: Seals = NO_SEALS,
) -> dict[str, Any]:
    """The body of the Binding.

    `locked`: HAMi's plugin on the node will report when the cards were handed over. `claimed`: annotations in which the
    pod claimed cards before; the Binding overwrites them with facts, or with blanks.
    """
    meta: dict[str, Any] = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "resourceVersion": version,
    }
    said = dict.fromkeys(claimed, "")
    if decision.shares and bound_by:
        said[BOUND_BY] = bound_by
    # On a stock node, kubelet picks the card, and we do not know it.
    if decision.shares and node.enforcer is not Enforcer.STOCK:
        said |= cards(pod, decision, node, vendors, now, locked)
        if NODE_LABEL in said and labelled(node.name):
            meta["labels"] = {NODE_LABEL: node.name}
    if decision.shares and seals:
        said[SEAL] = seals.seal(pod.uid, node.name, _allocated(said, vendors))
    if said:
        meta["annotations"] = said
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": meta,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node.name},
    }


def _allocated(said: Mapping[str, str], vendors: Vendors) -> dict[str, str]:
    """The strings among `said` that stay unchanged: the node's plugin consumes `…-to-allocate`."""
    names = vendors.allocated
    return {name: text for name, text in said.items() if text and name in names}


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def labelled(node: str) -> bool:
    """Whether the node's name fits into a label, by which HAMi's monitor finds pods."""
    return len(node) <= LONGEST_LABEL


def cards(pod: Pod, decision: Decision, node: Node, vendors: Vendors, now: float, locked: bool) -> dict[str, str]:
    """HAMi's annotations in HAMi's encoding: one pair of device strings for each vendor.

    For the plugins of other systems, the annotations that they read, and our record.
    """
    maker = {device.uuid: device.vendor for device in node.devices}
    if strange := [share.uuid for share in decision.shares if share.uuid not in maker]:
        raise UnknownCard(f"node {node.name} does not register card {strange[0]}")
    given = [vendors.by_word[word] for word in {maker[share.uuid]: None for share in decision.shares}]
    result = {}
    if not all(vendor.plugin for vendor in given):
        seconds, phase = str(int(now)), ALLOCATING if locked else SUCCESS
        result = {NODE_LABEL: node.name, ASSIGNED_TIME: seconds, PHASE: phase, BIND_TIME: seconds}
    for vendor in given:
        shares = tuple(share for share in decision.shares if maker[share.uuid] == vendor.word)
        text = encode(shares, len(pod.containers), vendor.word)
        result.update((name, text) for name in (vendor.to_allocate, vendor.allocated) if name and vendor.allocated)
        if vendor.plugin:
            before = sum(1 for container in pod.containers if container.kind is not ContainerKind.APP)
            handout = Handout(shares, node, vendor, before, int(now * 1_000_000_000))
            result.update(PLUGINS[vendor.plugin].notes_for(handout))
    return result
