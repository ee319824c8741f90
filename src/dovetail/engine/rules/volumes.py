"""Kubernetes' rules about a pod's volumes: VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone.

Facts come in by `change`, which returns which pods it may help. Pods without claims cost nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rules.volume_records import HELPS_ALL_PODS, HELPS_NO_POD, Helps, Records
from dovetail.engine.rules.volume_search import Bools, VolumeCandidates
from dovetail.engine.rules.volume_stock import VolumeError
from dovetail.engine.wording import Fact
from dovetail.model.checkpoint import VolumePromises
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from dovetail.model.rules import AffinityTerm, Requirement
from dovetail.model.volumes import ONE_POD, ZONE_LABELS, Claim, Volume, VolumeChoice, VolumeFact
from dovetail.policies.rows import Bytes


class Volumes:
    """Volumes, the pods that use them, and what both mean for a pod. A witness of the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._records = Records(ledger.places)
        self._users: dict[str, dict[str, int]] = {}  # claim -> pod's UID -> row
        self._promised: dict[str, tuple[VolumeChoice, ...]] = {}  # pod's UID -> what was promised to it
        self._last: tuple[object, list[VolumeCandidates]] = (None, [])
        ledger.bystanders.append(self._watch)

    # ---- facts --------------------------------------------------------------------------------------------------

    def change(self, facts: Iterable[VolumeFact], gone: Iterable[VolumeFact] = ()) -> Helps:
        """Store facts that are new or changed, and drop those that are gone."""
        helps = HELPS_NO_POD
        for fact in gone:
            helps |= self._records.drop(fact)
        for fact in facts:
            helps |= self._records.set(fact)
        return helps

    def helped(self, pod: Pod, change: Helps) -> bool:
        """Whether a waiting pod should be tried again after a change."""
        if not pod.relations.claims or not change:
            return False
        keys = claim_keys(pod)
        classes = {claim.storage_class for claim in self._known(pod)}
        return change.anyone or not change.claims.isdisjoint(keys) or not change.classes.isdisjoint(classes)

    def freed_by(self, pod: Pod) -> Helps:
        """The pods that a leaving pod may help: it frees ReadWriteOncePod claims, promised volumes and attachments."""
        return HELPS_ALL_PODS if pod.relations.claims else HELPS_NO_POD

    def claim(self, key: str) -> Claim | None:
        return self._records.claims.get(key)

    def volume(self, name: str) -> Volume | None:
        return self._records.stock.volumes.get(name)

    # ---- users of claims ----------------------------------------------------------------------------------------

    def came(self, pod: Pod, row: int) -> None:
        """Note that the pod holds the row.

        The volumes that it needs there are promised to it, unless it runs already.
        """
        if not pod.relations.claims:
            return
        if self._ledger.is_reserved(pod.uid) and pod.uid not in self._promised:
            self.promise(pod, row)
        for key in _named(pod):
            self._users.setdefault(key, {})[pod.uid] = row
        self._records.limits.came(claim_keys(pod), row)

    def left(self, pod: Pod, row: int) -> None:
        """Free everything that was promised to the pod."""
        if not pod.relations.claims:
            return
        for key in _named(pod):
            users = self._users.get(key, {})
            users.pop(pod.uid, None)
            if not users:
                self._users.pop(key, None)
        self._records.limits.left(claim_keys(pod), row)
        self.forget(self._promised.pop(pod.uid, ()))

    def clear(self, reserved: Collection[str]) -> None:
        """Drop all users. Promises to pods that are being bound stay: their volumes are chosen."""
        self._users.clear()
        self._records.limits.clear()
        for uid in [uid for uid in self._promised if uid not in reserved]:
            self.forget(self._promised.pop(uid))

    def promise(self, pod: Pod, row: int) -> None:
        """Keep for the pod what its unbound claims get on the row, until the pod leaves or the claims are bound."""
        choices = tuple(self._choice(one, row) for one in self._search(pod) if one.satisfied[row])
        if choices:
            self.assume(choices)
            self._promised[pod.uid] = choices

    def take(self, pod: Pod, node: str) -> tuple[VolumeChoice, ...]:
        """The choices promised to the pod on this node: to be carried out before the pod is bound."""
        return tuple(choice for choice in self._promised.get(pod.uid, ()) if choice.node == node)

    # ---- questions ----------------------------------------------------------------------------------------------

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.relations.claims)

    def refusal(self, pod: Pod) -> Reason | None:
        """Why no node can take the pod, whatever the nodes have; None = some may."""
        for key in claim_keys(pod):
            reason = self._claim_refusal(pod, self._records.claims.get(key))
            if reason is not None:
                return reason
        return Reason.CLAIM_IN_USE if any(map(self._in_use, _named(pod))) else None

    def refusals(self, pod: Pod) -> Bytes:
        """[row]: 0, or the first rule that the node breaks, in kube-scheduler's order of plugins."""
        found: Bytes = np.zeros(len(self._ledger.nodes), dtype=np.uint8)
        claims = self._known(pod)
        bound = [(claim, volume) for claim in claims if claim.bound and (volume := self.volume(claim.volume))]
        _mark(found, Reason.VOLUME_LIMIT, self._records.limits.exceeded(claim.key for claim in claims))
        for _, volume in bound:
            _mark(found, Reason.VOLUME_NODE, self._outside(volume.affinity))
        for one in self._search(pod):
            _mark(found, Reason.VOLUME_NONE, ~one.satisfied)
        for claim, volume in bound:
            if claim.name not in pod.relations.ephemeral:
                _mark(found, Reason.VOLUME_ZONE, self._in_other_zones(volume))
        return found

    def fact(self, pod: Pod, row: int, reason: Reason) -> Fact | None:
        """The claim or volume because of which the node refuses the pod; None for other reasons."""
        if reason == Reason.VOLUME_NONE:
            claims = [one.claim for one in self._search(pod) if not one.satisfied[row]]
            return Fact(f"no persistent volume is available for {_claims(claims)}") if claims else None
        if reason not in (Reason.VOLUME_NODE, Reason.VOLUME_ZONE):
            return None
        in_zones = reason == Reason.VOLUME_ZONE
        names = [
            f"volume {volume.name} of claim {claim.name}"
            for claim in self._known(pod)
            if claim.bound and (volume := self.volume(claim.volume)) is not None
            if (self._in_other_zones(volume) if in_zones else self._outside(volume.affinity))[row]
        ]
        said = "is in another zone" if in_zones else "cannot be used on the node"
        return Fact(f"{', '.join(names)} {said}") if names else None

    def why_refused(self, pod: Pod, reason: Reason) -> str:
        """The claim because of which no node can take the pod: `claim data does not exist`; "" = there is none."""
        said = {
            Reason.CLAIM_MISSING: "does not exist",
            Reason.CLAIM_UNBOUND: "is not bound yet",
            Reason.CLAIM_IN_USE: "is ReadWriteOncePod and in use by another pod",
        }.get(reason)
        if said is None:
            return ""
        in_use = reason == Reason.CLAIM_IN_USE
        for key in _named(pod) if in_use else claim_keys(pod):
            claim = self.claim(key)
            if self._in_use(key) if in_use else self._claim_refusal(pod, claim) == reason:
                name = key.partition("/")[2]
                return f"{_claims([claim]) if claim else f'claim {name}'} {said}"
        return ""

    def choice(self, pod: Pod, node: str) -> tuple[VolumeChoice, ...]:
        """What to do about the pod's unbound claims if it goes to the node. Changes nothing."""
        row = self._ledger.row_of[node]
        return tuple(self._choice(found, row) for found in self._search(pod))

    # ---- promises -----------------------------------------------------------------------------------------------

    def assume(self, choices: Iterable[VolumeChoice]) -> None:
        """Treat these volumes as the claims' from now on: the API server does not say so yet."""
        self._records.stock.assume(choices)
        self._records.moves += 1

    def forget(self, choices: Iterable[VolumeChoice]) -> Helps:
        """Undo `assume` for choices that were not carried out; returns which pods this may help."""
        choices = tuple(choices)
        self._records.stock.forget(choices)
        self._records.moves += 1
        known = [claim for one in choices if (claim := self.claim(one.claim))]
        return Helps(frozenset(one.claim for one in choices), frozenset(claim.storage_class for claim in known))

    def state(self) -> VolumePromises:
        """All promises."""
        given, _, made = self._records.stock.promises()
        return VolumePromises(tuple(self._promised.items()), tuple(given.items()), tuple(made.items()))

    def restore(self, state: VolumePromises) -> None:
        """Take these promises instead of those that the pods on nodes were given here."""
        given_to = {promise.claim.key: volume for volume, promise in state.given}
        self._records.stock.restore((dict(state.given), given_to, dict(state.made)))
        self._promised = dict(state.chosen)
        self._records.moves += 1

    def _watch(self) -> Callable[[], None]:
        promises, promised = self._records.stock.promises(), dict(self._promised)

        def undo() -> None:
            self._records.stock.restore(promises)
            self._promised = promised
            self._records.moves += 1

        return undo

    # ---- one rule each ------------------------------------------------------------------------------------------

    def _known(self, pod: Pod) -> list[Claim]:
        return [claim for key in claim_keys(pod) if (claim := self.claim(key)) is not None]

    def _claim_refusal(self, pod: Pod, claim: Claim | None) -> Reason | None:
        if claim is None or (claim.name in pod.relations.ephemeral and claim.owner != pod.uid):
            return Reason.CLAIM_MISSING  # a claim created for another pod, or for none, is not the pod's
        if claim.lost or claim.leaving:
            return Reason.CLAIM_UNBOUND
        there = self.volume(claim.volume) is not None if claim.bound else self._records.waits(claim)
        return None if there else Reason.CLAIM_UNBOUND

    def _in_use(self, key: str) -> bool:
        """Whether the claim allows one pod at a time and another pod uses it.

        As in kube-scheduler: on active nodes only.
        """
        claim = self._records.claims[key]
        rows = self._users.get(key, {}).values() if ONE_POD in claim.access_modes else ()
        return any(map(self._ledger.is_active, rows))

    def _search(self, pod: Pod) -> list[VolumeCandidates]:
        """The candidates, kept until something changes: one decision calls this several times."""
        records = self._records
        asked = (pod.namespace, pod.relations.claims, records.moves, records.labels.stamp)
        if self._last[0] != asked:
            self._last = (asked, records.search([claim for claim in self._known(pod) if records.waits(claim)]))
        return self._last[1]

    def _choice(self, found: VolumeCandidates, row: int) -> VolumeChoice:
        claim, volume, node = found.claim, found.volume(row), self._ledger.nodes[row].name
        if volume is not None:
            prebound = volume.claim_ref is not None
            return VolumeChoice(claim.key, claim.uid, node, volume.name, volume.version, prebound)
        if not found.can_make[row]:
            raise VolumeError(f"claim {claim.key} finds no volume on node {node}")
        return VolumeChoice(claim.key, claim.uid, node, version=claim.version)

    def _outside(self, terms: tuple[AffinityTerm, ...] | None) -> Bools:
        outside = np.ones(len(self._records.labels), dtype=np.bool_)
        outside[self._records.labels.matching(terms)] = False
        return outside

    def _in_other_zones(self, volume: Volume) -> Bools:
        """Rows in other zones.

        A node without any zone label is in every zone; a volume's old label may match a node's new one.
        """
        other = np.zeros(len(self._records.labels), dtype=np.bool_)
        for label, values in volume.zones:
            same = AffinityTerm((Requirement(label, "In", values),))
            renamed = Requirement(ZONE_LABELS[label], "In", values)
            other |= self._outside((same, AffinityTerm((Requirement(label, "DoesNotExist"), renamed))))
        zoned = tuple(AffinityTerm((Requirement(label, "Exists"),)) for label in ZONE_LABELS)
        other[self._outside(zoned)] = False
        return other


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """ "namespace/name" of each claim, once."""
    return tuple(dict.fromkeys(f"{pod.namespace}/{name}" for name in pod.relations.claims))


def _named(pod: Pod) -> list[str]:
    """Keys of the claims that the pod names, without claims that are created for it."""
    return [f"{pod.namespace}/{name}" for name in pod.relations.claims if name not in pod.relations.ephemeral]


def _claims(claims: Iterable[Claim]) -> str:
    """`claim data (class fast)`"""
    return ", ".join(
        f"claim {claim.name}" + (f" (class {claim.storage_class})" if claim.storage_class else "") for claim in claims
    )


def _mark(found: Bytes, reason: Reason, rows: Bools) -> None:
    found[rows & (found == 0)] = reason
