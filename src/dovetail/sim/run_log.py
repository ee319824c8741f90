"""The log of a run in time mode: one entry for each pod that comes, goes or moves, and one for each refused job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail.model.decision import Decision
from dovetail.sim import cast
from dovetail.sim.trace import Job, Machine


class LogEntry(NamedTuple):
    """A line of the log. What a GPU gives at a moment is the larger of the sums of `milli` and of `memory_mib`, each
    as a part of the card, over the pods that are on it then.

    `what` is "start" and "end" of a job, "stop" and "resume", "move" (from the place of the pod's entry before to this
    one), "shrink" and "grow" (a pod leaves or joins a job that runs), or "refused" and then nothing but the job.
    """

    at: float
    what: str
    job: str
    pod: str = ""
    node: str = ""  # the machine's name
    gpus: tuple[int, ...] = ()
    milli: int = 0  # of each of these GPUs
    memory_mib: int = 0  # likewise


class RunLog:
    """Writes entries into a list."""

    def __init__(self, machine_of: Mapping[str, Machine], entries: list[LogEntry]) -> None:
        self._machine_of, self._entries = machine_of, entries  # by the node's name

    def pods(self, at: float, what: str, job: Job, places: Sequence[Decision]) -> None:
        """The same happens to these pods of the job."""
        for decision in places:
            gpus = tuple(map(cast.card_index, decision.shares))
            machine = self._machine_of[str(decision.node)]
            memory = decision.shares[0].memory_mib if gpus else 0
            self._entries.append(
                LogEntry(at, what, job.name, decision.uid, machine.name, gpus, job.gpu_milli, memory),
            )

    def refused(self, at: float, job: Job) -> None:
        self._entries.append(LogEntry(at, "refused", job.name))
