"""The nodes where a pod may go: selector, required node affinity, tolerations, nodeName."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement, Toleration

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
TOLERATION_OPERATORS = ("Equal", "Exists", "Lt", "Gt")


class RuleError(ValueError):
    """A rule is wrong: (path, message)."""

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
    terms = affinity.node_affinity.required.node_selector_terms
    return tuple(affinity_term(term, f"{path}[{number}]") for number, term in enumerate(terms))


def affinity_term(term: objects.NodeSelectorTerm, path: str) -> AffinityTerm:
    return AffinityTerm(
        tuple(requirements(term.match_expressions, f"{path}.matchExpressions")),
        tuple(requirements(term.match_fields, f"{path}.matchFields", fields=("metadata.name",))),
    )


def requirements(
    given: list[objects.Requirement],
    path: str,
    fields: tuple[str, ...] = (),
    operators: tuple[str, ...] = OPERATORS,
) -> Iterator[Requirement]:
    for number, row in enumerate(given):
        own = f"{path}[{number}]"
        if not row.key or (fields and row.key not in fields):
            raise RuleError(f"{own}.key", f"must be {' or '.join(fields) or 'the name of a label'}")
        if row.operator not in operators:
            raise RuleError(f"{own}.operator", f"{printable(row.operator)!r} is none of {', '.join(operators)}")
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
        if operator not in TOLERATION_OPERATORS:
            message = f"{printable(operator)!r} is none of {', '.join(TOLERATION_OPERATORS)}"
            raise RuleError(f"{path}[{number}].operator", message)
        if not row.key and operator != "Exists":
            raise RuleError(f"{path}[{number}].operator", "must be Exists where key is empty")
        yield Toleration(row.key, operator, row.value, row.effect)
