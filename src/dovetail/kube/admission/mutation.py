"""What the webhook changes in a pod with GPUs, as operations of a JSON Patch: HAMi's rules, and units of GPU memory.

The amounts are those that conversion/asks.py fills in for every reader, so the mutated pod asks for what `plan` says.
A patch that has been applied leaves nothing to change: the API server may ask again after another webhook.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dovetail.kube.admission.review import JsonObject, Operation
from dovetail.kube.conversion.asks import ContainerAsks
from dovetail.kube.conversion.vendors import Vendor
from dovetail.kube.objects.core import Resources
from dovetail.model.quantity import QuantityError, parse

PRIORITY_VARIABLE = "CUDA_TASK_PRIORITY"
CORE_POLICY_VARIABLE = "GPU_CORE_UTILIZATION_POLICY"
VISIBLE_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICE = "none"
DEFAULT_CORE_POLICY = "default"

Step = str | int


class Patch:
    """Changes of a document, and the operations that make them."""

    def __init__(self, document: JsonObject) -> None:
        self.document = copy.deepcopy(document)
        self.operations: list[Operation] = []

    def put(self, path: tuple[Step, ...], value: Any) -> None:
        """Set what is at the path; mappings above it that are missing are made."""
        place: Any = self.document
        for depth, step in enumerate(path[:-1]):
            if not isinstance(place, list) and place.get(step) is None:
                self._add(place, path[: depth + 1], {})
            place = place[step]
        last = path[-1]
        if isinstance(place, list) or place.get(last) != value:
            self._add(place, path, value)

    def append(self, path: tuple[Step, ...], value: Any) -> None:
        """Add to the list at the path."""
        place: Any = self.document
        for step in path[:-1]:
            place = place[step]
        if place.get(path[-1]) is None:
            self._add(place, path, [value])
        else:
            place[path[-1]].append(value)
            self.operations.append({"op": "add", "path": f"{_pointer(path)}/-", "value": value})

    def _add(self, place: Any, path: tuple[Step, ...], value: Any) -> None:
        is_item = isinstance(place, list)
        place[path[-1]] = copy.deepcopy(value)
        self.operations.append({"op": "replace" if is_item else "add", "path": _pointer(path), "value": value})


def _pointer(path: tuple[Step, ...]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


@dataclass(frozen=True, slots=True)
class ReadContainer:
    """A container of the pod, and what it asks for."""

    at: tuple[Step, ...]  # ("spec", "containers", 0)
    resources: Resources
    asked: ContainerAsks


def mutate(pod: JsonObject, containers: Iterable[ReadContainer], vendors: Iterable[Vendor], scheduler: str) -> Patch:
    """The changes of a pod with GPUs. `scheduler`: the name that it gets; "" = it keeps its own."""
    patch = Patch(pod)
    if scheduler:
        patch.put(("spec", "schedulerName"), scheduler)
    rows = [row for row in vendors if row.webhook or row.runtime_class]
    for one in containers:
        _write_amounts(patch, one)
        for row in rows:
            if row.webhook:
                _write_environment(patch, one, row)
            wants = any(ask.vendor == row.word for ask in one.asked.asks)
            if wants and row.runtime_class and patch.document["spec"].get("runtimeClassName") is None:
                patch.put(("spec", "runtimeClassName"), row.runtime_class)
    return patch


def _write_amounts(patch: Patch, one: ReadContainer) -> None:
    """The counts, cores and MiB that the reading filled in: into limits, and into requests that state them already."""
    for name, amount in sorted(one.asked.written.items()):
        stated_in = [part for part in ("limits", "requests") if name in getattr(one.resources, part)]
        for part in stated_in or ["limits"]:
            patch.put((*one.at, "resources", part, name), str(amount))


def _write_environment(patch: Patch, one: ReadContainer, vendor: Vendor) -> None:
    priority = one.resources.limits.get(vendor.priority) if vendor.priority else None
    if priority is not None:
        with suppress(QuantityError):  # the API server refuses the amount
            _set_variable(patch, one.at, PRIORITY_VARIABLE, str(parse(str(priority))))
    if vendor.core_policy not in ("", DEFAULT_CORE_POLICY):
        _set_variable(patch, one.at, CORE_POLICY_VARIABLE, vendor.core_policy)
    if vendor.overwrite_env and not any(ask.vendor == vendor.word for ask in one.asked.asks):
        _set_variable(patch, one.at, VISIBLE_VARIABLE, NO_DEVICE)


def _set_variable(patch: Patch, at: tuple[Step, ...], name: str, value: str) -> None:
    """Set a variable of a container. An entry that the pod states itself is overwritten, as the last entry wins."""
    container: Any = patch.document
    for step in at:
        container = container[step]
    wanted = {"name": name, "value": value}
    found = [n for n, entry in enumerate(container.get("env") or []) if entry.get("name") == name]
    for number in found:
        if container["env"][number] != wanted:
            patch.put((*at, "env", number), wanted)
    if not found:
        patch.append((*at, "env"), wanted)
