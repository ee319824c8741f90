"""A gang between decision and bind: whether it is still complete, and the places of members whose bind was refused.

A refused member is tried again after a pause. If its place were free meanwhile, another pod could take it, and the
bound members would wait forever. So it keeps its place while others of its gang are bound or being bound.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.live.mirror import Mirror
from dovetail.model.pod import Pod


class GangRooms:
    """Reservations that are kept after a refused bind."""

    def __init__(self, scheduler: Scheduler, mirror: Mirror) -> None:
        self._scheduler, self._mirror = scheduler, mirror
        self.kept: dict[str, str] = {}  # uid -> key of its gang

    def refused(self, pod: Pod) -> list[str]:
        """UIDs whose place is to be freed: none while the gang has started and needs this pod."""
        kept = [uid for uid, key in self.kept.items() if key == pod.group]
        others = self._scheduler.members.holding(pod.group) - len(kept) - 1 if pod.group else 0
        if 0 < others < self._mirror.gangs.minimum(pod.group):
            self.kept[pod.uid] = pod.group
            return []
        self.forget((pod.uid, *kept))
        return [pod.uid, *(uid for uid in kept if uid != pod.uid)]

    def forget(self, uids: Iterable[str]) -> None:
        """Forget pods that are gone, bound, or about to be placed again."""
        for uid in uids:
            self.kept.pop(uid, None)

    def stays(self, pod: Pod) -> bool:
        """Whether an offered pod keeps its place and is not placed again: its PodGroup cannot be read now."""
        return pod.uid in self.kept and pod.refusal is not None and self._mirror.gangs.is_undecided(pod.group)

    def is_whole(self, pod: Pod) -> bool:
        """Whether the pod's gang may be bound: some of it is bound, or none is and it has its minimum."""
        minimum = self._mirror.gangs.minimum(pod.group) if pod.group else 0
        if minimum <= 1:
            return True
        held = self._scheduler.ledger.pods
        reserved = sum(uid in held for uid in self._mirror.gangs.members(pod.group))
        holding = self._scheduler.members.holding(pod.group)
        return holding > reserved or holding - sum(key == pod.group for key in self.kept.values()) >= minimum
