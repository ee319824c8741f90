"""Volumes on the shelf: which are free, which are kept for whom, and which were promised to a claim but not given yet.

A promise (`assume`) holds until it is taken back (`forget`) or until the truth is known: a volume that names its claim,
a claim that names its node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dovetail.model.volumes import AVAILABLE, Claim, ClaimRef, Volume, VolumeChoice


class VolumeError(RuntimeError):
    """A volume was promised twice, or a choice asked for where there is none: a bug, never the user's fault."""


@dataclass(frozen=True, slots=True)
class VolumePromise:
    """Pods that share a claim promise the same thing several times."""

    claim: ClaimRef
    node: str
    times: int = 1


class Stock:
    def __init__(self) -> None:
        self.volumes: dict[str, Volume] = {}
        self._free: dict[str, dict[str, Volume]] = {}  # class -> name -> volume that nobody has
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
        """The claim itself says which volume it has, or where one is being made."""
        if claim.volume or claim.selected_node is not None:
            self._made_for.pop(claim.key, None)
        given = self._given_to.get(claim.key)
        if given is not None and claim.volume not in ("", given):  # the one it has says so itself, sooner or later
            del self._given[given], self._given_to[claim.key]

    # ---- questions ----------------------------------------------------------------------------------------------

    def promised_to(self, claim: Claim) -> str | None:
        """The node for which a volume of the claim is being made."""
        promise = self._made_for.get(claim.key)
        return promise.node if promise is not None and promise.claim.means(claim) else claim.selected_node

    def prebound(self, claim: Claim) -> list[Volume]:
        """Volumes that are the claim's already, or promised to it; by name."""
        kept = [volume for volume in self._kept.get(claim.key, {}).values() if _names(volume, claim)]
        given = self._given_to.get(claim.key)
        if given is not None and given in self.volumes and self._given[given].claim.means(claim):
            kept.append(self.volumes[given])
        fitting = (one for one in kept if one.storage_class == claim.storage_class and _has_room(one, claim))
        return sorted(fitting, key=lambda volume: volume.name)

    def candidates(self, claim: Claim) -> list[Volume]:
        """Volumes that could become the claim's, the smallest first."""
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
            if known is not None and replace(known, times=1) != promise:
                raise VolumeError(f"{key} is promised to {known.claim.key} on {known.node} already")
            shelf[key] = promise if known is None else replace(known, times=known.times + 1)
            if choice.volume:
                self._given_to[choice.claim] = choice.volume

    def forget(self, choices: Iterable[VolumeChoice]) -> None:
        """The inverse of `assume`; what became true, or was never assumed, stays as it is."""
        for choice in choices:
            shelf, key = self._place_of(choice)
            known = shelf.get(key)
            if known is None or replace(known, times=1) != _promise(choice):
                continue
            if known.times > 1:
                shelf[key] = replace(known, times=known.times - 1)
                continue
            del shelf[key]
            if choice.volume:
                del self._given_to[choice.claim]

    def promises(self) -> tuple[dict[str, VolumePromise], dict[str, str], dict[str, VolumePromise]]:
        """A copy, which `restore` understands."""
        return dict(self._given), dict(self._given_to), dict(self._made_for)

    def restore(self, promises: tuple[dict[str, VolumePromise], dict[str, str], dict[str, VolumePromise]]) -> None:
        self._given, self._given_to, self._made_for = promises

    def _place_of(self, choice: VolumeChoice) -> tuple[dict[str, VolumePromise], str]:
        return (self._given, choice.volume) if choice.volume else (self._made_for, choice.claim)


def _promise(choice: VolumeChoice) -> VolumePromise:
    """A volume is given whatever the node; one that is made is made for a node."""
    namespace, _, name = choice.claim.partition("/")
    return VolumePromise(ClaimRef(namespace, name, choice.claim_uid), "" if choice.volume else choice.node)


def _names(volume: Volume, claim: Claim) -> bool:
    return volume.claim_ref is not None and volume.claim_ref.means(claim)


def _has_room(volume: Volume, claim: Claim) -> bool:
    """What FindMatchingVolume demands of every volume, also of one that names the claim."""
    return (
        volume.capacity >= (claim.request or 0)
        and volume.mode == claim.mode
        and volume.attributes_class == claim.attributes_class
        and not volume.leaving
    )
