"""What is written into the status of ElasticQuotas and Queues, and when nothing is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dovetail.kube.api.errors import ApiError, Forbidden
from dovetail.kube.api.retry import World
from dovetail.kube.api.watch import Changed, Replaced
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.live.queue_mirror import QueueMirror
from dovetail.kube.live.queue_status_writer import FORBIDDEN_SECONDS, MAX_STATUS_WRITES, QueueStatusWriter
from dovetail.kube.log import INFO, Level
from dovetail.kube.objects.queues import KAI_GROUP, SCHEDULER_PLUGINS, VOLCANO_GROUP, KaiQueue, VolcanoQueue
from tests.kube.live.test_queue_watches import quota


@dataclass
class Status:
    used: dict[str, int]

    @property
    def wanted(self) -> dict[str, int]:
        """One GPU more is asked for."""
        return {**self.used, "gpus": self.used.get("gpus", 0) + 1_000}


@dataclass
class Bench:
    """A writer without a server, and a clock that stands."""

    used: dict[str, dict[str, int]] = field(default_factory=dict)
    leads: bool = True
    now: float = 0.0
    refuses: ApiError | None = None
    sent: list[tuple[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mirror = QueueMirror(lambda: 0.0, DEFAULT_VENDORS)
        self.writer = QueueStatusWriter(
            self,  # type: ignore[arg-type]
            self.mirror,
            lambda name: Status(self.used[name]) if name in self.used else None,
            lambda: self.leads,
            DEFAULT_VENDORS,
            self.log,
            World(now=lambda: self.now),
        )

    def log(self, line: str, level: Level = INFO, /, **fields: str | int | float | bool) -> None:
        self.lines.append(line)

    async def patch(self, path: str, body: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.sent.append((path, body["status"]))

    def writes(self) -> list[tuple[str, Any]]:
        self.sent = []
        asyncio.run(self.writer.write_some())
        return self.sent


def test_used_of_an_elastic_quota_has_the_names_of_its_spec() -> None:
    bench = Bench({"ElasticQuota/ml/q": {"gpus": 1_500, "cpu": 4_000, "gpu-memory": 8_000, "memory": 2**30}})
    given = quota("q", min={"nvidia.com/gpu": 4, "cpu": 8}, max={"nvidia.com/gpumem": 80_000})
    bench.mirror.hear(SCHEDULER_PLUGINS, [Replaced([given], [])])
    path = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ml/elasticquotas/q/status"
    used = {"nvidia.com/gpu": "1500m", "cpu": "4", "nvidia.com/gpumem": "8000"}
    assert bench.writes() == [(path, {"used": used})]  # memory is not among its resources


def test_only_a_difference_is_written() -> None:
    bench = Bench({"ElasticQuota/ml/q": {"cpu": 2_000}})
    bench.mirror.hear(SCHEDULER_PLUGINS, [Replaced([quota("q", min={"cpu": 8}, used=2)], [])])
    assert bench.writes() == []
    bench.used["ElasticQuota/ml/q"] = {"cpu": 2_500}
    assert [status for _, status in bench.writes()] == [{"used": {"cpu": "2500m"}}]
    bench.mirror.hear(SCHEDULER_PLUGINS, [Changed(quota("q", min={"memory": 8}, used=2))])
    bench.used["ElasticQuota/ml/q"] = {"memory": 4}
    assert [status for _, status in bench.writes()] == [{"used": {"cpu": None, "memory": "4"}}]


def test_allocated_of_volcano_and_kai() -> None:
    bench = Bench({"volcano/ml": {"gpus": 2_000}, "kai/team": {"gpus": 500, "cpu": 1_000, "memory": 10}})
    spec = {"capability": {"nvidia.com/gpu": 4}}
    ml = msgspec.convert({"metadata": {"name": "ml"}, "spec": spec}, VolcanoQueue)
    team = msgspec.convert({"metadata": {"name": "team"}}, KaiQueue)
    bench.mirror.hear(VOLCANO_GROUP, [Replaced([ml], [])])
    bench.mirror.hear(KAI_GROUP, [Replaced([team], [])])
    assert sorted(bench.writes()) == [
        (
            "/apis/scheduling.run.ai/v2/queues/team/status",
            {
                "allocated": {"nvidia.com/gpu": "500m", "cpu": "1", "memory": "10"},
                "requested": {"nvidia.com/gpu": "1500m", "cpu": "1", "memory": "10"},
            },
        ),
        ("/apis/scheduling.volcano.sh/v1beta1/queues/ml/status", {"allocated": {"nvidia.com/gpu": "2"}}),
    ]


def test_only_the_leader_writes() -> None:
    bench = Bench({"ElasticQuota/ml/q": {"cpu": 1_000}}, leads=False)
    bench.mirror.hear(SCHEDULER_PLUGINS, [Replaced([quota("q", min={"cpu": 8})], [])])
    assert bench.writes() == []


def test_a_few_at_a_time_and_all_in_their_turn() -> None:
    names = [f"n{n}" for n in range(2 * MAX_STATUS_WRITES + 5)]
    bench = Bench({f"ElasticQuota/{name}/q": {"cpu": 1_000} for name in names})
    bench.mirror.hear(SCHEDULER_PLUGINS, [Replaced([quota("q", name, min={"cpu": 8}) for name in names], [])])
    rounds = [bench.writes() for _ in range(3)]
    assert [len(one) for one in rounds[:2]] == [MAX_STATUS_WRITES, MAX_STATUS_WRITES]
    assert len({path for one in rounds for path, _ in one}) == len(names)


def test_a_missing_permission_is_said_once_and_tried_again_later() -> None:
    bench = Bench({"ElasticQuota/ml/q": {"cpu": 1_000}}, refuses=Forbidden("no"))
    bench.mirror.hear(SCHEDULER_PLUGINS, [Replaced([quota("q", min={"cpu": 8})], [])])
    bench.writes()
    bench.refuses = None
    assert bench.writes() == []
    assert len(bench.lines) == 1
    assert "kubectl apply -k deploy/optional/queue-status" in bench.lines[0]
    bench.now = FORBIDDEN_SECONDS + 1
    assert len(bench.writes()) == 1
