"""The results of a replay as plain values: the format of `-o json`, of the cache on disk and of the report."""

from __future__ import annotations

import msgspec


class Column(msgspec.Struct, frozen=True):
    """The cluster when arrivals had asked for a given percent of its GPUs.

    All fields are percent of all GPU capacity, except `frag_ratio_pct`: percent of the idle GPU capacity.
    """

    allocated_pct: float
    frag_pct: float
    frag_ratio_pct: float


class ModelUse(msgspec.Struct, frozen=True):
    """The GPUs of one model at the end."""

    gpus: int
    allocated_pct: float
    idle: int  # GPUs without a pod


class NodeMap(msgspec.Struct, frozen=True):
    """One node at the end: the milli taken of each GPU."""

    name: str
    model: str
    gpus: list[int]


class Inflation(msgspec.Struct, frozen=True, kw_only=True, tag_field="mode", tag="inflation"):
    """The result of inflation mode: pods arrived one after another and stayed."""

    trace: str
    policy: str
    seed: int
    decisions: int
    failed: int  # pods that found no place
    arrived_pct: float  # demand of all arrivals, in percent of all GPU capacity
    seconds: float  # spent deciding
    decisions_per_second: float
    columns: dict[str, Column]  # "0", "1", … "130": by arrived percent
    nodes_free: int  # nodes with no pod
    gpus_free: int  # GPUs with no pod
    models: dict[str, ModelUse]
    map: list[NodeMap]


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Of a set of jobs: seconds from arrival to start, and from arrival to end."""

    jobs: int
    started: int
    mean: float
    p50: float
    p95: float
    p99: float
    longest: float
    completion_mean: float
    completion_p95: float


class Usage(Delays, frozen=True, kw_only=True):
    """Delays and GPU-hours of the jobs of one tenant or of one size."""

    gpu_hours: float
    gpu_hours_pct: float  # of all GPU-hours of the run


class GangMeasures(Delays, frozen=True, kw_only=True):
    """Of the jobs of several pods: delays, spread over racks, and waiting that only fragmentation explains."""

    racks_mean: float  # racks that a gang used in its first run; a node without a rack counts as a rack of its own
    racks_fewest_mean: float  # racks that it would have used on an empty cluster, counted by GPUs alone
    one_rack_pct: float  # of the gangs that started
    nodes_mean: float
    fragmented_wait_mean: float  # seconds that a gang waited while as many GPUs were idle as it asked for


class Sample(msgspec.Struct, frozen=True):
    """The cluster at a moment."""

    at: float  # seconds since the trace began
    allocated_pct: float  # of all GPU capacity
    waiting: int  # jobs


class Timed(msgspec.Struct, frozen=True, kw_only=True, tag_field="mode", tag="time"):
    """The result of time mode: jobs arrived, waited, ran and left. Hours are GPU-hours."""

    trace: str
    policy: str
    seed: int
    queue: str  # "backfill" or "strict"
    events: int
    seconds: float  # spent deciding
    decisions_per_second: float
    jobs: int
    finished: int
    never_placed: int
    makespan: float  # seconds from the first arrival to the last end
    delays: Delays
    by_tenant: dict[str, Usage]
    by_size: dict[str, Usage]  # "cpu only", "share", "1 GPU", "2-7 GPUs", "8+ GPUs"
    hours_capacity: float
    hours_allocated: float
    hours_idle_while_wanted: float
    hours_idle_while_wanted_bound: float  # no scheduler can do better than this
    samples: list[Sample]
    nodes_free: int  # at the busiest moment, like the five fields that follow
    gpus_free: int
    frag_pct: float  # of all GPU capacity
    frag_ratio_pct: float  # of the idle GPU capacity
    models: dict[str, ModelUse]
    map: list[NodeMap]
    stops: int = 0  # of the whole run, like all that follows: the number of stops; a job can be stopped several times
    moves: int = 0  # likewise
    hours_lost: float = 0.0  # held for nothing: while jobs were resumed or moved, and for work that was repeated
    order: str = "priority"  # the queue order
    preemption: str = "none"  # the policy by which jobs were stopped for others
    queues: str = ""  # where the queues come from; "" = there are none
    fairness_pct: float = 100.0  # mean of Jain's index of what tenants hold against what is fair
    fairness_samples: list[float] = []  # the index in equal parts of the run; empty if there is one tenant
    gangs: GangMeasures | None = None  # None = no job has several pods, or no machine a rack

    @property
    def has_rights(self) -> bool:
        """Whether the run used another order than priority, preemption, or queues."""
        return self.order != "priority" or self.preemption != "none" or bool(self.queues)


Result = Inflation | Timed
