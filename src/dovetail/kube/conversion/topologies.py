"""Topologies: node labels from the widest level to the narrowest. Kueue's and KAI's objects, and the configuration's.

HyperNodes form one topology together, whose labels are ours (hyper_nodes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dovetail.kube.conversion.topology_rules import is_node_label
from dovetail.kube.objects.bounds import TOPOLOGY_LEVELS
from dovetail.kube.objects.domain_objects import HYPER_NODE_GROUP, Topology
from dovetail.kube.objects.problems import printable

CONFIGURED = "configured"  # the name of the configuration's topology
HYPER_NODE_TOPOLOGY = HYPER_NODE_GROUP  # the name of the topology of all HyperNodes


def topology_name(api_group: str, name: str) -> str:
    return f"{api_group}/{name}"


def levels_of(source: Topology, wrong: Callable[[str, str], None]) -> tuple[str, ...]:
    """The levels of a Topology; a wrong one is left out."""
    levels = source.spec.levels
    if len(levels) > TOPOLOGY_LEVELS.most:
        wrong("spec.levels", f"{TOPOLOGY_LEVELS.exceeded(len(levels))}; the rest is left out")
    found: dict[str, None] = {}
    for number, level in enumerate(levels[: TOPOLOGY_LEVELS.most]):
        if not is_node_label(level.node_label):
            said = printable(level.node_label, 60)
            wrong(f"spec.levels[{number}].nodeLabel", f"{said!r} is no node label; the level is left out")
        elif level.node_label in found:
            wrong(f"spec.levels[{number}].nodeLabel", "stands there twice; the second is left out")
        else:
            found[level.node_label] = None
    return tuple(found)


def present(levels: tuple[str, ...], labels: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """The levels of which some node has the label: a node without the label of a level is in none of its domains."""
    missing = dict.fromkeys(levels)
    for given in labels:
        if not missing:
            break
        for level in [level for level in missing if level in given]:
            del missing[level]
    return tuple(level for level in levels if level not in missing)
