"""Nodes, claims and volumes in a few words, and what a pod with claims finds there."""

from __future__ import annotations

from typing import Any

from dovetail.engine.kernel.build import builder
from dovetail.engine.ledger.intern import Interner
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rules.volumes import Volumes
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from dovetail.model.relations import Relations
from dovetail.model.rules import AffinityTerm, Requirement
from dovetail.model.volumes import Claim, ClaimRef, StorageClass, Volume, VolumeChoice, VolumeFact
from tests import builders

GIB = 2**30
HOST = "kubernetes.io/hostname"
LOCAL = StorageClass("local", waits=True, provisioner="kubernetes.io/no-provisioner")
MADE = StorageClass("made", waits=True, provisioner="csi.example.com")
AT_ONCE = StorageClass("at-once", provisioner="csi.example.com")


def claim(name: str = "data", kind: str = "local", size: int = 10, **facts: Any) -> Claim:
    """An unbound claim of so many GiB."""
    facts = {"uid": f"uid-{name}", "access_modes": ("ReadWriteOnce",), "request": size * GIB, **facts}
    return Claim(facts.pop("namespace", "default"), name, storage_class=kind, **facts)


def bound(name: str = "data", volume: str = "v", **facts: Any) -> Claim:
    return claim(name, facts.pop("kind", "local"), volume=volume, bind_completed=True, **facts)


def volume(name: str = "v", size: int = 10, node: str = "", kind: str = "local", **facts: Any) -> Volume:
    """A free volume of so many GiB, usable on one node only if one is named."""
    where = only_on(HOST, node) if node else None
    facts = {"access_modes": ("ReadWriteOnce",), "phase": "Available", "affinity": where, **facts}
    return Volume(name, size * GIB, kind, **facts)


def volume_of(name: str, owner: Claim, **facts: Any) -> Volume:
    """A volume that belongs to a claim."""
    return volume(name, phase="Bound", claim_ref=ClaimRef(owner.namespace, owner.name, owner.uid), **facts)


def only_on(label: str, *values: str) -> tuple[AffinityTerm, ...]:
    return (AffinityTerm((Requirement(label, "In", values),)),)


def pod(name: str, *claims: str, made: tuple[str, ...] = (), **facts: Any) -> Pod:
    """A pod with these claims, and with some that are `made` for it."""
    return builders.pod(name, relations=Relations(claims=(*claims, *made), ephemeral=made), **facts)


class Storeroom:
    """Nodes with their own name as hostname label, and facts about volumes."""

    def __init__(self, *facts: VolumeFact, **nodes: dict[str, str]) -> None:
        """`Storeroom(…facts, a={}, b={"zone": "x"})`: nodes and their other labels."""
        self.ledger = Ledger(builder(False).book_keeping(), Interner())
        for name, labels in nodes.items():
            self.add_node(name, labels)
        self.volumes = Volumes(self.ledger)
        self.volumes.change(facts)

    def add_node(self, name: str, labels: dict[str, str]) -> None:
        self.ledger.set_node(builders.node(name, labels={HOST: name, **labels}))

    def now(self, *facts: VolumeFact) -> None:
        self.volumes.change(facts)

    def runs(self, one: Pod, node: str) -> None:
        """The pod runs there, whoever placed it."""
        self.volumes.came(one, self.ledger.row_of[node])

    def places(self, one: Pod, node: str) -> tuple[VolumeChoice, ...]:
        """We put the pod there; what it was promised."""
        self.volumes.promise(one, self.ledger.row_of[node])
        self.runs(one, node)
        return self.volumes.take(one, node)

    def ends(self, one: Pod, node: str) -> None:
        self.volumes.left(one, self.ledger.row_of[node])

    def says(self, one: Pod) -> dict[str, str] | str:
        """Why nobody takes the pod, or per node "" or the reason."""
        reason = self.volumes.refusal(one)
        if reason is not None:
            return reason.name
        found = self.volumes.refusals(one).tolist()
        return {
            node.name: Reason(code).name if code else "" for node, code in zip(self.ledger.nodes, found, strict=True)
        }

    def takes(self, one: Pod, node: str) -> list[tuple[str, str]]:
        """(claim, volume) if the pod went to the node; "" = made for it."""
        return [(choice.claim, choice.volume) for choice in self.volumes.choice(one, node)]
