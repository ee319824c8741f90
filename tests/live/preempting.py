"""For tests of preemption: priorities, full nodes, disruption budgets, and who was stopped for whom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.live.assigned import pieces
from tests.live.faults import Witness, create_all
from tools.controlplane import objects
from tools.controlplane.client import Client, Object

WHOLE = objects.gpu_limits(1, cores=100)  # a card for itself
RANKS = {"low": 10, "middle": 100, "high": 1000}


def furnish(api: Client, **nodes: int) -> None:
    """Classes of priority, and nodes with this number of cards."""
    for name, value in RANKS.items():
        api.create(priority_class(name, value))
    create_all(api, (objects.node(name, gpus=gpus) for name, gpus in nodes.items()))


def priority_class(name: str, value: int, **annotations: str) -> Object:
    meta: Object = {"name": name, "annotations": annotations}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value}


def pod(name: str, rank: str = "low", **more: Any) -> Object:
    return objects.pod(name, more.pop("limits", WHOLE), priorityClassName=rank, **more)


def budget(api: Client, name: str, allowed: int, **labels: str) -> None:
    """A disruption budget with a status, as its controller would write it; no controller runs here."""
    meta, selector = {"name": name, "namespace": "default"}, {"matchLabels": labels}
    spec = {"minAvailable": 2, "selector": selector}
    api.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})
    allow(api, name, allowed)


def allow(api: Client, name: str, allowed: int) -> None:
    """Budgets protect pods that are ready, and others too where healthy ones are missing."""
    healthy = {"currentHealthy": 1 + allowed, "desiredHealthy": 2, "expectedPods": 2}
    status = {"disruptionsAllowed": allowed, "observedGeneration": 1, **healthy}
    api.patch("PodDisruptionBudget", name, {"status": status}, part="status")


def runs(api: Client, *names: str) -> None:
    def all_run() -> bool:
        found = [api.find("Pod", name) for name in names]
        return all(one is not None and one["status"].get("phase") == "Running" for one in found)

    api.wait_until(all_run, f"{', '.join(names)} run", 60)


def card_of(api: Client, name: str) -> str:
    (piece,) = pieces(api.get("Pod", name))
    return piece.card


def there(api: Client, names: Iterable[str]) -> list[str]:
    """Which of these pods exist and are not ending."""
    found = {name: api.find("Pod", name) for name in names}
    return [name for name, one in found.items() if one is not None and not one["metadata"].get("deletionTimestamp")]


def events(api: Client, reason: str) -> list[tuple[str, str]]:
    """Name of the pod and message, of all events with this reason."""
    found = [event for event in api.list("Event") if event["reason"] == reason]
    return sorted((event["involvedObject"]["name"], event["message"]) for event in found)


class EvictionWitness(Witness):
    """Also follows which pods were stopped by somebody else than the test, which calls `delete`."""

    def __init__(self, api: Client) -> None:
        super().__init__(api)
        self._deleted_by_test: set[str] = set()
        self._stopped: dict[str, str] = {}  # uid -> name

    def delete(self, name: str, **query: Any) -> None:
        self._deleted_by_test.add(self._api.get("Pod", name)["metadata"]["uid"])
        self._api.delete("Pod", name, **query)

    @property
    def evicted(self) -> list[str]:
        return [name for uid, name in self._stopped.items() if uid not in self._deleted_by_test]

    def _hear(self, item: Object, gone: bool) -> None:
        super()._hear(item, gone)
        if item["spec"].get("nodeName") and (gone or item["metadata"].get("deletionTimestamp")):
            self._stopped[item["metadata"]["uid"]] = item["metadata"]["name"]
