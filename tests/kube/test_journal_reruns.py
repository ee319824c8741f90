"""Any sequence of events, written to a journal's bytes and executed again, gives the same decisions.

The machine of the ledger drives a scheduler that is recorded. At the end its calls are decoded and executed twice: from
the beginning, and from every checkpoint on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from dovetail.engine.recorded import RecordedScheduler
from dovetail.kube.journal.codec import decode, encode
from dovetail.model.calls import Call, EngineSettings, Offered, outcome_of
from dovetail.model.events import (
    BudgetChanged,
    Effect,
    EvictionRefused,
    GangChanged,
    GroupArrived,
    NamespaceChanged,
    PodGone,
    PodNominated,
    PodObserved,
    PodsGone,
    QueueChanged,
    QuotaChanged,
    VolumesChanged,
)
from dovetail.model.gang import Role
from dovetail.model.pod import Group, Profile, Quota, RunningPod, Trust
from dovetail.model.relations import NO_RELATIONS, Selector
from dovetail.model.rights import Budget, Queue
from dovetail.model.volumes import VolumeFact
from dovetail.whatif.rerun import Begun, Recorded, Rerun
from tests.engine.neighbourhoods import SPACES, some_pod, some_selector
from tests.engine.pictures import picture
from tests.engine.storeroom import LOCAL, MADE, claim, volume
from tests.engine.test_ledger_machine import NAMES, WildWorld
from tests.properties import with_examples
from tests.strategies import ARGUMENTS, CHAINS, NODE_POLICIES, seeds


class RecordedWorld(WildWorld):
    """Waiting pods are tried at once, and no pod is stopped."""

    settings = EngineSettings(arguments=ARGUMENTS, device_resources=("nvidia.com/gpu",))

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = self.recorded = RecordedScheduler(self.settings)
        self.ledger = self.scheduler.ledger
        self.written: list[bytes] = []
        self.pictures: dict[int, dict[str, Any]] = {}  # by the number of a checkpoint
        self.recorded.record(self.keep)

    def keep(self, call: Call, effects: Sequence[Effect]) -> None:
        self.written.append(encode(len(self.written) + 1, call, [outcome_of(effect) for effect in effects]))

    @rule(seed=seeds)
    def transaction(self, seed: int) -> None:
        """Tried and undone: a journal does not hold it, and later decisions do not depend on it."""
        with self.recorded.trial():
            self.recorded.place(self.fresh(seed))

    @rule(seed=seeds)
    def group_is_offered(self, seed: int) -> None:
        """As a shadow does: the trial is recorded, and undone."""
        for group in self.fresh(seed):
            self.keep(Offered(self.now, group), self.recorded.would_place(self.now, group))

    @rule()
    def checkpoint(self) -> None:
        self.now += 1.0
        self.keep(self.recorded.checkpoint(self.now), ())
        self.pictures[len(self.written)] = self.picture(self.recorded)

    def picture(self, engine: RecordedScheduler) -> dict[str, Any]:
        """What an engine knows, whatever its rows, slots and numbers are."""
        waiting = engine.waiting
        lines = sorted([place.group.name for place in waiting.line(key)] for key in waiting.requests())
        return {**picture(engine), "lines": lines, "retries": bool(engine.retries)}

    @rule(milli=st.sampled_from((0, 500, 1000, 10_000)))
    def quota_changes(self, milli: int) -> None:
        quota = Quota("default", "q", device_compute_milli={"NVIDIA": milli}) if milli else None
        self.handle(lambda at: QuotaChanged(at, "default", "q", quota))

    @rule(seed=seeds)
    def group_is_withdrawn(self, seed: int) -> None:
        groups = sorted(self.recorded.waiting, key=lambda group: group.name)
        if groups:
            self.recorded.withdraw(Random(seed).choice(groups))

    def teardown(self) -> None:
        self.checkpoint()
        for restores in (False, True):
            rerun = Rerun(restores=restores)
            rerun.begin(Begun(self.settings, True, "run", "file"))
            for number, data in enumerate(self.written, 1):
                rerun.step(Recorded(*decode(data)))
                if number in self.pictures:
                    assert rerun.engine is not None
                    assert self.picture(rerun.engine) == self.pictures[number]
            assert (rerun.counts.differences, rerun.counts.notes) == ([], [])
            assert rerun.counts.different == 0
            assert rerun.counts.calls == len(self.written)


class DeferredWorld(RecordedWorld):
    """As the live scheduler: retries in portions, and pods of lower priority are stopped for others."""

    settings = EngineSettings(
        arguments=ARGUMENTS, device_resources=("nvidia.com/gpu",), yielding="priority", deferred=True, keep_after=20.0
    )

    def nobody_waits_in_vain(self) -> None:
        """Retries are pending."""

    @rule(pods=st.integers(1, 8))
    def some_are_tried_again(self, pods: int) -> None:
        self.now += 0.1
        if self.recorded.has_retries:
            self.check(self.recorded.retry_some(self.now, pods))

    @rule()
    def searched_again(self) -> None:
        self.now += 1.5
        self.recorded.search_again(self.now)

    @rule()
    def safety_net(self) -> None:
        self.recorded.retry_all(self.now)

    @precondition(lambda self: len(self.scheduler.waiting) > 0)
    @rule(seed=seeds, name=st.sampled_from(("", *NAMES)))
    def pod_is_nominated(self, seed: int, name: str) -> None:
        pods = sorted((pod for group in self.scheduler.waiting for pod in group.pods), key=lambda pod: pod.uid)
        chosen = Random(seed).choice(pods)
        self.handle(lambda at: PodNominated(at, chosen, name))


class CrowdedWorld(DeferredWorld):
    """As `DeferredWorld`, with everything that a pod, a namespace or a queue can say."""

    settings = EngineSettings(
        arguments=ARGUMENTS,
        device_resources=("nvidia.com/gpu",),
        yielding="priority",
        deferred=True,
        keep_after=20.0,
        half_life=50.0,
    )

    def fresh(self, seed: int, pods: int = 3) -> list[Group]:
        return [self._sociable(group, Random(f"{seed}-{group.name}")) for group in super().fresh(seed, pods)]

    def _sociable(self, group: Group, chance: Random) -> Group:
        """The group in a namespace, with rules about other pods, claims and a queue, and gangs with roles."""
        gang, roles = (group.name if len(group.pods) > 1 else ""), chance.random() < 0.4
        like = some_pod(chance, "like", eager=0.15)
        relations = replace(like.relations, claims=tuple(f"c{n}" for n in range(3) if chance.random() < 0.15))
        common: dict[str, Any] = {"namespace": like.namespace, "labels": like.labels}
        common["queue"] = chance.choice(("", "", "a", "b"))
        if relations != NO_RELATIONS:
            common["relations"] = relations
        made = tuple(
            replace(pod, group=gang, role="ab"[n % 2] if gang and roles else "", **common)
            for n, pod in enumerate(group.pods)
        )
        if not (gang and roles):
            return replace(group, pods=made)
        return replace(group, pods=made, roles=(Role("a", 1), Role("b", chance.randrange(2))))

    @rule(seconds=st.sampled_from((5.0, 30.0, 100.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(seed=seeds)
    def queue_changes(self, seed: int) -> None:
        chance = Random(seed)
        name, arithmetic = chance.choice("ab"), chance.choice(("capacity", "kai", "drf", "volcano"))
        amounts = {"gpus": chance.choice((500, 1000, 3000))} if chance.random() < 0.7 else {"gpus/A100": 1000}
        most = {"gpus": 4000} if chance.random() < 0.5 else {}
        parent = "a" if name == "b" and chance.random() < 0.3 else ""
        queue = Queue(name, arithmetic, parent, (chance.choice(("blue", "green")),), amounts, most)
        there = chance.random() < 0.8
        self.handle(lambda at: QueueChanged(at, name, queue if there else None))

    @rule(seed=seeds)
    def budget_changes(self, seed: int) -> None:
        chance = Random(seed)
        budget = Budget("blue", "one", some_selector(chance) or Selector(), chance.randrange(2))
        there = chance.random() < 0.8
        self.handle(lambda at: BudgetChanged(at, "blue", "one", budget if there else None))

    @rule(space=st.sampled_from(tuple(SPACES)), there=st.booleans())
    def namespace_changes(self, space: str, there: bool) -> None:
        self.handle(lambda at: NamespaceChanged(at, space, SPACES[space] if there else None))

    @rule(seed=seeds)
    def volumes_change(self, seed: int) -> None:
        chance = Random(seed)
        space = chance.choice(("blue", "green"))
        facts: list[VolumeFact] = [LOCAL, MADE]
        facts += [claim(f"c{n}", chance.choice(("local", "made")), namespace=space) for n in range(3)]
        sizes = [chance.choice((10, 20)) for _ in range(chance.randrange(3))]
        facts += [volume(f"v{n}", size, chance.choice(("", *NAMES))) for n, size in enumerate(sizes)]
        gone = (claim("c0", namespace="blue"),) if chance.random() < 0.2 else ()
        self.handle(lambda at: VolumesChanged(at, tuple(facts), gone))

    @precondition(lambda self: self.ledger.pods)
    @rule(seed=seeds)
    def gang_changes(self, seed: int) -> None:
        group = self.ledger.pods[self.held(seed)].pod.group
        minimum = Random(seed).randrange(4)
        self.handle(lambda at: GangChanged(at, group or "nobody", minimum, (Role("a", 1),) if minimum > 2 else ()))

    @precondition(lambda self: self.ledger.pods)
    @rule(seed=seeds, number=st.integers(1, 5))
    def pods_leave(self, seed: int, number: int) -> None:
        there = sorted({*self.ledger.pods, *(pod.uid for group in self.scheduler.waiting for pod in group.pods)})
        chosen = Random(seed).sample(there, min(number, len(there)))
        self.handle(lambda at: PodsGone(at, tuple(chosen)))

    @precondition(lambda self: self.scheduler.claims.service.stopping)
    @rule(seed=seeds, ends=st.booleans())
    def pod_that_was_to_be_stopped(self, seed: int, ends: bool) -> None:
        """It ends, or the API server refuses to stop it."""
        uid = Random(seed).choice(sorted(self.scheduler.claims.service.stopping))
        self.handle(lambda at: PodGone(at, uid) if ends else EvictionRefused(at, uid, "too many"))

    @precondition(lambda self: self.ledger.pods)
    @rule(seed=seeds, trust=st.sampled_from(tuple(Trust)))
    def record_is_not_trusted(self, seed: int, trust: Trust) -> None:
        uid = self.held(seed)
        held = self.ledger.pods[uid]
        seen = RunningPod(held.pod, self.ledger.node_of(uid), self.ledger.shares(held.slot), trust=trust)
        self.handle(lambda at: PodObserved(at, seen))

    @precondition(lambda self: self.ledger.pods)
    @rule(seed=seeds)
    def pod_arrives_again(self, seed: int) -> None:
        """Its bind was refused, or it was read again."""
        pod = self.ledger.pods[self.held(seed)].pod
        if not pod.group:
            self.handle(lambda at: GroupArrived(at, Group(pod.key, (pod,))))

    @rule(node=st.sampled_from(NODE_POLICIES), chain=st.sampled_from(CHAINS))
    def kernel_is_compiled(self, node: str, chain: tuple[str, ...]) -> None:
        self.recorded.note_compiled(Profile(node, chain))

    @rule()
    def ledger_is_rebuilt(self) -> None:
        ledger = self.ledger
        nodes = [ledger.nodes[row] for row in ledger.row_of.values() if ledger.is_active(row)]
        pods = [(uid, RunningPod(h.pod, ledger.node_of(uid), ledger.shares(h.slot))) for uid, h in ledger.pods.items()]
        kept = {uid for uid, _ in pods if ledger.is_reserved(uid)}
        running, reserved = ([pod for uid, pod in pods if (uid in kept) is own] for own in (False, True))
        self.recorded.rebuild(nodes, running, reserved)
        self.recorded.retry_all(self.now)


class StrictWorld(CrowdedWorld):
    """Groups in the order of the GPU time that their jobs have had; waiting pods are tried at once."""

    settings = EngineSettings(
        arguments=ARGUMENTS,
        device_resources=("nvidia.com/gpu",),
        queue="strict",
        order="least-attained-service",
        yielding="qos",
    )


TestRecordedWorld = RecordedWorld.TestCase
TestDeferredWorld = DeferredWorld.TestCase
TestCrowdedWorld = CrowdedWorld.TestCase
TestStrictWorld = StrictWorld.TestCase
TestRecordedWorld.settings = TestDeferredWorld.settings = with_examples(40, steps=25)
TestCrowdedWorld.settings = TestStrictWorld.settings = with_examples(40, steps=40)


def test_a_node_that_is_gone_stays_gone_after_a_checkpoint() -> None:
    world = RecordedWorld()
    world.first_nodes(seed=42)
    world.pod_is_observed(seed=77, written=False)
    world.node_goes(seed=0)  # the pod keeps its place there
    world.checkpoint()
    world.checkpoint()
    world.teardown()


def test_a_node_that_is_gone_is_remembered_with_its_cards() -> None:
    """A pod that is seen there afterwards is charged to them."""
    world = RecordedWorld()
    world.first_nodes(seed=0)
    world.node_goes(seed=141)
    world.checkpoint()
    world.something_odd_is_observed(seed=64661820)
    world.teardown()


def test_a_node_is_forgotten_when_another_one_takes_its_row() -> None:
    world = RecordedWorld()
    world.first_nodes(seed=0)
    world.node_goes(seed=0)
    world.node_comes(name="n3", seed=0)
    world.something_odd_is_observed(seed=68)
    world.teardown()


def test_warnings_about_a_node_are_in_the_order_of_the_pods() -> None:
    """They were in the order of the ledger's slots, which depends on pods that are gone."""
    world = RecordedWorld()
    world.first_nodes(seed=1248)
    world.pods_arrive(pods=3, seed=128)
    world.checkpoint()
    world.something_odd_is_observed(seed=87)
    world.checkpoint()
    world.pod_leaves(seed=0)
    world.pod_is_observed(seed=5016, written=True)
    world.node_is_another_machine(name="n2", seed=0)
    world.teardown()


def test_a_claim_that_goes_and_comes_in_one_event_is_there() -> None:
    world = StrictWorld()
    world.first_nodes(seed=0)
    world.volumes_change(seed=675)
    world.checkpoint()
    world.pods_arrive(pods=3, seed=292)
    world.teardown()


def test_a_trial_leaves_no_account_of_gpu_time() -> None:
    world = StrictWorld()
    world.first_nodes(seed=0)
    world.transaction(seed=1)
    world.teardown()
