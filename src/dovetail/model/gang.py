"""How the pods of a gang belong together: roles with their own minimums, and domains of the topology.

A domain is the set of nodes with one value of a node label, for instance one rack. A topology is a list of such labels,
from the widest to the narrowest: two domains with the same value in different wider domains are different.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DomainSpread:
    """Limits on how pods are distributed over the domains of one level."""

    level: str  # node label
    least_domains: int = 0  # pods must use at least so many domains; 0 = no limit
    most_each: int = 0  # pods in one domain at most; 0 = no limit


@dataclass(frozen=True, slots=True)
class TopologyRule:
    """Where the pods of a gang, or of one role, may be placed relative to each other."""

    required: str = ""  # node label: all pods in one domain of this level; "" = no such rule
    preferred: str = ""  # node label: in as few domains of this level as possible; "" = no such rule
    spreads: tuple[DomainSpread, ...] = ()


ANYWHERE = TopologyRule()


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one kind in a gang, for instance its workers. `Pod.role` names it."""

    name: str
    minimum: int  # members that must hold a node if any pod of the gang does
    topology: TopologyRule = ANYWHERE
    running: int = 0  # members that hold a node already; they count towards the minimum


@dataclass(frozen=True, slots=True)
class GangTerms:
    """What an object, or a pod itself, says of a gang. A pod states at most its own role."""

    minimum: int = 0  # members that start together; 0 = it does not say
    roles: tuple[Role, ...] = ()
    topology: TopologyRule = ANYWHERE
    # Seconds in which all members that are needed must have a node, once one has; None = it does not say.
    time_limit: float | None = None


NO_TERMS = GangTerms()
