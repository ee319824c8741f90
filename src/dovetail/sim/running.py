"""Running jobs in time mode: where each runs, how fast, how much work is left, and when it ends.

This module does not know the engine: `timeline.py` passes on what the engine decided.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dovetail.model.decision import Decision
from dovetail.sim.clock import NEVER, Departures
from dovetail.sim.lives import Costs, JobRun, Life
from dovetail.sim.pending import IdleAndWaiting
from dovetail.sim.run_log import RunLog
from dovetail.sim.speed import NO_MODEL, PlacedJob, SpeedModel
from dovetail.sim.trace import Job, Machine


class RunningJobs:
    """The running jobs, by their index in the trace. After a change, `settle` updates the speeds that it may affect."""

    def __init__(
        self,
        jobs: Sequence[Job],
        machine_of: Mapping[str, Machine],
        speed: SpeedModel,
        costs: Costs,
        log: RunLog | None,
    ) -> None:
        self._jobs, self._machine_of = jobs, machine_of  # node's name -> machine
        self._model, self._costs, self._log = speed, costs, log
        self.lives = [Life(NEVER if job.duration is None else job.duration) for job in jobs]
        self.pending = IdleAndWaiting(list(machine_of.values()))
        self.departures = Departures()
        self.endless: dict[int, None] = {}  # running jobs without an end in the trace, in the order of their start
        self.count = 0  # jobs that run
        self.stops = self.moves = 0
        self.bound_holds = True  # false after a resize or a speed above 1: sim/unavoidable.py assumes neither
        # card -> job -> its pods there; only filled if the model reads neighbours
        self._on_card: dict[str, dict[int, int]] = {}
        self.unsettled: dict[int, None] = {}  # jobs whose speed may have changed

    @property
    def counted(self) -> dict[str, Any]:
        """The fields of `Timed` that are counted here."""
        return {"stops": self.stops, "moves": self.moves}

    def start(self, n: int, places: Sequence[Decision], now: float) -> None:
        """Start the job: all its pods are bound, for the first time or after a stop."""
        job, life = self._jobs[n], self.lives[n]
        works_from = now
        if life.start is None:
            life.start = now
        else:
            works_from += self._costs.start
        self.pending.remove(job)
        self._take(n, places, 1)
        self._note(now, "resume" if life.runs else "start", n, places)
        # a shortcut, because every job comes here
        speed = 1.0 if self._model is NO_MODEL else self._speed_of(n, places)
        life.runs.append(JobRun(now, works_from, speed, places))
        self.count += 1
        if job.duration is None:
            self.endless[n] = None
        else:
            self.departures.set(n, life.ends_at)

    def end(self, n: int, now: float) -> None:
        """End the job: its work is done."""
        life = self.lives[n]
        life.end = life.runs[-1].end = now
        self._leave(n, "end", now)

    def stop(self, n: int, now: float) -> None:
        """Stop the job: all its pods leave. It waits again with the work that is left."""
        self.lives[n].close(now)
        self.lives[n].lose(self._costs.stop)
        self._leave(n, "stop", now)
        self.pending.add(self._jobs[n])
        self.stops += 1

    def give_up(self, n: int) -> None:
        """Drop a waiting job that will never run again. All its work is lost."""
        self.pending.remove(self._jobs[n])
        self.lives[n].lose(NEVER)

    def move(self, n: int, moved: Sequence[Decision], now: float) -> None:
        """Move these pods of the job to other places."""
        new = {decision.uid: decision for decision in moved}
        places = self.lives[n].places
        self._take(n, [decision for decision in places if decision.uid in new], -1)
        self._take(n, moved, 1)
        self._note(now, "move", n, moved)
        self._go_on(n, [new.get(decision.uid, decision) for decision in places], now, self._costs.move)
        self.moves += 1

    def grow(self, n: int, joined: Decision, now: float) -> None:
        """Add one more bound pod to the job."""
        self.bound_holds = False
        self._take(n, (joined,), 1)
        self._note(now, "grow", n, (joined,))
        self._go_on(n, [*self.lives[n].places, joined], now, self._costs.move)

    def shrink(self, n: int, uids: Collection[str], now: float) -> None:
        """Remove these pods; the job goes on without them."""
        self.bound_holds = False
        leaving = [decision for decision in self.lives[n].places if decision.uid in uids]
        self._take(n, leaving, -1)
        self._note(now, "shrink", n, leaving)
        staying = [decision for decision in self.lives[n].places if decision.uid not in uids]
        self._go_on(n, staying, now, self._costs.move)

    def settle(self, now: float) -> None:
        """Update the speed of jobs whose neighbours changed. The end of a job moves only if its speed changed."""
        asked, self.unsettled = self.unsettled, {}
        for n in asked:
            life = self.lives[n]
            if life.is_running and self._speed_of(n, life.places) != life.runs[-1].speed:
                self._go_on(n, life.places, now, 0.0)

    def _leave(self, n: int, what: str, now: float) -> None:
        places = self.lives[n].runs[-1].places
        self._note(now, what, n, places)
        self._take(n, places, -1)
        self.count -= 1
        self.departures.cancel(n)
        if self.endless:
            self.endless.pop(n, None)

    def _go_on(self, n: int, places: Sequence[Decision], now: float, pause: float) -> None:
        """Begin a new run of the job.

        A job that is still starting or moving does no work before that is over.
        """
        life = self.lives[n]
        works_from = max(life.runs[-1].works_from, now + pause)
        life.go_on(JobRun(now, works_from, self._speed_of(n, places), places))
        self._schedule(n)

    def _schedule(self, n: int) -> None:
        if n not in self.endless:
            self.departures.set(n, self.lives[n].ends_at)

    def _note(self, now: float, what: str, n: int, places: Sequence[Decision]) -> None:
        if self._log is not None:
            self._log.pods(now, what, self._jobs[n], places)

    def _speed_of(self, n: int, places: Sequence[Decision]) -> float:
        neighbours = self._neighbours(n, places) if self._model.reads_neighbours else ()
        speed = self._model.speed(self._jobs[n], places, neighbours)
        if not 0 <= speed < NEVER:
            raise ValueError(f"speed model {self._model.name}: {speed} for job {self._jobs[n].name} is no speed")
        if speed > 1:
            self.bound_holds = False
        return speed

    def _neighbours(self, n: int, places: Sequence[Decision]) -> list[PlacedJob]:
        cards = [share.uuid for decision in places for share in decision.shares]
        others = dict.fromkeys(other for card in cards for other in self._on_card.get(card, ()) if other != n)
        return [PlacedJob(self._jobs[other], self.lives[other].places) for other in others]

    def _take(self, n: int, places: Sequence[Decision], sign: int) -> None:
        """Add these places to what the job holds; with sign −1, remove them."""
        if not self._jobs[n].gpus:
            return
        for decision in places:
            self.pending.take(self._machine_of[str(decision.node)], decision.shares, sign)
            if self._model.reads_neighbours:
                self._note_cards(n, decision, sign)

    def _note_cards(self, n: int, decision: Decision, sign: int) -> None:
        for share in decision.shares:
            there = self._on_card.setdefault(share.uuid, {})
            there[n] = there.get(n, 0) + sign
            if not there[n]:
                del there[n]
            self.unsettled.update(dict.fromkeys(there))
