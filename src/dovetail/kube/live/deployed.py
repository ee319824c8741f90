"""Names the component of deploy/ that grants a missing right. For messages only; imports nothing."""

from __future__ import annotations


def remedy(component: str) -> str:
    """How to apply a component of deploy/optional: for manifests, and the value of the Helm chart."""
    first, *rest = component.split("-")
    value = first + "".join(word.capitalize() for word in rest)
    return f"kubectl apply -k deploy/optional/{component} (Helm: {value}.enabled=true)"
