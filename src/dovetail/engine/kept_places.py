"""Places kept for the first waiting group: large groups are not starved by small ones.

The first group of the queue, once it has waited long enough, is promised places: those on which the fewest pods must
end first. From then on, pods that do not outrank it take no room there, so the places empty as their pods end. Other
nodes are open to every pod (backfill). Places are kept for one group at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.engine.placer import Placer
from dovetail.engine.queue import WaitingRoom
from dovetail.engine.rights.preemption import Preemption
from dovetail.engine.rights.service import facts_of
from dovetail.model.pod import Group, Pod
from dovetail.policies.orders import JobFacts
from dovetail.policies.yielding import Candidate, Cost, Yielding

MOST_TRIED = 4  # groups for which places are looked for; those before them in the queue fit on no empty cluster
LOOK_EVERY = 1.0  # seconds between two looks for a group that has waited long enough


def _as_it_ends(held: Candidate, group: Group, facts: JobFacts) -> Cost | None:
    return (-held.started,)


AS_IT_ENDS = Yielding(
    "as-it-ends",
    "Every pod may be waited for; of two nodes, the one with fewer pods to wait for.",
    _as_it_ends,
    reads_service=False,
    rank=lambda pod: 0,
)


class KeptPlaces:
    def __init__(self, placer: Placer, search: Preemption, after: float) -> None:
        self._placer, self._search, self._after = placer, search, after
        self.group = ""  # the group for which places are kept; "" = none
        self.pods: tuple[str, ...] = ()  # UIDs of its pods that were promised a place
        self._looked = float("-inf")

    def look(self, at: float, waiting: WaitingRoom, may_run: Callable[[Group], bool]) -> Sequence[Pod]:
        """Keep places for a group if it is time; returns the pods that were promised a place now."""
        if self.group:
            held = waiting.find(self.group)
            nodes = self._placer.ledger.row_of
            kept = self._placer.nominated.promised
            if held is not None and all(uid in kept and kept[uid].node in nodes for uid in self.pods):
                return ()
            self._drop()
        if at < self._looked + LOOK_EVERY:
            return ()
        self._looked = at
        for group in waiting.first_ones(MOST_TRIED):
            if at < min(pod.created for pod in group.pods) + self._after or not may_run(group):
                continue
            if any(pod.uid in self._placer.nominated.promised for pod in group.pods):
                return ()  # pods are being stopped for it
            if promised := self._made(group):
                return promised
        return ()

    def restore(self, group: str, pods: tuple[str, ...]) -> None:
        """Note that places are kept for this group and these pods of it."""
        self.group, self.pods = group, pods

    def begin_again(self) -> None:
        """Do not wait for the next look."""
        self._looked = float("-inf")
        self._search.occupants.begin_again()

    def _made(self, group: Group) -> Sequence[Pod]:
        plan = self._search.plan(group, facts_of(group))
        if plan is None:
            return ()
        promised = [(pod, d) for pod, d in zip(group.pods, plan.decisions, strict=True) if d.node is not None]
        for pod, decision in promised:
            self._placer.nominated.promise(pod, str(decision.node), decision.shares)
        self.restore(group.name, tuple(pod.uid for pod, _ in promised))
        return [pod for pod, _ in promised]

    def _drop(self) -> None:
        for uid in self.pods:
            self._placer.nominated.forget(uid)
        self.restore("", ())
