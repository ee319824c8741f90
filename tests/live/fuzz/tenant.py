"""A tenant by the dice: creates, changes and deletes pods and PodGroups of its own namespace, with its own rights."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.live.fuzz.pods import ALLOCATED, GANG, sound
from tests.live.fuzz.twists import HOSTILE, KNOWN_NOTES, group_spec, hostile, record
from tools.controlplane.client import MERGE, Client, Object, path_of

GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"
MOST_PODS = 20  # of one thread at one time; the oldest go first


class Tenant:
    """One thread's worth of a tenant. `act()` sends one request, and returns what it was and the answer's status."""

    def __init__(self, api: Client, namespace: str, dice: random.Random, mark: str, without: Sequence[str]) -> None:
        """`mark` keeps the names of several threads apart; `without`: names of twists that are left out."""
        self._twists = [twist for twist in HOSTILE if twist.__name__ not in without]
        self._api, self._namespace, self._dice, self._mark = api, namespace, dice, mark
        self._pods: dict[str, bool] = {}  # name -> it has a finalizer; the oldest first
        self._made = 0

    def act(self) -> tuple[str, int]:
        if len(self._pods) >= MOST_PODS:
            return self._delete(next(iter(self._pods)))
        draw = self._dice.random()
        if not self._pods or draw < 0.30:
            return self._create(*sound(self._dice, self._name(), self._namespace))
        if draw < 0.50:
            return self._create(*hostile(self._dice, self._name(), self._namespace, self._twists))
        if draw < 0.75:
            return self._patch(self._any())
        if draw < 0.88:
            return self._delete(self._any())
        return self._group()

    def _name(self) -> str:
        self._made += 1
        return f"{self._mark}-{self._made}"

    def _any(self) -> str:
        return self._dice.choice(list(self._pods))

    def _create(self, item: Object, how: str) -> tuple[str, int]:
        status = self._api.status("POST", path_of("Pod", namespace=self._namespace), item)
        if status < 300:
            self._pods[item["metadata"]["name"]] = "finalizers" in item["metadata"]
        return f"create {item['metadata']['name']} {how}", status

    def _patch(self, name: str) -> tuple[str, int]:
        """Labels and annotations of a pod that waits or runs: what a twist would have written, or a single key."""
        change: Object = {"metadata": {"labels": {}, "annotations": {}}, "spec": {"containers": [{"resources": {}}]}}
        draw, how = self._dice.random(), "note"
        if draw < 0.25:
            change["metadata"]["annotations"][ALLOCATED], how = record(self._dice), "record"
        elif draw < 0.40:
            change["metadata"]["annotations"][self._dice.choice(KNOWN_NOTES)], how = None, "no note"
        elif draw < 0.55:
            change["metadata"]["labels"][GANG], how = self._dice.choice((None, "g1", "none")), "gang"
        else:
            twist = self._dice.choice([one for one in self._twists if one.__name__ in ON_METADATA])
            twist(self._dice, change)
            how = twist.__name__
        body = {"metadata": {key: change["metadata"][key] for key in ("labels", "annotations")}}
        status = self._api.status("PATCH", path_of("Pod", name, self._namespace), body, MERGE)
        if status == 404:
            self._pods.pop(name, None)
        return f"patch {name} {how}", status

    def _delete(self, name: str) -> tuple[str, int]:
        finalizer = self._pods.pop(name)
        grace: Object = {"gracePeriodSeconds": self._dice.choice((0, 1, 30))} if self._dice.random() < 0.7 else {}
        path = path_of("Pod", name, self._namespace)
        status = self._api.status("DELETE", path, **grace)
        if finalizer:
            status = self._api.status("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        return f"delete {name} {grace}", status

    def _group(self) -> tuple[str, int]:
        path, name = GROUPS.format(self._namespace), f"g{self._dice.randrange(12)}"
        verb = self._dice.choice(("POST", "POST", "PATCH", "DELETE"))
        body: Object | None = None
        if verb == "POST":
            meta = {"name": name, "namespace": self._namespace}
            body = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": meta}
        if verb != "DELETE":
            body = {**(body or {}), "spec": group_spec(self._dice)}
        content = MERGE if verb == "PATCH" else "application/json"
        status = self._api.status(verb, path if verb == "POST" else f"{path}/{name}", body, content)
        return f"{verb} PodGroup {name}", status


ON_METADATA = frozenset(
    [
        "large_note",
        "policy_chains",
        "many_types",
        "many_uuids",
        "forged_record",
        "forged_marks",
        "odd_notes",
        "values_of_the_old_test",
        "strange_gang",
        "many_labels",
    ]
)
