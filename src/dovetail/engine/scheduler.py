"""The scheduler: events in, effects out. `place` decides many groups in one call, `handle` is the same with one."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from dovetail.engine.build import Kernel, Lens, builder
from dovetail.engine.decisions import joined
from dovetail.engine.intern import Interner
from dovetail.engine.ledger import Ledger
from dovetail.engine.observe import observe
from dovetail.engine.outlook import Outlook
from dovetail.engine.queue import ALWAYS, IN_ORDER, WaitingRoom, can_be_placed, left_over
from dovetail.engine.quota import Quotas
from dovetail.engine.requests import Requests, Signature
from dovetail.engine.state import NONE, Batch
from dovetail.engine.stream import Pods, Stream, pods_of
from dovetail.engine.wake import Wake
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
from dovetail.policies.table import NODE_POLICIES

COMPILE_FROM = 100_000  # rows × pods; below, interpreting is done before numba is imported
MODES = ("auto", "interpreted", "compiled")
HOLD_SECONDS = 300.0


@dataclass(slots=True)
class Run:
    """Consecutive groups of one profile that one call of the kernel can place."""

    pods: list[Pod] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    needs: list[tuple[int, int]] = field(default_factory=list)  # (pods, how many must be placed) per group


class Scheduler:
    """One cluster, one ledger. The simulator, the live scheduler and what-if all drive this class.

    `strict`: nobody is placed while somebody waits who comes before it. Otherwise whoever fits is placed (backfill).
    """

    def __init__(
        self,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        quotas: Sequence[Quota] = (),
        mode: str = "auto",
        device_resources: Collection[str] = ("nvidia.com/gpu",),
        cache: bool = False,
        strict: bool = False,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode: expected {', '.join(MODES)}, got {mode!r}")
        self._mode = mode
        self.strict = strict
        self._interpreter, self._compiler = builder(False), builder(True, cache)
        self._builder = self._compiler if mode == "compiled" else self._interpreter
        self.intern = Interner()
        self.ledger = Ledger(self._builder.book_keeping(), self.intern)
        self.ledger.count_by_cards(device_resources)
        self.quotas = Quotas(quotas, self.ledger)
        self.waiting = WaitingRoom()
        self.requests = Requests(self.ledger, self.quotas, arguments or {})
        self.outlook = Outlook(self.ledger)
        self._wake = Wake(self.waiting, self.ledger, self.requests, self.kernel)
        self._work = 0  # rows × pods so far

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
                    return tuple(self._offer(at, rest))
                row = self.ledger.row_holding(uid)
                gone = self.ledger.release(uid)
                return self.retry(at, (row,)) if (gone or self.strict) and len(self.waiting) else ()
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
            return (*warnings, *self._offer(at, rest))
        same = row == self.ledger.row_holding(uid) and before == self.ledger.held_shares(uid)
        helps = self.strict or (row != NONE and not same)
        return (*warnings, *self.retry(at, (row,))) if helps else warnings

    def retry(self, at: float, rows: Sequence[int]) -> tuple[Effect, ...]:
        """Offer those who could use it what these rows have now, in their order; who still waits says nothing new.

        A gang or a pod under a quota may be helped by any row. The others waited because no other row could take them,
        so that they need not try when these rows no longer can.
        """
        if self.strict:
            return tuple(self._advance(at))
        keys = self._wake.helped(rows)
        fitting = set(keys)
        lines = [self.waiting.line(key) for key in keys]
        turns = [(line[0], n, 0) for n, line in enumerate(lines)]
        heapify(turns)
        effects: list[Effect] = []
        while turns:
            place, n, position = heappop(turns)
            if keys[n] is not ALWAYS and keys[n] not in fitting:
                continue
            placed = self._try(at, place.group)
            effects += placed
            if placed:
                fitting = set(self._wake.fitting(rows))
            if (placed or keys[n] is ALWAYS) and position + 1 < len(lines[n]):
                heappush(turns, (lines[n][position + 1], n, position + 1))
        return tuple(effects)

    def _advance(self, at: float) -> list[Effect]:
        """Strict: offer from the front of the line on, until somebody finds no place."""
        effects: list[Effect] = []
        front = self.waiting.front()
        while front is not None:
            effects += self._try(at, front.group)
            tried, front = front.group, self.waiting.front()
            if front is not None and front.group.name == tried.name:
                break
        return effects

    def _offer(self, at: float, group: Group) -> list[Effect]:
        """What is left of a group that waits, which may have become easier to place."""
        return self._advance(at) if self.strict else self._try(at, group)

    def _try(self, at: float, group: Group) -> list[Effect]:
        return [effect for effect in self._settle(group, self._place_all((group,), at)) if isinstance(effect, Bind)]

    def _arrive(self, at: float, group: Group) -> list[Effect]:
        again = self.strict and group.name in self.waiting  # it may have stood in the way of others
        effects = self._settle(group, self.place((group,), at))
        return [*effects, *self._advance(at)] if again else effects

    def _settle(self, group: Group, decisions: Sequence[Decision]) -> list[Effect]:
        """Who found no place waits."""
        rest = left_over(group, decisions)
        if rest is not None:
            self._wait(rest)
        else:
            self.waiting.remove(group.name)
        return [
            Bind(pod, decision) if decision.node is not None else Wait(pod, decision)
            for pod, decision in zip(group.pods, decisions, strict=True)
        ]

    def _wait(self, group: Group) -> None:
        key: Hashable = ALWAYS
        if self.strict:
            key = IN_ORDER if can_be_placed(group) else ALWAYS
        elif len(group.pods) == 1 and not self._needs_care(group):
            signature = self.requests.signature(group.pods[0])
            key = (signature.profile, signature.shape, signature.mask)
        self.waiting.add(group, key)

    def _expire(self, at: float) -> tuple[Effect, ...]:
        effects: list[Effect] = []
        rows = []
        for uid in self.ledger.pods.expired(at):
            effects.append(Warn(self.ledger.pods.pod(uid).key, "its reservation was never confirmed and is dropped"))
            rows.append(self.ledger.row_holding(uid))
            self.ledger.release(uid)
        return (*effects, *self.retry(at, rows)) if effects else ()

    # ---- placing ------------------------------------------------------------------------------------------------

    def place(self, groups: Sequence[Group], at: float = 0.0) -> Sequence[Decision]:
        """Decide groups in the order given: one decision per pod, all booked as reservations."""
        if self.strict:
            return self._place_in_order(groups, at)
        if not self._learns_from(groups):
            return self._place_all(groups, at)
        parts: list[Sequence[Decision]] = []
        start = 0
        while start < len(groups):
            end = self._learn(groups, start)
            parts.append(self._place_all(groups[start:end], at))
            start = end
        return joined(parts)

    def _place_in_order(self, groups: Sequence[Group], at: float) -> Sequence[Decision]:
        """Strict: as if each arrived by itself. Those without hope are told their own reason and hold nobody up."""
        parts: list[Sequence[Decision]] = []
        late: list[Any] = []  # orders of those who would wait by now
        for group in groups:
            if self._learns_from((group,)):
                self._learn((group,), 0)
            front = self.waiting.front(besides=group.name)
            before = min(late[:1] + ([front.order] if front else []), default=group.order)
            if before < group.order and can_be_placed(group):
                parts.append([self._refused(pod, Reason.QUEUE_ORDER) for pod in group.pods])
            else:
                parts.append(self._place_all((group,), at))
            rest = left_over(group, parts[-1])
            if rest is not None and can_be_placed(rest):
                heappush(late, rest.order)
        return joined(parts)

    def _learns_from(self, groups: Sequence[Group]) -> bool:
        if not self.outlook.learning and not self.outlook.told:
            pods = groups.templates if isinstance(groups, Stream) else [pod for group in groups for pod in group.pods]
            if any(NODE_POLICIES[pod.profile.node].offer is not None for pod in pods):
                self.outlook.start_learning()
        return self.outlook.learning

    def _learn(self, groups: Sequence[Group], start: int) -> int:
        """See groups until the outlook changes; returns where. It changes before the group that made it change."""
        if isinstance(groups, Stream):
            end = min(len(groups), start + max(1, self.outlook.until_next - 1))
            self.outlook.see(groups[start:end].counted())
            return end
        end = start
        while end < len(groups):
            if end > start and len(groups[end].pods) >= self.outlook.until_next:
                break
            self.outlook.see((pod, 1) for pod in groups[end].pods)
            end += 1
        return end

    def _place_all(self, groups: Sequence[Group], at: float) -> Sequence[Decision]:
        self._maybe_compile(len(groups))
        if isinstance(groups, Stream) and len(groups):
            plain = self._plain_signatures(groups)
            if plain is not None:
                return self._place_stream(groups, plain, at)
        if len(groups) == 1 and len(groups[0].pods) == 1 and not self._needs_care(groups[0]):  # the usual event
            return (self._place_one(groups[0].pods[0], at),)
        signature_of, run = self.requests.signature, Run()
        parts: list[Sequence[Decision]] = []
        for group in groups:
            care = self._needs_care(group)
            signatures = [] if care else [signature_of(pod) for pod in group.pods]
            if care or (len(signatures) > 1 and any(s.profile is not signatures[0].profile for s in signatures)):
                parts += [self._place_run(run, at), self._place_with_care(group, at)]
                run = Run()
                continue
            if run.signatures and run.signatures[0].profile is not signatures[0].profile:
                parts.append(self._place_run(run, at))
                run = Run()
            run.pods += group.pods
            run.signatures += signatures
            run.needs.append((len(signatures), group.minimum - group.running))
        parts.append(self._place_run(run, at))
        return joined(parts)

    def kernel(self, profile: Profile) -> Kernel:
        """The profile's kernel, for the mode in force. What its policy looks at is up to date."""
        kernel = self._builder.kernel(profile)
        if kernel.node_policy.offer is not None:
            self.outlook.prepare(kernel.node_policy.reads_values)
        return kernel

    def lens(self, profile: Profile) -> Lens:
        """The same functions without numba: for looking at single nodes."""
        if NODE_POLICIES[profile.node].offer is not None:
            self.outlook.prepare(NODE_POLICIES[profile.node].reads_values)
        return self._interpreter.lens(profile)

    def _needs_care(self, group: Group) -> bool:
        """A group that a plain kernel call cannot serve: refused pods, quotas, or too few members."""
        pods, some_quotas = group.pods, len(self.quotas)
        if len(pods) == 1 and not some_quotas:  # by far the most
            return pods[0].refusal is not None or group.minimum - group.running > 1
        if len(pods) + group.running < group.minimum:
            return True
        return any(pod.refusal is not None or self.quotas.apply_to(pod) for pod in pods)

    def _place_run(self, run: Run, at: float) -> Sequence[Decision]:
        if len(run.pods) == 1:
            return (self._place_one(run.pods[0], at),)
        return self._run_kernel(run, at) if run.pods else ()

    def _run_kernel(self, run: Run, at: float) -> Sequence[Decision]:
        batch = self.requests.batch(run.pods, run.signatures, run.needs)
        lone = len(run.needs) == len(run.pods) and all(signature.plain for signature in run.signatures)
        return self._decide(pods_of(run.pods), batch, run.signatures[0].profile, lone, at)

    def _place_stream(self, stream: Stream, signatures: Sequence[Signature], at: float) -> Sequence[Decision]:
        batch = self.requests.stream_batch(stream, signatures)
        lone = all(signature.plain for signature in signatures)
        return self._decide(stream.pods(), batch, signatures[0].profile, lone, at)

    def _decide(self, pods: Pods, batch: Batch, profile: Profile, lone: bool, at: float) -> Sequence[Decision]:
        self.ledger.make_room(len(pods.uids), len(batch.taken), len(pods.uids))
        self._place(profile, lone, batch)
        return self.ledger.adopt(pods, batch, at + HOLD_SECONDS)

    def _place_one(self, pod: Pod, at: float) -> Decision:
        """The usual event: one pod, no quota. As `_decide`, without building arrays."""
        ledger, signature = self.ledger, self.requests.signature(pod)
        ledger.make_room(1, signature.entries, 1)
        batch = self.requests.batch_of_one(pod, signature)
        self._place(signature.profile, signature.plain, batch)
        return ledger.adopt_one(pod, batch, signature.entries, at + HOLD_SECONDS)

    def _place(self, profile: Profile, lone: bool, batch: Batch) -> None:
        kernel = self.kernel(profile)
        place = kernel.place_lone if lone and not self.ledger.in_transaction else kernel.place_groups
        place(self.ledger.state(), batch)

    def _plain_signatures(self, stream: Stream) -> list[Signature] | None:
        """The templates' requests, where a single call of the kernel can place the stream."""
        if any(pod.refusal is not None or self.quotas.apply_to(pod) for pod in stream.templates):
            return None
        signatures = [self.requests.signature(pod) for pod in stream.templates]
        return signatures if len({id(signature.profile) for signature in signatures}) == 1 else None

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
        return self._run_kernel(Run([pod], [self.requests.signature(pod)], [(1, 1)]), at)[0]

    def _refused(self, pod: Pod, reason: Reason) -> Decision:
        return Decision(pod.uid, None, (), reason, self.ledger.generation)

    def _maybe_compile(self, pods: int) -> None:
        if self._mode == "auto" and self._builder is self._interpreter:
            self._work += pods * len(self.ledger.nodes)
            if self._work >= COMPILE_FROM:
                self._builder = self._compiler
                self.ledger.use(self._compiler.book_keeping())
