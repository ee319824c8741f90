"""How often a pod's placement was refused, and how long the next try waits."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.kube.live.tell import ScheduledCondition

LONGEST_REFUSAL_PAUSE = 60.0  # seconds between two tries of a pod whose placement is refused
MOST_OUTDATED = 5  # outdated placements of a pod in a row that are tried again at once


@dataclass(slots=True)
class Refusals:
    """The refusals of one pod."""

    count: int = 0
    outdated: int = 0  # placements in a row that were outdated when they were to be written
    told: ScheduledCondition | None = None  # the content of the pod's last event about it

    @property
    def pause(self) -> float:
        """Seconds until the next try."""
        return min(LONGEST_REFUSAL_PAUSE, 2.0 ** min(self.count - 1, 10))
