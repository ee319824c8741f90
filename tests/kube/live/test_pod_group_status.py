"""The status of PodGroups, as each kind's own scheduler would write it, and only when there is something new to say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.errors import error_of
from dovetail.kube.api.retry import World
from dovetail.kube.api.watch import Changed
from dovetail.kube.conversion.groups import GroupName
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.live.pod_group_objects import PodGroupObject
from dovetail.kube.live.pod_group_status import GangState, is_written, stamped, wanted
from dovetail.kube.live.pod_group_status_writer import ClusterTotals, PodGroupStatusWriter
from dovetail.kube.objects import bounds
from dovetail.kube.objects import core as objects
from dovetail.model.node import Node
from tests.builders import card, node
from tests.kube.live.stage import Stage, gpu_node
from tests.kube.live.test_gang_releases import holds, waits
from tests.kube.live.test_gangs import later, member

X, SIGS, VOLCANO = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "scheduling.volcano.sh"
KUBERNETES, KAI = "scheduling.k8s.io", "scheduling.run.ai"
SHORT = "1 of 3 members of ml/train fit"


def group(api_group: str, version: str = "v1alpha1", status: Any = None, **spec: Any) -> PodGroupObject:
    meta = {"name": "train", "namespace": "ml", "uid": "uid-train"}
    source = msgspec.convert({"metadata": meta, "spec": {"minMember": 3, **spec}, "status": status}, objects.PodGroup)
    return PodGroupObject(GroupName(api_group, "ml", "train"), version, source)


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (GangState(3, there=2), "Pending"),
        (GangState(3, there=3), "Scheduling"),
        (GangState(3, there=3, scheduled=2), "Scheduling"),
        (GangState(3, there=3, scheduled=3), "Scheduled"),
        (GangState(3, there=4, scheduled=3, running=3), "Running"),
        (GangState(3, there=3, scheduled=1, running=1, succeeded=2), "Running"),
        (GangState(3, there=3, scheduled=2, running=2, failed=1), "Failed"),
        (GangState(3, there=3, succeeded=3), "Finished"),
    ],
)
@pytest.mark.parametrize("api_group", [X, SIGS])
def test_coscheduling_says_the_phase_and_counts(api_group: str, state: GangState, phase: str) -> None:
    fields = wanted(group(api_group), state)
    counts = {"scheduled": state.scheduled, "running": state.running}
    assert fields == {"phase": phase, **counts, "succeeded": state.succeeded, "failed": state.failed}


def test_volcano_admits_a_group_and_then_says_how_it_goes() -> None:
    fields = wanted(group(VOLCANO), GangState(3))
    assert fields is not None
    assert fields["phase"] == "Inqueue"
    fields = wanted(group(VOLCANO), GangState(3, refused="8 of nvidia.com/gpu are asked for, all nodes have 4"))
    assert fields is not None
    assert fields["phase"] == "Pending"
    assert [(one["type"], one["reason"]) for one in fields["conditions"]] == [("Unschedulable", "NotEnoughResources")]
    waiting = group(VOLCANO, status={"phase": "Inqueue", "conditions": fields["conditions"]})
    fields = wanted(waiting, GangState(3, there=3, scheduled=3))
    assert fields is not None
    assert (fields["phase"], [one["type"] for one in fields["conditions"]]) == ("Running", ["Scheduled"])
    fields = wanted(waiting, GangState(3, there=3, scheduled=1, why=SHORT))
    assert fields is not None
    assert fields["phase"] == "Unknown"


def test_kubernetes_own_condition_stays_true() -> None:
    waiting, placed = GangState(3, there=3, why=SHORT), GangState(3, there=3, scheduled=3)
    assert wanted(group(KUBERNETES, "v1alpha2"), GangState(3, there=1)) is None
    said = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": SHORT}
    assert wanted(group(KUBERNETES, "v1alpha2"), waiting) == {"conditions": [said]}
    true = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    assert wanted(group(KUBERNETES, "v1alpha2"), placed) == {"conditions": [true]}
    before = {"conditions": [{**true, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    again = wanted(group(KUBERNETES, "v1alpha2", before), waiting)
    assert again == {"conditions": [true]}
    assert is_written(before, again)
    (later_version,) = (wanted(group(KUBERNETES, "v1beta1"), placed) or {})["conditions"]
    assert later_version["type"] == "PodGroupInitiallyScheduled"


def test_kai_says_it_only_while_no_member_has_a_node() -> None:
    other = {"type": "Other", "nodePool": "default"}
    before = {"schedulingConditions": [other]}
    fields = wanted(group(KAI, "v2alpha2", before), GangState(3, there=3, why=SHORT))
    assert fields is not None
    first, ours = fields["schedulingConditions"]
    assert first == other  # another program's condition stays
    assert (ours["type"], ours["reason"], ours["message"]) == ("UnschedulableOnNodePool", "Unschedulable", SHORT)
    now = {"schedulingConditions": [other, ours]}
    assert wanted(group(KAI, "v2alpha2", now), GangState(3, there=3, scheduled=3)) == {"schedulingConditions": [other]}


def test_times_of_conditions_change_with_their_status_only() -> None:
    said = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": SHORT}
    first = stamped(None, {"conditions": [said]}, 0.0)
    assert first["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    again = stamped(first, {"conditions": [{**said, "message": "another one"}]}, 60.0)
    assert again["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    assert not is_written(first, {"conditions": [{**said, "message": "another one"}]})
    assert is_written({"phase": "Pending"}, {"phase": "Pending", "running": 0})  # an absent count is 0
    assert not is_written("nonsense", {"phase": "Pending"})


@pytest.mark.parametrize(
    "other",
    [{"type": "Mine"}, {"type": [1], "status": {}, "lastTransitionTime": 5}, {"type": "Mine", "status": "True"}],
)
def test_conditions_of_others_stay_as_they_are(other: Any) -> None:
    one = group("scheduling.volcano.sh", "v1beta1", {"conditions": [other]})
    fields = wanted(one, GangState(2, there=2, scheduled=2))
    assert fields is not None
    first, own = stamped(one.source.status, fields, 0.0)["conditions"]
    assert first == other
    assert (own["type"], own["lastTransitionTime"]) == ("Scheduled", "1970-01-01T00:00:00Z")


class Server:
    """Remembers patches; may forbid them."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []
        self.forbids = False

    async def patch(self, path: str, body: Any, kind: str) -> bytes:
        if self.forbids:
            raise error_of(403, b'{"message": "podgroups/status is forbidden"}', path)
        self.patches.append((path, body["status"]))
        return b"{}"


