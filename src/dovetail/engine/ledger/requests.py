"""Pods in the form of the kernel: each distinct request is looked up once, and many pods become arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np

from dovetail.engine.kernel.build import profile_hooks
from dovetail.engine.kernel.state import FRESH, OWN, UNLIMITED, Batch
from dovetail.engine.ledger.intern import MOST_REMEMBERED, MOST_REMEMBERED_BYTES, NO_OWNER, Names, cards_taken
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.remembered import Remembered, most_for
from dovetail.engine.ledger.stream import Stream
from dovetail.model.pod import Pod, Profile, template_key, template_parts
from dovetail.policies.rows import Ints
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES


class Signature(NamedTuple):
    """What the kernel needs of a pod's request."""

    profile: Profile
    shape: int
    mask: int
    entries: int  # the number of cards that it gets
    draws: bool  # a policy of its profile draws random numbers, so nothing can be kept
    plain: bool  # at most one ask, and no NUMA binding
    line: int  # of its owner in rows.peers; NO_OWNER if the policy does not read it
    kept: tuple[object, ...]  # the objects of the key, so that no other object gets their ids


class Allowances(Protocol):
    """What quotas leave to a pod's namespace; engine/rights/quota.py implements it."""

    def apply_to(self, pod: Pod) -> bool: ...

    def allowance(self, pod: Pod, vendors: Names) -> Ints: ...


def unlimited(vendors: Names) -> Ints:
    return np.full((max(1, len(vendors)), 2), UNLIMITED, dtype=np.int64)


