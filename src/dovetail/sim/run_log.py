"""The log of a run in time mode: an entry for each pod that starts, leaves or moves, and for each refused job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail.model.decision import Decision
from dovetail.sim import cast
from dovetail.sim.trace import Job, Machine


class LogEntry(NamedTuple):
    """A line of the log.

    The part of a GPU in use is the larger of two sums over the pods on it: `milli`, and `memory_mib` as a part of the
    card.

    `what` is "start" and "end" of a job, "stop" and "resume", or "move" (from the place in the pod's previous entry to
    this one). "shrink" and "grow": a pod leaves or joins a running job. "refused": only the job is filled in.
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
    """Appends entries to a list."""

    def __init__(self, machine_of: Mapping[str, Machine], entries: list[LogEntry]) -> None:
        self._machine_of, self._entries = machine_of, entries  # by the node's name

    def pods(self, at: float, what: str, job: Job, places: Sequence[Decision]) -> None:
        """Add an entry for each of these pods of the job."""
        for decision in places:
            gpus = tuple(map(cast.card_index, decision.shares))
            machine = self._machine_of[str(decision.node)]
            memory = decision.shares[0].memory_mib if gpus else 0
            self._entries.append(
                LogEntry(at, what, job.name, decision.uid, machine.name, gpus, job.gpu_milli, memory),
            )

    def refused(self, at: float, job: Job) -> None:
        self._entries.append(LogEntry(at, "refused", job.name))
