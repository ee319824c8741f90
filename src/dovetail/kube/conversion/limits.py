"""Requests that the API server refuses for their limits (pkg/apis/core/validation ValidateContainerResources)."""

from __future__ import annotations

from dovetail.kube.conversion.admission import is_extended
from dovetail.kube.conversion.amounts import amount
from dovetail.kube.objects.core import Quantity, Resources
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.quantity import QuantityError

MOST_NAMED = 20  # resources of one container


def check_limits(resources: Resources, path: str, where: str, problems: Problems) -> None:
    """Report limits that are refused.

    GPUs and other extended resources need a limit equal to the request; no request may exceed its limit.
    """
    named = 0
    for name, value in resources.requests.items():
        message = _refused(name, value, resources.limits.get(name))
        if message and named < MOST_NAMED:
            named += 1
            problems.mistake(where, f"{path}.resources.requests.{name}", message)


def _refused(name: str, request: Quantity, limit: Quantity | None) -> str:
    """Why the API server refuses the pair; "" = it does not, or the amount is wrong and was reported."""
    equal = is_extended(name) or name.startswith("hugepages-")
    if limit is None:
        write = f"write limits.{printable(name)}: {printable(str(request), 40)}"
        return f"has no limit, so that the API server refuses the pod; {write}" if equal else ""
    try:
        asked, most = amount(name, request), amount(name, limit)
    except QuantityError:
        return ""
    said = f"{printable(str(request), 40)} with a limit of {printable(str(limit), 40)}"
    if equal and asked != most:
        return f"{said}: the API server refuses the pod; write the same amount in both"
    return f"{said}: the API server refuses a request above its limit" if asked > most else ""
