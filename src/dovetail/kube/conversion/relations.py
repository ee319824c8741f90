"""Rules and preferences about other pods and about nodes: affinity, spread constraints, host ports, claims, images.

If the API server would reject a rule, it is reported and the pod is not placed. Pods without any of these share one
value, and so do pods with equal rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from dovetail.kube.conversion.rules import RuleError, affinity_term, requirements
from dovetail.kube.objects import bounds
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.relations import (
    NO_PREFERENCES,
    NO_RELATIONS,
    HostPort,
    PodTerm,
    Preferences,
    Relations,
    Selector,
    SpreadConstraint,
)
from dovetail.model.rules import Requirement

SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
INCLUSION_POLICIES = ("Honor", "Ignore")
PROTOCOLS = ("TCP", "UDP", "SCTP")
LONGEST_SHARED = 4_096  # characters; of rules up to this length, one copy is kept for all pods with equal rules
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))


class Whose(NamedTuple):
    """The facts about a pod on which its rules depend."""

    namespace: str
    labels: Mapping[str, str]
    name: str  # "" for a template, whose pods do not exist yet
    path: str  # of the spec
    where: str


def relations_of(spec: objects.PodSpec, whose: Whose, problems: Problems) -> tuple[Relations, str]:
    """What the pod requires and prefers of other pods, and what is wrong with it ("" = nothing)."""
    given = spec.affinity
    together = given.pod_affinity if given is not None else None
    apart = given.pod_anti_affinity if given is not None else None
    try:
        ports = tuple(dict.fromkeys(_ports(spec, whose.path)))
        claims, made = _claims(spec, whose.name)
        if not (together or apart or spec.topology_spread_constraints or ports or claims):
            return NO_RELATIONS, ""
        near, far = f"{whose.path}.affinity.podAffinity", f"{whose.path}.affinity.podAntiAffinity"
        spread = f"{whose.path}.topologySpreadConstraints"
        relations = Relations(
            affinity=tuple(_required(together, whose, near)),
            anti_affinity=tuple(_required(apart, whose, far)),
            preferred_affinity=tuple(_preferred(together, whose, near)),
            preferred_anti_affinity=tuple(_preferred(apart, whose, far)),
            spread=tuple(_spread(spec.topology_spread_constraints, whose.labels, spread)),
            ports=ports,
            claims=claims,
            ephemeral=made,
        )
    except RuleError as error:
        problems.error(whose.where, error.path, str(error))
        return NO_RELATIONS, f"{error.path}: {error}"
    if relations == NO_RELATIONS:
        return NO_RELATIONS, ""
    return (_shared(relations) if _is_small(relations) else relations), ""


def preferences_of(spec: objects.PodSpec, whose: Whose, problems: Problems) -> tuple[Preferences, str]:
    """What the pod prefers of a node, and what is wrong with it ("" = nothing)."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    containers = (*spec.init_containers, *spec.containers)
    names = [container.image for container in containers if container.image]
    names += [volume.image.reference for volume in spec.volumes if volume.image is not None and volume.image.reference]
    path = f"{whose.path}.affinity.nodeAffinity.{PREFERRED}"
    try:
        wishes = tuple(
            (_weight(row.weight, f"{path}[{number}]"), affinity_term(row.preference, f"{path}[{number}].preference"))
            for number, row in enumerate(affinity.preferred if affinity is not None else ())
        )
    except RuleError as error:
        problems.error(whose.where, error.path, str(error))
        return NO_PREFERENCES, f"{error.path}: {error}"
    if not wishes and not names:
        return NO_PREFERENCES, ""
    preferences = Preferences(wishes, tuple(map(_with_tag, names)), len(containers))
    return (_same(preferences) if _is_small(preferences) else preferences), ""


def _is_small(value: Relations | Preferences) -> bool:
    """Whether one copy may be kept for all equal pods: it stays in memory long after they are gone."""
    return len(repr(value)) <= LONGEST_SHARED


@lru_cache(1_024)
def _shared(relations: Relations) -> Relations:
    """The first of all equal values."""
    return relations


@lru_cache(1_024)
def _same(preferences: Preferences) -> Preferences:
    """The first of all equal values."""
    return preferences


# ---- affinity ---------------------------------------------------------------------------------------------------


def _required(given: objects.PodAffinity | None, whose: Whose, path: str) -> Iterator[PodTerm]:
    for number, term in enumerate(given.required if given is not None else ()):
        yield _term(term, 0, whose, f"{path}.{REQUIRED}[{number}]")


def _preferred(given: objects.PodAffinity | None, whose: Whose, path: str) -> Iterator[PodTerm]:
    for number, row in enumerate(given.preferred if given is not None else ()):
        own = f"{path}.{PREFERRED}[{number}]"
        yield _term(row.pod_affinity_term, _weight(row.weight, own), whose, f"{own}.podAffinityTerm")


