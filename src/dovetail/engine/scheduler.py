"""The scheduler: events in, effects out. `place` decides many groups in one call, `handle` is the same with one."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from dovetail.engine.build import Kernel, Lens, builder
from dovetail.engine.intern import NOBODY, Interner
from dovetail.engine.ledger import Ledger
from dovetail.engine.observe import observe
from dovetail.engine.queue import ALWAYS, WaitingRoom
from dovetail.engine.quota import Quotas, unlimited
from dovetail.engine.state import NONE, Batch
from dovetail.engine.vectors import FRESH
from dovetail.model.decision import Decision
from dovetail.model.events import (
    Bind,
    Effect,
    Event,
    GroupArrived,
    NodeChanged,
    NodeGone,
    PodBound,
    PodGone,
    PodObserved,
    TimePassed,
    Wait,
    Warn,
)
from dovetail.model.pod import Group, Pod, Profile, Quota, RunningPod
from dovetail.model.reason import Reason
from dovetail.policies.rows import Ints
from dovetail.policies.table import NODE_POLICIES

COMPILE_FROM = 100_000  # rows × pods; below, interpreting is done before numba is imported
MODES = ("auto", "interpreted", "compiled")
HOLD_SECONDS = 300.0


class Signature(NamedTuple):
    """What the kernel needs to know of a pod's request, looked up once per distinct request."""

    profile: Profile
    shape: int
    mask: int
    entries: int  # cards it may be given
    counts_owner: bool
    draws: bool
    kept: tuple[object, ...]  # the very objects the key is made of, so that their ids stay theirs