def writer(stage: Stage, server: Server) -> PodGroupStatusWriter:
    api: Any = server
    stage.driver.releases.schedulers = frozenset({"dovetail"})
    world = World(now=lambda: stage.clock)
    return PodGroupStatusWriter(api, stage.driver, lambda: True, DEFAULT_VENDORS, stage.log, world)


def hears(stage: Stage, one: PodGroupObject) -> None:
    batch: list[Any] = [Changed(one.source)]
    stage.driver.happened(stage.mirror.hear_pod_groups(batch, one.name.api_group, one.version))


@pytest.mark.asyncio
async def test_the_writer_writes_changes_once_and_says_why_in_an_event() -> None:
    async with Stage() as stage:
        server = Server()
        writes = writer(stage, server)
        stage.nodes(gpu_node(cards=2))
        hears(stage, group(X))
        await stage.settle()
        await writes.write_some()
        assert server.patches == []  # no pod of ours names it
        stage.pods(*(member(name) for name in "abc"))
        await stage.settle()
        await later(stage)
        for _ in range(3):
            await writes.write_some()
        path = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ml/podgroups/train/status"
        assert server.patches == [
            (path, {"phase": "Scheduling", "scheduled": 0, "running": 0, "succeeded": 0, "failed": 0})
        ]
        (note,) = [note for note in stage.hands.notes if note.about is not None]
        assert (note.reason, note.warning) == ("Unschedulable", True)
        assert note.text.startswith("2 of 3 members of ml/train fit, 3 must start together")
        hears(stage, group(X, status={"phase": "Pending"}))  # another controller has its own opinion
        await writes.write_some()
        assert len(server.patches) == 1
        stage.pods(*(holds(name, card) for card, name in enumerate("ab")), waits("c"))
        await stage.settle()
        await writes.write_some()
        assert server.patches[-1][1]["scheduled"] == 2


