"""The history of a cluster → a trace: nodes become machines, pods and gangs become jobs. What is lost is named.

A trace has fewer words than Kubernetes. A pod that it cannot express is left out; a pod of which it can only express a
part is imported with a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dovetail.model.gang import ANYWHERE, NO_TERMS, GangTerms
from dovetail.model.node import CPU, MEMORY
from dovetail.model.pod import DAEMON_SET, group_title
from dovetail.sim.cast import MIB
from dovetail.sim.fleet import Fleet
from dovetail.sim.pod_names import pod_names
from dovetail.sim.racks import LEVEL_LABELS
from dovetail.sim.requested import NotOfATrace, Requested, requested
from dovetail.sim.trace import Job, Machine, Trace
from dovetail.whatif.history import ClusterHistory, PastPod

DAEMON = "made by a DaemonSet for one node: CPU and memory are taken off the machine"
DAEMON_WITH_GPUS = "made by a DaemonSet for one node, with GPUs: CPU and memory are taken off the machine"
NEVER_PLACED = "ended before it got a node"
STILL_RUNNING = "had not ended (--running skip)"
GONE_SINCE = "missing in a later dump: it ends when it was last seen"
PART_OF_GANG = "member of a gang beyond its minimum: a job of its own"
ROLES_AS_ONE = "gang with minimums of roles: all its members start together"
RULES_OF_GANG = "topology rule that a trace has not"
LONGEST_JOB_NAME = 240


class Running(StrEnum):
    """What becomes of pods that had not ended."""

    UNTIL_NOW = "until-now"  # they end when they were last seen
    FOREVER = "forever"  # they have no end
    SKIP = "skip"  # they are left out


@dataclass(slots=True)
class ImportedTrace:
    """The trace, and what it does not say."""

    trace: Trace = field(default_factory=lambda: Trace("imported", (), ()))
    begin: float = 0.0  # the arrival of the first job, in seconds since the epoch
    end: float = 0.0  # when a pod was last seen
    unfinished: list[str] = field(default_factory=list)  # jobs with pods that had not ended
    left_out: dict[str, list[str]] = field(default_factory=dict)  # why -> objects
    remarks: dict[str, list[str]] = field(default_factory=dict)  # what is different -> objects

    def leave_out(self, why: str, *titles: str) -> None:
        self.left_out.setdefault(why, []).extend(titles)

    def remark(self, what: str, *titles: str) -> None:
        self.remarks.setdefault(what, []).extend(titles)


@dataclass(frozen=True, slots=True)
class _Life:
    """A pod that is imported, in terms of a trace."""

    past: PastPod
    asks: Requested

    @property
    def begin(self) -> float:
        """When it got its node; of a pod that waits to the end, when it came."""
        return self.past.arrived if self.past.placed is None else self.past.placed

    def seconds(self, running: Running) -> float | None:
        """How long it ran; None = it has no end."""
        if self.past.gone is None and running is Running.FOREVER:
            return None
        return max((self.past.seen if self.past.gone is None else self.past.gone) - self.begin, 0.0)


def imported(history: ClusterHistory, running: Running) -> ImportedTrace:
    """The trace of a history."""
    result = ImportedTrace()
    for why, titles in history.left_out.items():
        result.leave_out(why, *titles)
    fleet = Fleet(history.nodes)
    for what, names in fleet.remarks.items():
        result.remark(what, *names)
    lives = []
    for past in history.pods:
        try:
            lives.append(_life(past, fleet, running))
        except NotOfATrace as error:
            result.leave_out(str(error), past.pod.key)
    for life in lives:
        for remark in (*life.asks.remarks, *([GONE_SINCE] if life.past.gone_since else [])):
            result.remark(remark, life.past.pod.key)
    jobs = _Jobs(running, result).of(lives, history.gangs)
    result.begin = min((job.arrival for job in jobs), default=0.0)
    result.end = max((past.seen for past in history.pods), default=0.0)
    jobs = [replace(job, arrival=job.arrival - result.begin) for job in jobs]
    machines = tuple(_without_daemons(machine, history.pods) for machine in fleet.machines)
    result.trace = Trace("imported", machines, tuple(sorted(jobs, key=lambda job: job.arrival)))
    return result


def _life(past: PastPod, fleet: Fleet, running: Running) -> _Life:
    """The pod as a job has it. Raises NotOfATrace."""
    pod = past.pod
    if pod.owner.startswith(DAEMON_SET):
        raise NotOfATrace(DAEMON_WITH_GPUS if pod.wants_devices else DAEMON)
    if past.placed is None and past.gone is not None:
        raise NotOfATrace(NEVER_PLACED)
    if past.gone is None and running is Running.SKIP:
        raise NotOfATrace(STILL_RUNNING)
    return _Life(past, requested(pod, fleet, past.node))


def _without_daemons(machine: Machine, pods: Iterable[PastPod]) -> Machine:
    """The machine without the CPU and memory of the DaemonSets' pods that were on it at the end."""
    there = [
        past.pod.resources
        for past in pods
        if past.node == machine.name and past.gone is None and past.pod.owner.startswith(DAEMON_SET)
    ]
    cpu = machine.cpu_milli - sum(amounts.get(CPU, 0) for amounts in there)
    memory = machine.memory_mib - sum(-(-amounts.get(MEMORY, 0) // MIB) for amounts in there)
    return replace(machine, cpu_milli=max(cpu, 0), memory_mib=max(memory, 0))


class _Jobs:
    """Makes jobs with names that differ."""

    def __init__(self, running: Running, result: ImportedTrace) -> None:
        self._running, self._result = running, result
        self._taken: set[str] = set()  # names of jobs and of their pods

    def of(self, lives: Sequence[_Life], gangs: Mapping[str, GangTerms]) -> list[Job]:
        found: list[Job] = []
        members: dict[str, list[_Life]] = {}
        for life in lives:
            if gangs.get(life.past.pod.group, NO_TERMS).minimum > 1:
                members.setdefault(life.past.pod.group, []).append(life)
            else:
                found += self._alone(life)
        for name, all_of in members.items():
            for some in _generations(all_of):
                found += self._gang(name, some, gangs[name])
        return found

    def _alone(self, life: _Life) -> list[Job]:
        return [self._job(life.past.pod.key, [life], life.past.arrived)]

    def _gang(self, name: str, lives: Sequence[_Life], terms: GangTerms) -> list[Job]:
        """The jobs of the members that exist together: those that start together, and the others."""
        title, needed = group_title(name), lives if terms.roles else lives[: terms.minimum]
        late = lives[len(needed) :]
        for one in late:
            self._result.remark(PART_OF_GANG, one.past.pod.key)
        if terms.roles and len(lives) > terms.minimum:
            self._result.remark(ROLES_AS_ONE, title)
        alike: dict[Requested, list[_Life]] = {}
        for life in needed:
            alike.setdefault(replace(life.asks, remarks=()), []).append(life)
        arrival = max(life.past.arrived for life in needed)
        jobs = [self._job(title, some, arrival) for some in alike.values()]
        if len(jobs) > 1:
            gang = jobs[0].name
            jobs = [replace(job, gang=gang) for job in jobs]
        elif len(needed) > 1:
            jobs = [self._with_rule(jobs[0], terms, title)]
        if len(jobs) > 1 and (terms.topology != ANYWHERE or any(role.topology != ANYWHERE for role in terms.roles)):
            self._result.remark(RULES_OF_GANG, title)
        return [*jobs, *(job for one in late for job in self._alone(one))]

    def _with_rule(self, job: Job, terms: GangTerms, title: str) -> Job:
        """The job of a gang with its topology rule, as far as it is about blocks, racks and hosts."""
        levels = {label: level for level, label in LEVEL_LABELS.items()}
        rule = terms.topology
        labels = {label for label in (rule.required, rule.preferred) if label}
        if labels - levels.keys() or rule.spreads:
            self._result.remark(RULES_OF_GANG, title)
        return replace(job, required=levels.get(rule.required, ""), preferred=levels.get(rule.preferred, ""))

    def _job(self, title: str, lives: Sequence[_Life], arrival: float) -> Job:
        """One job of equal pods. It runs as long as the longest of them."""
        first, seconds = lives[0], [life.seconds(self._running) for life in lives]
        known = [one for one in seconds if one is not None]
        job = first.asks.job(self._name(title, len(lives)))
        if any(life.past.gone is None for life in lives):
            self._result.unfinished.append(job.name)
        return replace(
            job,
            arrival=arrival,
            duration=max(known) if len(known) == len(seconds) else None,
            priority=first.past.pod.priority,
            pods=len(lives),
            tenant=first.past.pod.namespace,
        )

    def _name(self, title: str, pods: int) -> str:
        """The title, or with a number if a job or a pod has it already: `ml/train:2`."""
        number, name = 1, title[:LONGEST_JOB_NAME]
        while not self._taken.isdisjoint((name, *pod_names(Job(name, pods=pods)))):
            number += 1
            name = f"{title[:LONGEST_JOB_NAME]}:{number}"
        self._taken.update((name, *pod_names(Job(name, pods=pods))))
        return name


def _generations(lives: Sequence[_Life]) -> list[list[_Life]]:
    """Members by whether they existed together: a controller makes new pods with the gang's name after some ended."""
    found: list[list[_Life]] = []
    ends = float("-inf")
    for life in sorted(lives, key=lambda one: (one.past.arrived, one.past.pod.name, one.past.pod.uid)):
        if life.past.arrived >= ends:
            found.append([])
            ends = float("inf")
        found[-1].append(life)
        if life.past.gone is not None:
            ends = min(ends, life.past.gone)
    return found