class Scheduler:
    """One cluster, one ledger. The simulator, the live scheduler and what-if all drive this class."""

    def __init__(
        self,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        quotas: Sequence[Quota] = (),
        mode: str = "auto",
        device_resources: Collection[str] = ("nvidia.com/gpu",),
        cache: bool = False,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode: expected {', '.join(MODES)}, got {mode!r}")
        self._mode = mode
        self._interpreter, self._compiler = builder(False), builder(True, cache)
        self._builder = self._compiler if mode == "compiled" else self._interpreter
        self.intern = Interner()
        self.ledger = Ledger(self._builder.book_keeping(), self.intern)
        self.ledger.count_by_cards(device_resources)
        self.quotas = Quotas(quotas, self.ledger)
        self.waiting = WaitingRoom()
        self._arguments = dict(arguments or {})
        self._args: dict[str, Ints] = {}
        self._signatures: dict[tuple[int, ...], Signature] = {}
        self._profiles: dict[Profile, Profile] = {}  # equal profiles become one object
        self._single: dict[Profile, Batch] = {}  # profile -> a batch of one pod, used again and again
        self._work = 0  # rows × pods so far
        for name in self._arguments:
            if name not in NODE_POLICIES:
                raise ValueError(f"policyArguments.{name}: no such node policy; there is {', '.join(NODE_POLICIES)}")
            self.policy_args(name)

    # ---- events -------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """The one door: everything that happens comes in here, everything to be done goes out."""
        match event:
            case GroupArrived(at, group):
                return tuple(self._arrive(at, group))
            case PodObserved(at, running):
                return self._observe(at, running)
            case PodBound(_, uid):
                self.ledger.confirm(uid)
                return ()
            case PodGone(at, uid):
                rest = self.waiting.drop_pod(uid)
                if rest is not None:
                    return self._offer(at, [rest])
                row = self.ledger.row_holding(uid)
                return self.retry(at, (row,)) if self.ledger.release(uid) else ()
            case NodeChanged(at, node):
                self.ledger.set_node(node)
                return self.retry(at, (self.ledger.row_of[node.name],))
            case NodeGone(_, name):
                self.ledger.remove_node(name)
                return ()
            case TimePassed(at):
                return self._expire(at)

    def _observe(self, at: float, running: RunningPod) -> tuple[Effect, ...]:
        """It waits no more, whoever placed it; and what it held until now and holds no longer may help others."""
        uid = running.pod.uid
        rest = self.waiting.drop_pod(uid, runs=1)
        row, before = self.ledger.row_holding(uid), self.ledger.held_shares(uid)
        warnings = tuple(Warn(running.pod.key, text) for text in observe(self, running))
        if rest is not None:
            return (*warnings, *self._offer(at, [rest]))
        same = row == self.ledger.row_holding(uid) and before == self.ledger.held_shares(uid)
        return warnings if row == NONE or same else (*warnings, *self.retry(at, (row,)))

    def retry(self, at: float, rows: Sequence[int]) -> tuple[Effect, ...]:
        """Offer the waiting groups what these rows have now, in their order; those that still wait say nothing new."""
        return self._offer(at, self._helped(rows)) if len(self.waiting) else ()

    def _offer(self, at: float, groups: Sequence[Group]) -> tuple[Effect, ...]:
        effects: list[Effect] = []
        for group in sorted(groups, key=lambda group: group.order):
            effects += [effect for effect in self._arrive(at, group) if isinstance(effect, Bind)]
        return tuple(effects)

    def _helped(self, rows: Sequence[int]) -> list[Group]:
        """Groups that one of the rows could take, and those for which that cannot be said of a single row."""
        helped = self.waiting.asking(ALWAYS)
        for key in self.waiting.requests():
            if key is not ALWAYS:
                groups = self.waiting.asking(key)
                if self._fits_one_of(groups[0].pods[0], rows):
                    helped += groups
        return helped

    def _fits_one_of(self, pod: Pod, rows: Sequence[int]) -> bool:
        signature = self._signature(pod)
        kernel, batch = self.kernel(signature.profile), self._batch_of_one(pod, signature)
        state = self.ledger.state()
        return any(kernel.fits_row(state, batch, row) for row in rows)

    def _arrive(self, at: float, group: Group) -> list[Effect]:
        decisions = self.place((group,), at)
        late = tuple([pod for pod, d in zip(group.pods, decisions, strict=True) if d.node is None])
        if late:
            placed = len(group.pods) - len(late)
            self._wait(group if not placed else replace(group, pods=late, running=group.running + placed))
        else:
            self.waiting.remove(group.name)
        return [
            Bind(pod, decision) if decision.node is not None else Wait(pod, decision)
            for pod, decision in zip(group.pods, decisions, strict=True)
        ]

    def _wait(self, group: Group) -> None:
        key: Hashable = ALWAYS
        if len(group.pods) == 1 and not self._needs_care(group):
            signature = self._signature(group.pods[0])
            key = (signature.profile, signature.shape, signature.mask)
        self.waiting.add(group, key)

    def _expire(self, at: float) -> tuple[Effect, ...]:
        effects: list[Effect] = []
        rows = []
        for uid in self.ledger.expired(at):
            effects.append(Warn(self.ledger.pods[uid].pod.key, "its reservation was never confirmed and is dropped"))
            rows.append(self.ledger.row_holding(uid))
            self.ledger.release(uid)
        return (*effects, *self.retry(at, rows)) if effects else ()

    # ---- placing ------------------------------------------------------------------------------------------------

    def place(self, groups: Sequence[Group], at: float = 0.0) -> list[Decision]:
        """Decide groups in the order given: one decision per pod, all booked as reservations."""
        self._maybe_compile(sum(len(group.pods) for group in groups))
        decisions: list[Decision] = []
        run: list[tuple[Group, list[Signature]]] = []  # consecutive groups that one kernel call can place
        for group in groups:
            care = self._needs_care(group)
            signatures = [] if care else [self._signature(pod) for pod in group.pods]
            if care or (len(signatures) > 1 and len({id(s.profile) for s in signatures}) > 1):
                decisions += self._place_run(run, at) + self._place_with_care(group, at)
                run = []
                continue
            if run and run[0][1][0].profile is not signatures[0].profile:
                decisions += self._place_run(run, at)
                run = []
            run.append((group, signatures))
        return decisions + self._place_run(run, at)

    def kernel(self, profile: Profile) -> Kernel:
        """The profile's kernel, for the mode in force."""
        return self._builder.kernel(profile)

    def lens(self, profile: Profile) -> Lens:
        """The same functions without numba: for looking at single nodes."""
        return self._interpreter.lens(profile)

    def signature(self, pod: Pod) -> Signature:
        return self._signature(pod)

    def batch(self, pods: Sequence[Pod], needs: Sequence[tuple[int, int]]) -> Batch:
        """Pods of one profile as arrays. `needs` has (pods, how many of them must be placed) per group."""
        signatures = [self._signature(pod) for pod in pods]
        return self._batch(pods, signatures, needs, sum(signature.entries for signature in signatures))

    def _needs_care(self, group: Group) -> bool:
        """A group that a plain kernel call cannot serve: refused pods, quotas, or too few members."""
        pods = group.pods
        if len(pods) == 1:  # by far the most
            return pods[0].refusal is not None or self.quotas.apply_to(pods[0]) or group.minimum - group.running > 1
        if len(pods) + group.running < group.minimum:
            return True
        return any(pod.refusal is not None or self.quotas.apply_to(pod) for pod in pods)

    def _place_run(self, run: list[tuple[Group, list[Signature]]], at: float) -> list[Decision]:
        if not run:
            return []
        pods = [pod for group, _ in run for pod in group.pods]
        signatures = [signature for _, found in run for signature in found]
        needs = [(len(group.pods), group.minimum - group.running) for group, _ in run]
        longest = max(len(group.pods) for group, _ in run)
        return self._run_kernel(pods, signatures, needs, longest, at)

    def _run_kernel(
        self,
        pods: Sequence[Pod],
        signatures: Sequence[Signature],
        needs: Sequence[tuple[int, int]],
        longest: int,
        at: float,
    ) -> list[Decision]:
        ledger = self.ledger
        entries = sum([signature.entries for signature in signatures])
        ledger.make_room(len(pods), entries, max(longest, len(pods)))
        alone = len(pods) == 1 and not self.quotas.apply_to(pods[0])
        batch = self._batch_of_one(pods[0], signatures[0]) if alone else self._batch(pods, signatures, needs, entries)
        self.kernel(signatures[0].profile).place_groups(ledger.state(), batch)
        expires, generation, names = at + HOLD_SECONDS, ledger.generation, ledger.nodes
        taken, decisions, start = batch.taken.tolist(), [], 0
        for pod, signature, (row, reason, slot) in zip(pods, signatures, batch.results.tolist(), strict=True):
            end = start + signature.entries
            if row == NONE:
                decisions.append(Decision(pod.uid, None, (), Reason(reason), generation))
            else:
                shares = ledger.adopt(pod, slot, row, taken[start:end], expires)
                decisions.append(Decision(pod.uid, names[row].name, shares, Reason.OK, generation))
            start = end
        return decisions

    def _place_with_care(self, group: Group, at: float) -> list[Decision]:
        """One pod after another in a transaction, each held against its refusal and quotas first."""
        if len(group.pods) + group.running < group.minimum:
            return [self._refused(pod, Reason.GROUP_INCOMPLETE) for pod in group.pods]
        with self.ledger.transaction() as transaction:
            decisions = [self._place_alone(pod, at) for pod in group.pods]
            if sum(decision.placed for decision in decisions) >= group.minimum - group.running:
                transaction.commit()
                return decisions
        return [
            self._refused(p, d.reason or Reason.GROUP_NOT_PLACED) for p, d in zip(group.pods, decisions, strict=True)
        ]

    def _place_alone(self, pod: Pod, at: float) -> Decision:
        if pod.refusal is not None:
            return self._refused(pod, pod.refusal.reason)
        if self.quotas.refusal(pod) is not None:
            return self._refused(pod, Reason.QUOTA)
        return self._run_kernel([pod], [self._signature(pod)], [(1, 1)], 1, at)[0]

    def _refused(self, pod: Pod, reason: Reason) -> Decision:
        return Decision(pod.uid, None, (), reason, self.ledger.generation)

    def _batch(
        self,
        pods: Sequence[Pod],
        signatures: Sequence[Signature],
        needs: Sequence[tuple[int, int]],
        entries: int,
    ) -> Batch:
        count, ledger, signature = len(pods), self.ledger, signatures[0]
        profile = signature.profile
        under_quota = self.quotas.apply_to(pods[0])
        entries_each = np.array([s.entries for s in signatures], dtype=np.int64)
        bounds = np.array(needs, dtype=np.int64)
        return Batch(
            shape=np.array([s.shape for s in signatures], dtype=np.int64),
            mask=np.array([s.mask for s in signatures], dtype=np.int64),
            vector=self._vectors(profile, signatures, fresh=signature.draws or under_quota),
            owner=np.array([ledger.owner(pod) if pod.owner else NOBODY for pod in pods], dtype=np.int64),
            draw=np.array([self.draw(pod) for pod in pods] if signature.draws else [0] * count, dtype=np.int64),
            group_end=bounds[:, 0].cumsum(),
            group_need=bounds[:, 1].copy(),
            args=self.policy_args(profile.node),
            style=self.kernel(profile).style,
            quota=self.quotas.left(pods[0], self.intern.vendors) if under_quota else unlimited(self.intern.vendors),
            results=np.empty((count, 3), dtype=np.int64),
            taken_from=entries_each.cumsum() - entries_each,
            taken=np.zeros((entries, 4), dtype=np.int64),
        )

    def _batch_of_one(self, pod: Pod, signature: Signature) -> Batch:
        """The usual event: the arrays of the last one, written over."""
        profile, vendors = signature.profile, len(self.intern.vendors)
        batch = self._single.get(profile)
        if batch is None or len(batch.taken) < signature.entries or len(batch.quota) < vendors:
            batch = self._single[profile] = self._batch([pod], [signature], [(1, 1)], max(16, signature.entries))
        else:
            key = (profile.node, profile.device, signature.shape, signature.mask)
            batch.vector[0] = FRESH if signature.draws else self.ledger.vectors.slot(key)
            batch.shape[0], batch.mask[0] = signature.shape, signature.mask
            batch.owner[0] = self.ledger.owner(pod) if pod.owner else NOBODY
            batch.draw[0] = self.draw(pod) if signature.draws else 0
        return batch

    def _vectors(self, profile: Profile, signatures: Sequence[Signature], fresh: bool) -> Ints:
        """A vector per distinct request; more of them than there is room for are scored afresh."""
        distinct = {id(signature): signature for signature in signatures}
        room = self.ledger.vectors
        if fresh or len(distinct) >= room.limit:
            return np.full(len(signatures), FRESH, dtype=np.int64)
        slots = {key: room.slot((profile.node, profile.device, s.shape, s.mask)) for key, s in distinct.items()}
        return np.array([slots[id(signature)] for signature in signatures], dtype=np.int64)

    def _signature(self, pod: Pod) -> Signature:
        """Replicas share the objects of their template, so their ids are the quickest key there is."""
        profile = pod.profile
        counts_owner = NODE_POLICIES[profile.node].counts_owner
        key = (
            id(pod.resources),
            id(pod.containers),
            id(pod.device_rules),
            id(pod.node_rules),
            id(profile),
            pod.scored_cpu_milli,
            pod.scored_memory,
            self.ledger.owner(pod) if counts_owner else NOBODY,
        )
        found = self._signatures.get(key)
        if found is None:
            if len(self._signatures) > 200_000:
                self._signatures.clear()
            found = self._signatures[key] = self._new_signature(pod, counts_owner)
        return found

    def _new_signature(self, pod: Pod, counts_owner: bool) -> Signature:
        ledger = self.ledger
        peers = ledger.peers(ledger.owner(pod)) if counts_owner else NOBODY
        profile = self._profiles.setdefault(pod.profile, pod.profile)
        return Signature(
            profile,
            self.intern.shape(pod, peers),
            ledger.mask(pod.node_rules),
            sum(ask.count for container in pod.containers for ask in container.asks),
            counts_owner,
            NODE_POLICIES[profile.node].draws or "random" in profile.device,
            (pod.resources, pod.containers, pod.device_rules, pod.node_rules, pod.profile),
        )

    def draw(self, pod: Pod) -> int:
        """The pod's own number for policies that roll dice: the same at every try, in any order."""
        return crc32(pod.key.encode())

    def policy_args(self, name: str) -> Ints:
        """A node policy's arguments as the kernel wants them."""
        if name not in self._args:
            try:
                flat = NODE_POLICIES[name].arguments(self._arguments.get(name, {}), self.intern.columns)
            except ValueError as error:
                raise ValueError(f"policyArguments.{name}.{error}") from None
            self._args[name] = np.array([0, *flat], dtype=np.int64)
        return self._args[name]

    def _maybe_compile(self, pods: int) -> None:
        if self._mode == "auto" and self._builder is self._interpreter:
            self._work += pods * len(self.ledger.nodes)
            if self._work >= COMPILE_FROM:
                self._builder = self._compiler
                self.ledger.use(self._compiler.book_keeping())
