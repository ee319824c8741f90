"""Pods as the kernel wants them: each distinct request looked up once, many pods laid out as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from dovetail.engine.build import profile_hooks
from dovetail.engine.intern import NOBODY
from dovetail.engine.ledger import Ledger
from dovetail.engine.quota import Quotas, unlimited
from dovetail.engine.state import FRESH, Batch
from dovetail.model.pod import Pod, Profile
from dovetail.policies.rows import Ints
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

MOST_REMEMBERED = 200_000


class Signature(NamedTuple):
    """What the kernel needs to know of a pod's request."""

    profile: Profile
    shape: int
    mask: int
    entries: int  # cards it is given
    draws: bool  # a policy of its profile rolls dice, so nothing can be kept
    kept: tuple[object, ...]  # the very objects the key is made of, so that their ids stay theirs


class Requests:
    """Turns pods into signatures and batches. Knows the ledger's numbering, decides nothing."""

    def __init__(self, ledger: Ledger, quotas: Quotas, arguments: Mapping[str, Mapping[str, Any]]) -> None:
        self._ledger, self._quotas = ledger, quotas
        self.given = dict(arguments)
        self._args: dict[str, Ints] = {}  # node policy -> its arguments
        self._styles: dict[Profile, Ints] = {}
        self._signatures: dict[tuple[int, ...], Signature] = {}
        self._profiles: dict[Profile, Profile] = {}  # equal profiles become one object
        self._single: dict[Profile, Batch] = {}  # profile -> a batch of one pod, used again and again
        for name in self.given:
            if name not in NODE_POLICIES:
                raise ValueError(f"policyArguments.{name}: no such node policy; there is {', '.join(NODE_POLICIES)}")
            self.arguments(name)

    def signature(self, pod: Pod) -> Signature:
        """Replicas share the objects of their template, so their ids are the quickest key there is."""
        profile = pod.profile
        key = (
            id(pod.resources),
            id(pod.containers),
            id(pod.device_rules),
            id(pod.node_rules),
            id(profile),
            pod.scored_cpu_milli,
            pod.scored_memory,
            self._ledger.owner(pod) if NODE_POLICIES[profile.node].counts_owner else NOBODY,
        )
        found = self._signatures.get(key)
        if found is None:
            if len(self._signatures) > MOST_REMEMBERED:
                self._signatures.clear()
            found = self._signatures[key] = self._new_signature(pod)
        return found

    def batch(
        self, pods: Sequence[Pod], signatures: Sequence[Signature], needs: Sequence[tuple[int, int]], entries: int
    ) -> Batch:
        """Pods of one profile. `needs` has (pods, how many of them must be placed) per group."""
        ledger, profile, vendors = self._ledger, signatures[0].profile, self._ledger.intern.vendors
        under_quota, draws = self._quotas.apply_to(pods[0]), signatures[0].draws
        lines = self._lines(signatures, fresh=under_quota)
        cards = lines[:, 4]
        bounds = np.array(needs, dtype=np.int64)
        return Batch(
            shape=lines[:, 0].copy(),
            mask=lines[:, 1].copy(),
            scores=lines[:, 2].copy(),
            vector=lines[:, 3].copy(),
            owner=np.array([ledger.owner(pod) if pod.owner else NOBODY for pod in pods], dtype=np.int64),
            draw=np.array([self.draw(pod) if draws else 0 for pod in pods], dtype=np.int64),
            group_end=bounds[:, 0].cumsum(),
            group_need=bounds[:, 1].copy(),
            args=self.arguments(profile.node),
            style=self._style(profile),
            quota=self._quotas.left(pods[0], vendors) if under_quota else unlimited(vendors),
            results=np.empty((len(pods), 3), dtype=np.int64),
            taken_from=cards.cumsum() - cards,
            taken=np.zeros((entries, 4), dtype=np.int64),
        )

    def batch_of_one(self, pod: Pod, signature: Signature) -> Batch:
        """The usual event, of a pod under no quota: the arrays of the last one, written over."""
        profile, vendors = signature.profile, len(self._ledger.intern.vendors)
        batch = self._single.get(profile)
        if batch is None or len(batch.taken) < signature.entries or len(batch.quota) < vendors:
            batch = self._single[profile] = self.batch([pod], [signature], [(1, 1)], max(16, signature.entries))
        else:
            batch.scores[0], batch.vector[0] = self._kept(signature)
            batch.shape[0], batch.mask[0] = signature.shape, signature.mask
            batch.owner[0] = self._ledger.owner(pod) if pod.owner else NOBODY
            batch.draw[0] = self.draw(pod) if signature.draws else 0
        return batch

    def draw(self, pod: Pod) -> int:
        """The pod's own number for policies that roll dice: the same at every try, in any order."""
        return crc32(pod.key.encode())

    def arguments(self, name: str) -> Ints:
        """A node policy's arguments as the kernel wants them."""
        if name not in self._args:
            try:
                flat = NODE_POLICIES[name].arguments(self.given.get(name, {}), self._ledger.intern.columns)
            except ValueError as error:
                raise ValueError(f"policyArguments.{name}.{error}") from None
            self._args[name] = np.array([0, *flat], dtype=np.int64)
            self._ledger.storage.fit_columns()
        return self._args[name]

    def _new_signature(self, pod: Pod) -> Signature:
        ledger = self._ledger
        profile = self._profiles.setdefault(pod.profile, pod.profile)
        node = NODE_POLICIES[profile.node]
        return Signature(
            profile,
            ledger.intern.shape(pod, ledger.peers(ledger.owner(pod)) if node.counts_owner else NOBODY),
            ledger.mask(pod.node_rules),
            sum(ask.count for container in pod.containers for ask in container.asks),
            node.draws or any(DEVICE_POLICIES[name].draws for name in profile.device),
            (pod.resources, pod.containers, pod.device_rules, pod.node_rules, pod.profile),
        )

    def _kept(self, signature: Signature, fresh: bool = False) -> tuple[int, int]:
        """The numbers of the scores and of the candidates kept for this request."""
        if fresh or signature.draws:
            return FRESH, FRESH
        profile, room = signature.profile, self._ledger.vectors
        whole = (profile.node, profile.device, signature.shape, signature.mask)
        if NODE_POLICIES[profile.node].sees_request:
            slot = room.slot(whole)
            return slot, slot
        return room.slot(profile.node), room.slot(whole)

    def _lines(self, signatures: Sequence[Signature], fresh: bool) -> Ints:
        """[pod, 5]: shape, mask, scores, candidates and cards; more distinct requests than there is room for are
        scored afresh."""
        distinct = {id(signature): signature for signature in signatures}
        fresh = fresh or len(distinct) + 2 >= self._ledger.vectors.limit
        line_of: dict[int, int] = {}
        lines: list[tuple[int, ...]] = []
        for key, signature in distinct.items():
            line_of[key] = len(lines)
            lines.append((signature.shape, signature.mask, *self._kept(signature, fresh), signature.entries))
        table = np.array(lines, dtype=np.int64)
        return table[np.array([line_of[id(signature)] for signature in signatures], dtype=np.int64)]

    def _style(self, profile: Profile) -> Ints:
        if profile not in self._styles:
            self._styles[profile] = profile_hooks(profile)[1]
        return self._styles[profile]