def _term(term: objects.PodAffinityTerm, weight: int, whose: Whose, path: str) -> PodTerm:
    """The term. Without namespaces and namespaceSelector it applies to the pod's own namespace."""
    selector = selector_from(term.label_selector, f"{path}.labelSelector")
    if selector is not None:
        rows = _keyed(term.match_label_keys, "In", whose.labels, selector)
        rows += _keyed(term.mismatch_label_keys, "NotIn", whose.labels, selector)
        selector = Selector(selector.labels, selector.expressions + rows)
    among = selector_from(term.namespace_selector, f"{path}.namespaceSelector")
    namespaces = tuple(term.namespaces) if term.namespaces or among is not None else (whose.namespace,)
    return PodTerm(_key(term.topology_key, path), selector, namespaces, among, weight)


def _keyed(
    keys: Sequence[str], operator: str, labels: Mapping[str, str], selector: Selector
) -> tuple[Requirement, ...]:
    """matchLabelKeys as expressions.

    For a pod that exists, the API server has written them with its labels at creation.
    """
    written = {row.key for row in selector.expressions if row.operator == operator}
    return tuple(Requirement(key, operator, (labels[key],)) for key in keys if key in labels and key not in written)


def selector_from(given: objects.LabelSelector | None, path: str) -> Selector | None:
    if given is None:
        return None
    rows = tuple(requirements(given.match_expressions, f"{path}.matchExpressions", operators=SELECTOR_OPERATORS))
    return Selector(tuple(sorted(given.match_labels.items())), rows)


def object_selector(given: objects.LabelSelector | None, path: str) -> Selector | None:
    """The selector of an object that is held against many pods or nodes. Raises RuleError beyond the bound."""
    if given is not None:
        count = len(given.match_labels) + sum(1 + len(row.values) for row in given.match_expressions)
        if count > bounds.OBJECT_SELECTOR.most:
            raise RuleError(path, bounds.OBJECT_SELECTOR.exceeded(count))
    return selector_from(given, path)


def _weight(weight: int, path: str) -> int:
    if not 1 <= weight <= 100:
        raise RuleError(f"{path}.weight", "must be between 1 and 100")
    return weight


def _key(key: str, path: str) -> str:
    if not key:
        raise RuleError(f"{path}.topologyKey", "must be the name of a node label")
    return key


# ---- spread, ports, claims --------------------------------------------------------------------------------------


def _spread(
    given: Sequence[objects.TopologySpreadConstraint], labels: Mapping[str, str], path: str
) -> Iterator[SpreadConstraint]:
    for number, row in enumerate(given):
        own = f"{path}[{number}]"
        if row.max_skew < 1:
            raise RuleError(f"{own}.maxSkew", "must be 1 or more")
        hard = _one_of(row.when_unsatisfiable, UNSATISFIABLE, f"{own}.whenUnsatisfiable") == "DoNotSchedule"
        if row.min_domains is not None and (row.min_domains < 1 or not hard):
            raise RuleError(f"{own}.minDomains", "must be 1 or more, and goes with DoNotSchedule only")
        selector = selector_from(row.label_selector, f"{own}.labelSelector")
        if selector is not None:  # whatever the API server merged, kube-scheduler merges the present labels
            rows = tuple(Requirement(key, "In", (labels[key],)) for key in row.match_label_keys if key in labels)
            selector = Selector(selector.labels, tuple(dict.fromkeys(selector.expressions + rows)))
        yield SpreadConstraint(
            _key(row.topology_key, own),
            row.max_skew,
            hard,
            selector,
            row.min_domains or 1,
            _one_of(row.node_affinity_policy or "Honor", INCLUSION_POLICIES, f"{own}.nodeAffinityPolicy") == "Honor",
            _one_of(row.node_taints_policy or "Ignore", INCLUSION_POLICIES, f"{own}.nodeTaintsPolicy") == "Honor",
        )


def _ports(spec: objects.PodSpec, path: str) -> Iterator[HostPort]:
    """Host ports of containers that stay (pkg/scheduler/util GetHostPorts).

    With hostNetwork, every port is a host port.
    """
    for name, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for number, container in enumerate(containers):
            if name == "initContainers" and container.restart_policy != "Always":
                continue
            for at, port in enumerate(container.ports):
                own = f"{path}.{name}[{number}].ports[{at}]"
                wanted = port.host_port or (port.container_port if spec.host_network else 0)
                if not 0 <= wanted <= 65535:
                    raise RuleError(f"{own}.hostPort", "must be between 1 and 65535")
                if wanted:
                    protocol = _one_of(port.protocol or "TCP", PROTOCOLS, f"{own}.protocol")
                    yield HostPort(wanted, protocol, port.host_ip or "0.0.0.0")


def _claims(spec: objects.PodSpec, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Claims that the pod names, and among them those created for it.

    A pod that does not exist yet has none of the latter.
    """
    claims, made = [], []
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None and name:
            made.append(f"{name}-{volume.name}")
            claims.append(made[-1])
    return tuple(dict.fromkeys(claims)), tuple(made)


def _one_of(value: str, known: Sequence[str], path: str) -> str:
    if value not in known:
        raise RuleError(path, f"{printable(value)!r} is none of {', '.join(known)}")
    return value


def _with_tag(image: str) -> str:
    """The image's name with a tag, as in imagelocality's normalizedImageName."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
