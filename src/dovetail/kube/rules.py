"""Where a pod may go: selector, required node affinity, tolerations, nodeName. And which rules are not honoured yet."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.kube import objects
from dovetail.kube.problems import Problems, printable
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement, Toleration

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
TOLERATIONS = ("Equal", "Exists", "Lt", "Gt")


class RuleError(ValueError):
    """(path, message)"""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def node_rules(spec: objects.PodSpec, path: str, where: str, problems: Problems) -> tuple[NodeRules, str]:
    """The rules, and what is wrong with them ("" = nothing)."""
    try:
        rules = NodeRules(
            node_name=spec.node_name,
            selector=tuple(sorted(spec.node_selector.items())),
            affinity=_affinity(spec.affinity, f"{path}.affinity.nodeAffinity"),
            tolerations=tuple(_tolerations(spec.tolerations, f"{path}.tolerations")),
        )
    except RuleError as error:
        problems.error(where, error.path, str(error))
        return NodeRules(node_name=spec.node_name), f"{error.path}: {error}"
    return rules, ""


def _affinity(affinity: objects.Affinity | None, path: str) -> tuple[AffinityTerm, ...] | None:
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return None
    path = f"{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    return tuple(
        AffinityTerm(
            tuple(_requirements(term.match_expressions, f"{path}[{number}].matchExpressions")),
            tuple(_requirements(term.match_fields, f"{path}[{number}].matchFields", fields=("metadata.name",))),
        )
        for number, term in enumerate(affinity.node_affinity.required.node_selector_terms)
    )


def _requirements(given: list[objects.Requirement], path: str, fields: tuple[str, ...] = ()) -> Iterator[Requirement]:
    for number, row in enumerate(given):
        own = f"{path}[{number}]"
        if not row.key or (fields and row.key not in fields):
            raise RuleError(f"{own}.key", f"must be {' or '.join(fields) or 'the name of a label'}")
        if row.operator not in OPERATORS:
            raise RuleError(f"{own}.operator", f"{printable(row.operator)!r} is none of {', '.join(OPERATORS)}")
        if row.operator in ("In", "NotIn") and not row.values:
            raise RuleError(f"{own}.values", f"must not be empty with operator {row.operator}")
        if row.operator in ("Gt", "Lt") and not (len(row.values) == 1 and _is_integer(row.values[0])):
            raise RuleError(f"{own}.values", f"must be one whole number with operator {row.operator}")
        yield Requirement(row.key, row.operator, tuple(row.values))


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return len(text) < 20 and digits.isascii() and digits.isdigit()


def _tolerations(given: list[objects.Toleration], path: str) -> Iterator[Toleration]:
    for number, row in enumerate(given):
        operator = row.operator or "Equal"
        if operator not in TOLERATIONS:
            message = f"{printable(operator)!r} is none of {', '.join(TOLERATIONS)}"
            raise RuleError(f"{path}[{number}].operator", message)
        if not row.key and operator != "Exists":
            raise RuleError(f"{path}[{number}].operator", "must be Exists where key is empty")
        yield Toleration(row.key, operator, row.value, row.effect)


def not_honoured(spec: objects.PodSpec, path: str, where: str, problems: Problems) -> None:
    """One warning per pod or workload that names the rules it has and we do not keep yet."""
    rules = list(_rules_to_come(spec))
    if rules:
        problems.warning(where, path, f"not honoured yet, the pod is placed without: {', '.join(rules)}")


def _rules_to_come(spec: objects.PodSpec) -> Iterator[str]:
    affinity = spec.affinity or objects.Affinity()
    for name, pods in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        if pods is not None and pods.required:
            yield f"required {name}"
        if pods is not None and pods.preferred:
            yield f"preferred {name}"
    if affinity.node_affinity is not None and affinity.node_affinity.preferred:
        yield "preferred nodeAffinity"
    if spec.topology_spread_constraints:
        yield "topologySpreadConstraints"
    ports = [port for c in (*spec.init_containers, *spec.containers) for port in c.ports]
    if any(port.host_port or (spec.host_network and port.container_port) for port in ports):
        yield "host ports"
    if any(v.persistent_volume_claim is not None or v.ephemeral is not None for v in spec.volumes):
        yield "persistent volume claims"
