"""Persistent volumes: which are free, which name a claim, and which are promised to a claim that is not bound yet.

A promise (`assume`) holds until it is taken back (`forget`), or until the API server confirms it: a volume that names
its claim, or a claim that names its node.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.model.checkpoint import VolumePromise
from dovetail.model.volumes import AVAILABLE, Claim, ClaimRef, Volume, VolumeChoice


class VolumeError(RuntimeError):
    """A volume was promised twice, or a choice was requested that does not exist: a bug, never a user's error."""


class Stock:
    def __init__(self) -> None:
        self.volumes: dict[str, Volume] = {}
        self._free: dict[str, dict[str, Volume]] = {}  # class -> name -> volume without a claim
        self._kept: dict[str, dict[str, Volume]] = {}  # claim -> name -> volume that names it
        self._given: dict[str, VolumePromise] = {}  # volume -> promise
        self._given_to: dict[str, str] = {}  # claim -> volume
        self._made_for: dict[str, VolumePromise] = {}  # claim -> promise

    # ---- facts --------------------------------------------------------------------------------------------------

    def set(self, volume: Volume) -> None:
        self.drop(volume.name, keep_promise=volume.claim_ref is None)
        self.volumes[volume.name] = volume
        if volume.claim_ref is not None:
            self._kept.setdefault(volume.claim_ref.key, {})[volume.name] = volume
        elif volume.phase == AVAILABLE:
            self._free.setdefault(volume.storage_class, {})[volume.name] = volume

    def drop(self, name: str, keep_promise: bool = False) -> None:
        volume = self.volumes.pop(name, None)
        if volume is not None:
            shelf = self._free if volume.claim_ref is None else self._kept
            key = volume.storage_class if volume.claim_ref is None else volume.claim_ref.key
            shelf.get(key, {}).pop(name, None)
        promise = None if keep_promise else self._given.pop(name, None)
        if promise is not None:
            self._given_to.pop(promise.claim.key, None)

    def settle(self, claim: Claim) -> None:
        """Drop promises that the claim's own volume or node replaces."""
        if claim.volume or claim.selected_node is not None:
            self._made_for.pop(claim.key, None)
        given = self._given_to.get(claim.key)
        if given is not None and claim.volume not in ("", given):  # the volume that it has will name the claim itself
            del self._given[given], self._given_to[claim.key]

    # ---- questions ----------------------------------------------------------------------------------------------

    def promised_to(self, claim: Claim) -> str | None:
        """The node for which a volume of the claim is being created."""
        promise = self._made_for.get(claim.key)
        return promise.node if promise is not None and promise.claim.means(claim) else claim.selected_node

    def prebound(self, claim: Claim) -> list[Volume]:
        """Volumes that name the claim already, or are promised to it; by name."""
        kept = [volume for volume in self._kept.get(claim.key, {}).values() if _names(volume, claim)]
        given = self._given_to.get(claim.key)
        if given is not None and given in self.volumes and self._given[given].claim.means(claim):
            kept.append(self.volumes[given])
        fitting = (one for one in kept if one.storage_class == claim.storage_class and _has_room(one, claim))
        return sorted(fitting, key=lambda volume: volume.name)

    def candidates(self, claim: Claim) -> list[Volume]:
        """Volumes that could be bound to the claim, smallest first."""
        fitting = [
            volume
            for volume in self._free.get(claim.storage_class, {}).values()
            if volume.name not in self._given
            and _has_room(volume, claim)
            and all(mode in volume.access_modes for mode in claim.access_modes)
            and (claim.selector is None or claim.selector.matches(volume.labels))
        ]
        return sorted(fitting, key=lambda volume: (volume.capacity, volume.name))

    # ---- promises -----------------------------------------------------------------------------------------------

    def assume(self, choices: Iterable[VolumeChoice]) -> None:
        for choice in choices:
            shelf, key = self._place_of(choice)
            promise, known = _promise(choice), shelf.get(key)
            if known is not None and known._replace(times=1) != promise:
                raise VolumeError(f"{key} is promised to {known.claim.key} on {known.node} already")
            shelf[key] = promise if known is None else known._replace(times=known.times + 1)
            if choice.volume:
                self._given_to[choice.claim] = choice.volume

    def forget(self, choices: Iterable[VolumeChoice]) -> None:
        """Undo `assume`. A promise that was confirmed, or never made, is not changed."""
        for choice in choices:
            shelf, key = self._place_of(choice)
            known = shelf.get(key)
            if known is None or known._replace(times=1) != _promise(choice):
                continue
            if known.times > 1:
                shelf[key] = known._replace(times=known.times - 1)
                continue
            del shelf[key]
            if choice.volume:
                del self._given_to[choice.claim]

    def promises(self) -> tuple[dict[str, VolumePromise], dict[str, str], dict[str, VolumePromise]]:
        """A copy of all promises, for `restore`."""
        return dict(self._given), dict(self._given_to), dict(self._made_for)

    def restore(self, promises: tuple[dict[str, VolumePromise], dict[str, str], dict[str, VolumePromise]]) -> None:
        self._given, self._given_to, self._made_for = promises

    def _place_of(self, choice: VolumeChoice) -> tuple[dict[str, VolumePromise], str]:
        return (self._given, choice.volume) if choice.volume else (self._made_for, choice.claim)


def _promise(choice: VolumeChoice) -> VolumePromise:
    """The promise of a choice. An existing volume is promised for any node; a new one is created for one node."""
    namespace, _, name = choice.claim.partition("/")
    return VolumePromise(ClaimRef(namespace, name, choice.claim_uid), "" if choice.volume else choice.node)


def _names(volume: Volume, claim: Claim) -> bool:
    return volume.claim_ref is not None and volume.claim_ref.means(claim)


def _has_room(volume: Volume, claim: Claim) -> bool:
    """What FindMatchingVolume requires of every volume, also of one that names the claim."""
    return (
        volume.capacity >= (claim.request or 0)
        and volume.mode == claim.mode
        and volume.attributes_class == claim.attributes_class
        and not volume.leaving
    )