class Requests:
    """Turns pods into signatures and batches, with the ledger's numbers. Decides nothing."""

    def __init__(self, ledger: Ledger, quotas: Allowances, arguments: Mapping[str, Mapping[str, Any]]) -> None:
        self._ledger, self._quotas = ledger, quotas
        self.given = dict(arguments)
        self._args: dict[str, Ints] = {}  # node policy -> its arguments
        self._styles: dict[Profile, Ints] = {}
        self._signatures: Remembered[tuple[Any, ...], Signature] = Remembered(MOST_REMEMBERED, MOST_REMEMBERED_BYTES)
        self._profiles: dict[Profile, Profile] = {}  # equal profiles become one object
        self._single: dict[int, Batch] = {}  # id of a profile kept above -> a batch of one pod, used many times
        for name in self.given:
            if name not in NODE_POLICIES:
                raise ValueError(f"policyArguments.{name}: no such node policy; there is {', '.join(NODE_POLICIES)}")
            self.arguments(name)

    def signature(self, pod: Pod) -> Signature:
        counts_owner = NODE_POLICIES[pod.profile.node].counts_owner
        line = self._ledger.peers(self._ledger.owner(pod)) if counts_owner else NO_OWNER
        key = (template_key(pod), id(pod.node_rules), line, self._ledger.places.signals.sorts)
        found = self._signatures.get(key)
        if found is None:
            found = self._new_signature(pod, line)
            self._signatures.remember(key, found, found.kept)
        return found

    def in_force(self, profile: Profile) -> Profile:
        """The profile; with its policy's fallback while no node has a measurement that the policy needs."""
        policy = NODE_POLICIES[profile.node]
        if policy.needs and not policy.needs & self._ledger.places.signals.sorts:
            return replace(profile, node=policy.fallback)
        return profile

    def batch(self, pods: Sequence[Pod], signatures: Sequence[Signature], needs: Sequence[tuple[int, int]]) -> Batch:
        """Pods of one profile. `needs` has (pods, how many of them must be placed) for each group."""
        ledger, vendors = self._ledger, self._ledger.intern.vendors
        at: dict[int, int] = {}  # id of a signature -> its place among the distinct ones
        kinds = np.array([at.setdefault(id(signature), len(at)) for signature in signatures], dtype=np.int64)
        distinct = list({id(signature): signature for signature in signatures}.values())
        owners = np.array([ledger.owner(pod) if pod.owner else NO_OWNER for pod in pods], dtype=np.int64)
        bounds = np.array(needs, dtype=np.int64)
        under_quota = self._quotas.apply_to(pods[0])
        quota = self._quotas.allowance(pods[0], vendors) if under_quota else unlimited(vendors)
        draws = [self.draw(pod.key) for pod in pods] if distinct[0].draws else None
        return self._batch(
            distinct, kinds, owners, draws, bounds[:, 0].cumsum(), bounds[:, 1].copy(), quota, under_quota
        )

    def stream_batch(self, stream: Stream, signatures: Sequence[Signature]) -> Batch:
        """A stream whose templates have these signatures, all of one profile and without a quota."""
        kinds, templates, owner = stream.kinds, stream.templates, self._ledger.owner
        owners = np.array([owner(pod) if pod.owner else NO_OWNER for pod in templates], dtype=np.int64)[kinds]
        draws = None
        if signatures[0].draws:
            spaces = [pod.namespace for pod in templates]
            draws = [self.draw(f"{spaces[kind]}/{uid}") for kind, uid in zip(kinds.tolist(), stream.uids, strict=True)]
        ends = np.arange(1, len(stream) + 1)
        quota = unlimited(self._ledger.intern.vendors)
        return self._batch(signatures, kinds, owners, draws, ends, np.ones_like(ends), quota, fresh=False)

    def _batch(
        self,
        signatures: Sequence[Signature],
        kinds: Ints,
        owners: Ints,
        draws: Sequence[int] | None,
        group_end: Ints,
        group_need: Ints,
        quota: Ints,
        fresh: bool,
    ) -> Batch:
        """The arrays. Pod n has the request `signatures[kinds[n]]`."""
        profile, count = signatures[0].profile, len(kinds)
        lines = self._lines(signatures, fresh)
        cards = lines[4][kinds]
        ends = cards.cumsum()
        return Batch(
            shape=lines[0][kinds],
            mask=lines[1][kinds],
            scores=lines[2][kinds],
            vector=lines[3][kinds],
            owner=owners,
            draw=np.zeros(count, dtype=np.int64) if draws is None else np.array(draws, dtype=np.int64),
            group_end=group_end,
            group_need=group_need,
            args=self.arguments(profile.node),
            style=self._style(profile),
            quota=quota,
            results=np.empty((count, 3), dtype=np.int64),
            taken_from=ends - cards,
            taken=np.zeros((int(ends[-1]), 4), dtype=np.int64),
        )

    def batch_of_one(self, pod: Pod, signature: Signature) -> Batch:
        """A batch for one pod without a quota, the usual event: overwrites the arrays of the last one."""
        batch = self._of_one(pod, signature)
        batch.scores[0], batch.vector[0] = self._kept(signature)
        batch.mask[0] = signature.mask
        return batch

    def own_batch(self, pod: Pod, signature: Signature) -> Batch:
        """A batch for one pod by the mask that was written for it alone: nothing is kept of its scores.

        Without a quota, it overwrites the arrays of the last batch of one pod.
        """
        limited = self._quotas.apply_to(pod)
        batch = self.batch([pod], [signature], [(1, 1)]) if limited else self._of_one(pod, signature)
        batch.scores[0] = batch.vector[0] = FRESH
        batch.mask[0] = OWN
        return batch

    def _of_one(self, pod: Pod, signature: Signature) -> Batch:
        """The batch of one pod, used again and again; mask and scores are still those of the pod before."""
        profile, vendors = id(signature.profile), self._ledger.intern.vendors.size
        batch = self._single.get(profile)
        if batch is None or len(batch.taken) < signature.entries or len(batch.quota) < vendors:
            fresh = self.batch([pod], [signature], [(1, 1)])
            room = np.zeros((max(16, signature.entries), 4), dtype=np.int64)
            batch = self._single[profile] = fresh._replace(taken=room)
        batch.shape[0] = signature.shape
        batch.owner[0] = self._ledger.owner(pod) if pod.owner else NO_OWNER
        batch.draw[0] = self.draw(pod.key) if signature.draws else 0
        return batch

    def draw(self, key: str) -> int:
        """The pod's number for policies that draw random numbers: the same at every try, in any order."""
        return crc32(key.encode())

    def arguments(self, name: str) -> Ints:
        """A node policy's arguments in the form of the kernel."""
        if name not in self._args:
            try:
                flat = NODE_POLICIES[name].arguments(self.given.get(name, {}), self._ledger.intern.pin_column)
            except ValueError as error:
                raise ValueError(f"policyArguments.{name}.{error}") from None
            self._args[name] = np.array([0, *flat], dtype=np.int64)
            self._ledger.storage.fit_columns()
        return self._args[name]

    def fit(self, pods: int) -> None:
        """Remember no more requests than are worth it while so many pods exist."""
        for kept in (self._signatures, self._ledger.intern.templates):
            kept.fit(most_for(pods, MOST_REMEMBERED))

    def forget(self) -> None:
        """Look everything up again: numbers of shapes and classes may have another meaning from now on."""
        for kept in (self._signatures, self._profiles, self._styles, self._single):
            kept.clear()

    def _new_signature(self, pod: Pod, line: int) -> Signature:
        ledger = self._ledger
        profile = self.in_force(pod.profile)
        profile = self._profiles.setdefault(profile, profile)
        node = NODE_POLICIES[profile.node]
        return Signature(
            profile,
            ledger.intern.shape(pod, line),
            ledger.places.mask(pod.node_rules),
            cards_taken(pod),
            node.draws or any(DEVICE_POLICIES[name].draws for name in profile.device),
            sum(len(c.asks) for c in pod.containers) <= 1 and not any(rules.numa_bind for rules in pod.device_rules),
            line,
            (*template_parts(pod), pod.node_rules),
        )

    def _kept(self, signature: Signature, fresh: bool = False) -> tuple[int, int]:
        """The numbers of the scores and of the candidates kept for this request."""
        if fresh or signature.draws:
            return FRESH, FRESH
        profile, room = signature.profile, self._ledger.vectors
        whole: tuple[object, ...] = (profile.node, profile.device, signature.shape, signature.mask)
        if signature.line != NO_OWNER:  # the line may have belonged to another owner
            whole = (*whole, self._ledger.storage.peers_since[signature.line])
        policy = NODE_POLICIES[profile.node]
        if policy.sees_request and policy.offer is None:
            slot = room.slot(whole)
            return slot, slot
        return room.slot(profile.node), room.slot(whole)

    def _lines(self, signatures: Sequence[Signature], fresh: bool) -> Ints:
        """[5, request]: shape, mask, scores, candidates, cards.

        If there are too many requests, no scores are kept for them.
        """
        fresh = fresh or len(signatures) + 2 >= self._ledger.vectors.limit
        lines = [(s.shape, s.mask, *self._kept(s, fresh), s.entries) for s in signatures]
        return np.array(lines, dtype=np.int64).T.copy()

    def _style(self, profile: Profile) -> Ints:
        if profile not in self._styles:
            self._styles[profile] = profile_hooks(profile)[1]
        return self._styles[profile]
