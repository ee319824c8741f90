"""The sums that a kubelet checks before it admits a pod: CPU, memory and the number of pods."""

from __future__ import annotations

from collections.abc import Iterable

from tools.controlplane.client import Object

UNITS = {"m": 0.001, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
COUNTED = ("cpu", "memory")


def lacking(node: Object, there: Iterable[Object], pod: Object) -> str | None:
    """The resource that the node lacks for one more pod; None if the pod fits."""
    pods = [*there, pod]
    has = node["status"].get("allocatable", {})
    taken = {name: sum(_request(one, name) for one in pods) for name in COUNTED} | {"pods": float(len(pods))}
    return next((name for name, amount in taken.items() if name in has and amount > _amount(has[name]) + 1e-9), None)


def _request(pod: Object, name: str) -> float:
    """The request of the containers that run together. Init containers are ignored: they ask for no more here."""
    asked = [one.get("resources", {}).get("requests", {}) for one in pod["spec"]["containers"]]
    return sum(_amount(one[name]) for one in asked if name in one)


def _amount(text: str) -> float:
    number = text.rstrip("mkMGTKi")
    unit = text[len(number) :]
    return float(number) * (UNITS[unit] if unit else 1.0)
