"""Any sequence of events, written to a journal's bytes and executed again, gives the same decisions.

The machine of the ledger drives a scheduler that is recorded. At the end its calls are decoded and executed twice: from
the beginning, and from every checkpoint on.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from dovetail.engine.recorded import RecordedScheduler
from dovetail.kube.journal.codec import decode, encode
from dovetail.model.calls import Call, EngineSettings, Offered, outcome_of
from dovetail.model.events import Effect, PodNominated, QuotaChanged
from dovetail.model.pod import Quota
from dovetail.whatif.rerun import Begun, Recorded, Rerun
from tests.engine.test_ledger_machine import NAMES, WildWorld
from tests.properties import with_examples
from tests.strategies import ARGUMENTS, seeds


class RecordedWorld(WildWorld):
    """Waiting pods are tried at once, and no pod is stopped."""

    settings = EngineSettings(arguments=ARGUMENTS, device_resources=("nvidia.com/gpu",))

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = self.recorded = RecordedScheduler(self.settings)
        self.ledger = self.scheduler.ledger
        self.written: list[bytes] = []
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
        for restores in (False, True):
            rerun = Rerun(restores=restores)
            rerun.begin(Begun(self.settings, True, "run", "file"))
            for data in self.written:
                rerun.step(Recorded(*decode(data)))
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

    @rule()
    def checkpoint(self) -> None:
        if not self.recorded.inexact:
            super().checkpoint()


TestRecordedWorld = RecordedWorld.TestCase
TestDeferredWorld = DeferredWorld.TestCase
TestRecordedWorld.settings = TestDeferredWorld.settings = with_examples(40, steps=25)


def test_a_node_that_is_gone_stays_gone_after_a_checkpoint() -> None:
    world = RecordedWorld()
    world.first_nodes(seed=42)
    world.pod_is_observed(seed=77, written=False)
    world.node_goes(seed=0)  # the pod keeps its place there
    world.checkpoint()
    world.checkpoint()
    world.teardown()