@pytest.mark.asyncio
async def test_without_the_right_it_is_said_once_and_tried_again_later() -> None:
    async with Stage() as stage:
        server = Server()
        server.forbids = True
        writes = writer(stage, server)
        hears(stage, group(X))
        stage.pods(member("a"))
        await stage.settle()
        for _ in range(5):
            await writes.write_some()
        said = [line for line in stage.log if "deploy/optional/pod-group-status" in line]
        assert len(said) == 1
        server.forbids = False
        stage.clock += 1000
        await writes.write_some()
        assert [status["phase"] for _, status in server.patches] == ["Pending"]


@pytest.mark.asyncio
async def test_a_volcano_group_is_admitted_when_its_resources_fit_the_cluster() -> None:
    async with Stage() as stage:
        server = Server()
        writes = writer(stage, server)
        stage.nodes(gpu_node(cards=2))
        hears(stage, group(VOLCANO, "v1beta1", minResources={"nvidia.com/gpu": "3"}))
        await stage.settle()
        await writes.write_some()
        ((_, status),) = server.patches
        assert status["phase"] == "Pending"
        why = "spec.minResources: 3 of nvidia.com/gpu are asked for, all nodes have 2"
        assert status["conditions"][0]["message"] == why
        stage.nodes(gpu_node("m"))
        await stage.settle()
        await writes.write_some()
        assert server.patches[-1][1]["phase"] == "Inqueue"


@pytest.mark.asyncio
@pytest.mark.parametrize(("count", "phase"), [(64, "Inqueue"), (65, "Pending")])
async def test_resources_in_the_minimum_of_a_volcano_group(count: int, phase: str) -> None:
    async with Stage() as stage:
        server = Server()
        writes = writer(stage, server)
        hears(stage, group(VOLCANO, "v1beta1", minResources={f"example.com/r{n}": "0" for n in range(count)}))
        await writes.write_some()
        ((_, status),) = server.patches
        assert status["phase"] == phase
        assert (bounds.POD_GROUP_RESOURCES.exceeded(count) in str(status)) == (phase == "Pending")


def test_the_nodes_are_counted_once_for_all_resources() -> None:
    walks = []

    class Nodes(list[Node]):
        def __iter__(self) -> Iterator[Node]:
            walks.append(1)
            return super().__iter__()

    capacity = ClusterTotals(Nodes([node("n", card("a"), card("b"), cpu=4_000), node("m", cpu=1_000)]), DEFAULT_VENDORS)
    assert not walks
    found = [capacity.of(name) for name in ("cpu", "nvidia.com/gpu", "nvidia.com/gpumem", "example.com/none")]
    assert found == [5_000, 2, None, 0]
    assert all(capacity.of(f"example.com/r{n}") == 0 for n in range(50))
    assert len(walks) == 1


@pytest.mark.asyncio
async def test_without_the_right_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage() as stage:
        server, asked = Server(), list[str]()
        writes = writer(stage, server)
        monkeypatch.setattr(ClusterTotals, "of", lambda self, name: asked.append(name))
        server.forbids = True
        hears(stage, group(VOLCANO, "v1beta1", minResources={"cpu": "1"}))
        for _ in range(5):
            await writes.write_some()
        assert asked == ["cpu"]


@pytest.mark.asyncio
async def test_a_status_beyond_the_bound_is_neither_kept_nor_written() -> None:
    async with Stage() as stage:
        server = Server()
        writes = writer(stage, server)
        hears(stage, group(X, status={"conditions": ["x" * 40_000]}))
        stage.pods(member("a"))
        await stage.settle()
        await writes.write_some()
        assert server.patches == []
        assert stage.mirror.pod_groups.get(f"PodGroup/ml/train@{X}").source.status is None  # type: ignore[union-attr]
