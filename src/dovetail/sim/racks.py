"""Racks and blocks of a simulated cluster: node labels, and the topology rules of jobs."""

from __future__ import annotations

from dovetail.model.gang import ANYWHERE, DomainSpread, TopologyRule
from dovetail.model.node import Node
from dovetail.sim.trace import Job, Machine

BLOCK_LABEL, RACK_LABEL, HOST_LABEL = (
    "topology.kubernetes.io/block",
    "topology.kubernetes.io/rack",
    "kubernetes.io/hostname",
)
LEVEL_LABELS = {"block": BLOCK_LABEL, "rack": RACK_LABEL, "host": HOST_LABEL}  # level in a trace -> node label
TOPOLOGY = tuple(LEVEL_LABELS.values())  # from the widest level to the narrowest


def labels_of(machine: Machine) -> dict[str, str]:
    """The labels of the machine's place; a machine without a rack has none."""
    if not machine.rack:
        return {}
    return {BLOCK_LABEL: machine.block or "block", RACK_LABEL: machine.rack}


def rule_of(job: Job) -> TopologyRule:
    """Where the pods of the job must or should be, relative to each other."""
    if not (job.required or job.preferred or job.least_racks or job.most_per_node):
        return ANYWHERE
    spreads = []
    if job.least_racks:
        spreads.append(DomainSpread(RACK_LABEL, least_domains=job.least_racks))
    if job.most_per_node:
        spreads.append(DomainSpread(HOST_LABEL, most_each=job.most_per_node))
    return TopologyRule(LEVEL_LABELS.get(job.required, ""), LEVEL_LABELS.get(job.preferred, ""), tuple(spreads))


def rack_of(node: Node) -> tuple[str, str]:
    """Block and rack of the node; a node without a rack counts as a rack of its own."""
    return node.labels.get(BLOCK_LABEL, ""), node.labels.get(RACK_LABEL, node.name)
