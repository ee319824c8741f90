"""ResourceQuota → the model's Quota: what Kubernetes counts, and HAMi's limits on GPU memory and cores."""

from __future__ import annotations

from dovetail.kube.conversion.amounts import amount
from dovetail.kube.conversion.card_memory import quota_memory
from dovetail.kube.conversion.register import MILLI_PER_CORE
from dovetail.kube.conversion.vendors import Vendor, Vendors
from dovetail.kube.files.decode import Found
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.model.node import BASE_RESOURCES, PODS
from dovetail.model.pod import Quota
from dovetail.model.quantity import QuantityError


def quota_from(item: Found, vendors: Vendors, problems: Problems) -> Quota:
    """The quota on what pods use; limits on other objects do not affect placement."""
    spec: objects.ResourceQuotaSpec = item.value.spec
    if spec.scopes or spec.scope_selector is not None:
        problems.warning(item.where, "spec.scopes", "scopes are ignored: the quota is held against every pod")
    hard: dict[str, int] = {}
    memory: dict[str, int] = {}
    compute: dict[str, int] = {}
    for name, given in spec.hard.items():
        prefix, resource = _split(name)
        if resource is None:
            continue
        vendor = _vendor_of(resource, vendors) if prefix == "limits." else None
        try:
            value = amount(resource, given)
        except QuantityError as error:
            problems.error(item.where, f"spec.hard.{name}", f"{error}; this limit is left out")
            continue
        if vendor is not None and resource == vendor.memory:
            memory[vendor.word] = quota_memory(given, vendor.memory_factor)
        elif vendor is not None:
            compute[vendor.word] = value * MILLI_PER_CORE
        elif prefix == "limits." and "/" in resource:
            problems.warning(item.where, f"spec.hard.{name}", f"Kubernetes counts requests.{resource} only; ignored")
        else:
            hard[name] = value
    return Quota(item.namespace, item.name, hard, memory, compute)


def _split(name: str) -> tuple[str, str | None]:
    """("requests.", "cpu") of "requests.cpu"; None where the name does not concern pods."""
    if name == "count/pods":
        return "", PODS
    for prefix in ("requests.", "limits."):
        if name.startswith(prefix):
            resource = name.removeprefix(prefix)
            return prefix, None if resource == "storage" else resource
    if name in BASE_RESOURCES or name.startswith("hugepages-"):
        return "", name
    return "", None


def _vendor_of(resource: str, vendors: Vendors) -> Vendor | None:
    return next((row for row in vendors.rows if resource in (row.memory, row.core) and resource), None)
