"""Rules that may concern any pod, whatever the pod itself asks for.

While none is in force, a pod without rules of its own needs one kernel call and no other check.
"""

from __future__ import annotations

from enum import Enum, auto


class Rule(Enum):
    QUOTA = auto()  # a namespace has a quota
    QUEUE = auto()  # there is a queue
    NOMINATION = auto()  # a node is kept for a pod
    POD_TERM = auto()  # a pod on a node has affinity or anti-affinity, required or preferred
    CONFINEMENT = auto()  # pods are being placed on some rows only
    NODE_TAINT = auto()  # a node has a PreferNoSchedule taint


ABOUT_PODS_AND_NODES = frozenset({Rule.POD_TERM, Rule.NODE_TAINT})


class InForce(set[Rule]):
    """Each rule is put in and taken out by the class that keeps its facts."""

    def put(self, rule: Rule, holds: bool) -> None:
        (self.add if holds else self.discard)(rule)
