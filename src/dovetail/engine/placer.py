"""Deciding: groups in, decisions out, all booked in the ledger.

The scheduler keeps waiting groups and handles events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.engine.gangs.planner import GangPlacer
from dovetail.engine.kernel.build import Kernel, Lens, Pair, builder
from dovetail.engine.kernel.state import Batch
from dovetail.engine.ledger.decisions import joined
from dovetail.engine.ledger.intern import Interner
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import Requests, Signature
from dovetail.engine.ledger.stream import Pods, Stream, pods_of
from dovetail.engine.nominated import Nominated, RelatedAndNominated
from dovetail.engine.outlook import Outlook
from dovetail.engine.rights.members import Members
from dovetail.engine.rights.queues import QueueRefusal, Queues
from dovetail.engine.rights.quota import Quotas
from dovetail.engine.single_node import SingleNode
from dovetail.engine.sweep import SWEEP_EVERY, is_crowded, sweep
from dovetail.model.decision import Decision
from dovetail.model.pod import Group, Pod, Profile, Quota
from dovetail.model.reason import Reason
from dovetail.policies.table import NODE_POLICIES

COMPILE_FROM = 100_000  # rows × pods; below, the interpreter finishes before numba is imported
ENGINE_MODES = ("auto", "interpreted", "compiled")


@dataclass(slots=True)
class GroupRun:
    """Consecutive groups of one profile that one kernel call can place."""

    pods: list[Pod] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    needs: list[tuple[int, int]] = field(default_factory=list)  # (pods, how many must be placed) per group


class Placer:
    """One cluster, one ledger: decides where groups go, in the order given."""

    def __init__(
        self,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        quotas: Sequence[Quota] = (),
        mode: str = "auto",
        device_resources: Collection[str] = ("nvidia.com/gpu",),
        cache: bool = False,
        waits_for: Callable[[], Sequence[Hashable]] = tuple,
    ) -> None:
        if mode not in ENGINE_MODES:
            raise ValueError(f"mode: expected {', '.join(ENGINE_MODES)}, got {mode!r}")
        self._mode = mode
        self._waits_for = waits_for  # requests that must keep their numbers
        self.waiting: Collection[Group] = ()  # groups that wait; the scheduler sets it
        self._interpreter, self._compiler = builder(False), builder(True, cache)
        self._builder = self._compiler if mode == "compiled" else self._interpreter
        self._compiled: set[Pair] = set()  # policies with compiled kernels, while the rest is interpreted
        self.intern = Interner()
        self.ledger = Ledger(self._builder.book_keeping(), self.intern)
        self.ledger.count_by_cards(device_resources)
        self.quotas = Quotas(quotas, self.ledger)
        self.queues = Queues(self.ledger)
        self.requests = Requests(self.ledger, self.quotas, arguments or {})
        self.ledger.learners.append(lambda _: self.requests.forget())
        self.outlook = Outlook(self.ledger)
        self.nominated = Nominated(self.ledger)
        self.related = RelatedAndNominated(self.ledger, self.requests, self.kernel, self.nominated)
        self.single = SingleNode(self)
        self.members = Members(self.ledger)
        self.gangs = GangPlacer(self, self.members)
        self._work = 0  # rows × pods so far
        self._calls = 0

    def place(self, groups: Sequence[Group]) -> Sequence[Decision]:
        """Decide groups in the order given: one decision per pod, all booked as reservations."""
        self.maybe_sweep()
        if not self.learns_from(groups):
            return self.place_all(groups)
        parts: list[Sequence[Decision]] = []
        start = 0
        while start < len(groups):
            end = self.learn(groups, start)
            parts.append(self.place_all(groups[start:end]))
            start = end
        return joined(parts)

    def maybe_sweep(self) -> None:
        """At times remove what is not used any more: remembered requests, and names if there are many of them."""
        self._calls += 1
        if self._calls % SWEEP_EVERY:
            return
        self.requests.fit(len(self.ledger.pods) + len(self.waiting))
        if is_crowded(self.ledger):
            sweep(self.ledger, self.requests, self.outlook, self._waits_for())

    def place_group(self, group: Group) -> Sequence[Decision]:
        """As `place`, for one group: most events are one lone pod without special rules."""
        pods = group.pods
        if len(pods) != 1 or self._learns(pods) or self.needs_care(group):
            return self.place((group,))
        self._maybe_compile(1)
        return (self._place_one(pods[0]),)

    def learns_from(self, groups: Sequence[Group]) -> bool:
        if isinstance(groups, Stream):
            return self._learns(groups.templates)
        return self._learns(pod for group in groups for pod in group.pods)

    def _learns(self, pods: Iterable[Pod]) -> bool:
        if not self.outlook.learning and not self.outlook.told:
            for pod in pods:
                if NODE_POLICIES[pod.profile.node].offer is not None:
                    self.outlook.start_learning()
                    break
        return self.outlook.learning

    def learn(self, groups: Sequence[Group], start: int) -> int:
        """Count groups until the outlook changes; returns where. It changes before the group that causes the change."""
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

    def place_all(self, groups: Sequence[Group]) -> Sequence[Decision]:
        self._maybe_compile(len(groups))
        if isinstance(groups, Stream) and len(groups):
            plain = self._plain_signatures(groups)
            if plain is not None:
                return self._place_stream(groups, plain)
        if len(groups) == 1 and len(groups[0].pods) == 1 and not self.needs_care(groups[0]):  # the usual event
            return (self._place_one(groups[0].pods[0]),)
        signature_of, run = self.requests.signature, GroupRun()
        parts: list[Sequence[Decision]] = []
        for group in groups:
            care = self.needs_care(group)
            signatures = [] if care else [signature_of(pod) for pod in group.pods]
            if care or (len(signatures) > 1 and any(s.profile is not signatures[0].profile for s in signatures)):
                parts += [self._place_run(run), self._place_with_care(group)]
                run = GroupRun()
                continue
            if run.signatures and run.signatures[0].profile is not signatures[0].profile:
                parts.append(self._place_run(run))
                run = GroupRun()
            run.pods += group.pods
            run.signatures += signatures
            run.needs.append((len(signatures), group.needed))
        parts.append(self._place_run(run))
        return joined(parts)

    def kernel(self, profile: Profile) -> Kernel:
        """The profile's kernel in the current mode. The tables that its policy reads are up to date."""
        builder = self._builder
        if builder is self._interpreter and (profile.node, profile.device) in self._compiled:
            builder = self._compiler
        kernel = builder.kernels.get((profile.node, profile.device)) or builder.kernel(profile)
        if kernel.node_policy.offer is not None:
            self.outlook.prepare(kernel.node_policy.reads_values)
        return kernel

    def lens(self, profile: Profile) -> Lens:
        """The same functions, interpreted: for looking at single nodes."""
        if NODE_POLICIES[profile.node].offer is not None:
            self.outlook.prepare(NODE_POLICIES[profile.node].reads_values)
        return self._interpreter.lens(profile)

    def needs_care(self, group: Group) -> bool:
        """Whether a plain kernel call cannot place the group: special pods, or fewer members than its minimum."""
        pods = group.pods
        if group.members < group.minimum or not group.is_plain:
            return True
        return self.is_special(pods[0]) if len(pods) == 1 else any(self.is_special(pod) for pod in pods)

    def is_special(self, pod: Pod) -> bool:
        """Whether the pod is refused, under a quota, in a queue, or affected by rules about other pods."""
        if pod.is_plain and not self.ledger.in_force:
            return False
        limited = self.quotas.apply_to(pod) or (self.queues.active and self.queues.apply_to(pod))
        return pod.refusal is not None or limited or self.related.concerns(pod)

    def _place_run(self, run: GroupRun) -> Sequence[Decision]:
        if len(run.pods) == 1:
            return (self._place_one(run.pods[0]),)
        return self._run_kernel(run) if run.pods else ()

    def _run_kernel(self, run: GroupRun) -> Sequence[Decision]:
        batch = self.requests.batch(run.pods, run.signatures, run.needs)
        lone = len(run.needs) == len(run.pods) and all(signature.plain for signature in run.signatures)
        return self._decide(pods_of(run.pods), batch, run.signatures[0].profile, lone)

    def _place_stream(self, stream: Stream, signatures: Sequence[Signature]) -> Sequence[Decision]:
        batch = self.requests.stream_batch(stream, signatures)
        lone = all(signature.plain for signature in signatures)
        return self._decide(stream.pods(), batch, signatures[0].profile, lone)

    def _decide(self, pods: Pods, batch: Batch, profile: Profile, lone: bool) -> Sequence[Decision]:
        journal = 0 if self._takes_lone(lone) else len(pods.uids)
        self.ledger.make_room(len(pods.uids), len(batch.taken), journal)
        self._place(profile, lone, batch)
        return self.ledger.adopt(pods, batch)

    def _place_one(self, pod: Pod) -> Decision:
        """Place one pod without a quota, the most frequent event. As `_decide`, without building arrays."""
        ledger, signature = self.ledger, self.requests.signature(pod)
        ledger.make_room(1, signature.entries, 1)
        batch = self.requests.batch_of_one(pod, signature)
        self._place(signature.profile, signature.plain, batch)
        return ledger.adopt_one(pod, batch, signature.entries)

    def _place(self, profile: Profile, lone: bool, batch: Batch) -> None:
        kernel = self.kernel(profile)
        place = kernel.place_lone if self._takes_lone(lone) else kernel.place_groups
        place(self.ledger.state(), batch)

    def _takes_lone(self, lone: bool) -> bool:
        """Whether the smaller kernel, which keeps no journal, can place the pods."""
        return lone and not self.ledger.in_transaction and not self.ledger.places.aligned

    def _plain_signatures(self, stream: Stream) -> list[Signature] | None:
        """The templates' requests if one kernel call can place the stream, else None."""
        if any(self.is_special(pod) for pod in stream.templates):
            return None
        signatures = [self.requests.signature(pod) for pod in stream.templates]
        return signatures if len({id(signature.profile) for signature in signatures}) == 1 else None

    def _place_with_care(self, group: Group) -> Sequence[Decision]:
        """Place pods one by one in a transaction; check each pod's refusal and quotas first.

        Gangs with roles or topology rules have their own way (engine/gangs).
        """
        if not group.is_plain:
            return self.gangs.place(group)
        if group.members < group.minimum:
            return [self.refused(pod, Reason.GROUP_INCOMPLETE) for pod in group.pods]
        with self.ledger.transaction() as transaction:
            decisions = self._place_each(group)
            if sum(decision.placed for decision in decisions) >= group.needed:
                transaction.commit()
                return decisions
        return [
            self.refused(p, d.reason or Reason.GROUP_NOT_PLACED) for p, d in zip(group.pods, decisions, strict=True)
        ]

    def _place_each(self, group: Group) -> list[Decision]:
        """Place one member after the other, until too few are left: of a large gang, the rest would be wasted time."""
        decisions: list[Decision] = []
        spare = len(group.pods) - max(group.needed, 0)  # members that may fail
        for pod in group.pods:
            if spare < 0:
                decisions.append(self._not_tried(pod, decisions[-1].reason))
                continue
            decisions.append(self.place_alone(pod))
            spare -= not decisions[-1].placed
        return decisions

    def _not_tried(self, pod: Pod, before: Reason) -> Decision:
        """The decision for a member that was not tried, as the members before it failed."""
        if pod.refusal is not None:
            return self.refused(pod, pod.refusal.reason)
        return self.refused(pod, before if before is Reason.NO_NODES else Reason.GROUP_NOT_PLACED)

    def place_alone(self, pod: Pod) -> Decision:
        """Place one pod after checking its refusal, quotas and queue."""
        if pod.refusal is not None:
            return self.refused(pod, pod.refusal.reason)
        if self.quotas.refusal(pod) is not None:
            return self.refused(pod, Reason.QUOTA)
        if not (self.queues.active and self.queues.apply_to(pod)):
            return self._place_admitted(pod)
        if (refusal := self._queue_refusal(pod)) is not None:
            return self.refused(pod, refusal.reason)
        decision = self._place_admitted(self.queues.within(pod))
        if decision.placed:
            self.ledger.pods.put(self.ledger.pods.slot_of[pod.uid], pod)  # as the pod is known outside
        return decision

    def _queue_refusal(self, pod: Pod) -> QueueRefusal | None:
        """Why the pod's queue does not admit it: now, or once promised places are taken.

        Otherwise the pod would use up what other pods have just ended for, and further pods would be stopped.
        """
        refusal = self.queues.refusal(pod)
        if refusal is not None or not self.nominated.promised:
            return refusal
        promised = [one for held in self.nominated.before(pod).values() for one in held]
        with self.nominated.booked(promised):
            return self.queues.refusal(pod)

    def _place_admitted(self, pod: Pod) -> Decision:
        if not self.related.concerns(pod):
            return self._run_kernel(GroupRun([pod], [self.requests.signature(pod)], [(1, 1)]))[0]
        refused = self.related.refusal(pod)
        if refused is not None:
            return self.refused(pod, refused)
        return self._place_related(pod)

    def _place_related(self, pod: Pod) -> Decision:
        batch = self.related.batch(pod)
        if not self.nominated.promised or not pod.wants_devices:
            return self.place_batch(pod, batch)
        with self.ledger.transaction() as transaction:
            decision = self.place_batch(pod, batch)
            if not decision.placed or not self.nominated.on_row(pod, self.ledger.row_of[str(decision.node)]):
                transaction.commit()
                return decision
        return self.single.place_beside_nominated(pod, self.ledger.row_of[str(decision.node)])

    def place_batch(self, pod: Pod, batch: Batch) -> Decision:
        """Place one pod with the rules of this batch."""
        signature = self.requests.signature(pod)
        self.ledger.make_room(1, signature.entries, 1)
        self._place(signature.profile, False, batch)
        return self.ledger.adopt_one(pod, batch, signature.entries)

    def refused(self, pod: Pod, reason: Reason) -> Decision:
        return Decision(pod.uid, None, (), reason, self.ledger.generation)

    def is_compiled(self, profile: Profile) -> bool:
        return self._builder is self._compiler or (profile.node, profile.device) in self._compiled

    def use_compiled(self, profile: Profile) -> None:
        """Use this profile's compiled kernel from now on. The caller has compiled or loaded it (`Builder.warm`).

        Compiling takes seconds, so it happens elsewhere. Other profiles stay interpreted; the decisions are the same.
        """
        if not self._compiled:
            self.ledger.use(self._compiler.book_keeping())
        self._compiled.add((profile.node, profile.device))

    def compile(self) -> None:
        """Use compiled kernels from now on; each profile's kernel is compiled at its first use."""
        if self._builder is self._interpreter:
            self._builder = self._compiler
            self.ledger.use(self._compiler.book_keeping())

    def _maybe_compile(self, pods: int) -> None:
        if self._mode == "auto" and self._builder is self._interpreter:
            self._work += pods * len(self.ledger.nodes)
            if self._work >= COMPILE_FROM:
                self.compile()
