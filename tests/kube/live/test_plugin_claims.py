"""What gpu-manager writes of the cards that it gave, and what the owner of a pod can do by writing the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from dovetail.cli.settings import KNOWN
from dovetail.kube.api.watch import Changed
from dovetail.kube.conversion import gpu_manager, gpushare
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.reader import PodReader
from dovetail.kube.objects import core as objects
from tests.kube.live.stage import read, waiting
from tests.kube.manifests import Object, container, node
from tests.kube.test_other_plugins import BLOCKS, CORE

POLICY = Path(__file__).parents[3] / "deploy" / "optional" / "records-policy" / "objects.yaml"
OURS = "dovetail.dev/vcuda-devices"


def part(index: int) -> str:
    return f"n/vcuda-{index},vcuda,256,30:;"


def whole(*indices: int) -> str:
    return "".join(f"n/vcuda-{index},vcuda,1024,100:" for index in indices) + ";"


class Cluster:
    """One node of four cards, and a pod that was bound there."""

    def __init__(self, record: str, *limits: Object) -> None:
        self.mirror = Mirror(PodReader({"dovetail": KNOWN}), lambda: 0.0)
        found = read_node(node("n", allocatable={CORE: 400, BLOCKS: 16}))
        self.mirror.hear_nodes([Changed(found)])
        self._containers = [container(own, name=f"c{number}") for number, own in enumerate(limits)]
        self._notes = {OURS: record, gpu_manager.ASSIGNED: "false"}
        self._version = 0
        self.says()

    def says(self, *cards: str) -> None:
        """The pod's annotations name these cards, as given by gpu-manager."""
        self._version += 1
        if cards:
            self._notes |= {gpu_manager.CARDS_OF + str(number): text for number, text in enumerate(cards)}
            self._notes[gpu_manager.ASSIGNED] = "true"
        item = waiting("p")
        item["metadata"] |= {"annotations": dict(self._notes), "resourceVersion": str(self._version)}
        item["spec"] |= {"containers": self._containers, "nodeName": "n"}
        self.mirror.hear_pods([Changed(read(item))])

    @property
    def booked(self) -> list[int]:
        (known,) = self.mirror.pods.values()
        assert known.running is not None
        return sorted(int(share.uuid.rpartition("-")[2]) for share in known.running.shares or ())

    @property
    def reported(self) -> list[str]:
        return [reason for _, reason, _ in self.mirror.reports]


def read_node(item: Object) -> objects.Node:
    return msgspec.convert(item, objects.Node)


def test_whole_cards_that_gpu_manager_chose_are_booked_and_reported_once() -> None:
    cluster = Cluster(whole(0), {CORE: 100})
    cluster.says("3")
    cluster.says()  # such as a new status
    assert (cluster.booked, cluster.reported, cluster.mirror.records_changed) == ([3], ["RecordChanged"], 1)


def test_gpu_manager_gives_the_containers_of_a_pod_their_cards_one_after_another() -> None:
    cluster = Cluster(whole(0) + whole(1), {CORE: 100}, {CORE: 100})
    cluster.says("2", "1")
    cluster.says("2", "3")
    assert cluster.booked == [2, 3]


@pytest.mark.parametrize("first", ["0", "2"])  # as bound, or gpu-manager's own choice
def test_what_gpu_manager_gave_cannot_be_moved_later(first: str) -> None:
    cluster = Cluster(whole(0), {CORE: 100})
    cluster.says(first)
    before = cluster.mirror.records_changed
    cluster.says("3")
    assert (cluster.booked, cluster.mirror.records_changed) == ([int(first)], before + 1)
    assert cluster.reported[-1] == "RecordChanged"


def test_the_cards_that_were_bound_are_no_change() -> None:
    cluster = Cluster(whole(0, 1), {CORE: 200})
    cluster.says("1,0")
    assert (cluster.booked, cluster.reported, cluster.mirror.records_changed) == ([0, 1], [], 0)


@pytest.mark.parametrize(
    ("record", "limits", "cards"),
    [
        (part(0), ({CORE: 30, BLOCKS: 1},), ("3",)),  # a part of a card
        (part(0) + whole(1), ({CORE: 30, BLOCKS: 1}, {CORE: 100}), ("2", "3")),
        (whole(0), ({CORE: 100},), ("4",)),  # the node has four
        (whole(0), ({CORE: 100},), ("9999",)),
        (whole(0) + whole(1, 2), ({CORE: 100}, {CORE: 200}), ("0", "x")),
        (whole(0) + whole(1, 2), ({CORE: 100}, {CORE: 200}), ("0", "")),
        (whole(0) + whole(1, 2), ({CORE: 100}, {CORE: 200}), ("0", "3")),  # one of two
        (whole(0) + whole(1, 2), ({CORE: 100}, {CORE: 200}), ("0", "3,3")),
        (whole(0) + whole(1), ({CORE: 100}, {CORE: 100}), ("3", "3")),  # two whole cards in one
    ],
)
def test_a_tenant_moves_and_hides_no_card(record: str, limits: tuple[Object, ...], cards: tuple[str, ...]) -> None:
    cluster = Cluster(record, *limits)
    bound = cluster.booked
    cluster.says(*cards)
    assert (cluster.booked, cluster.reported, cluster.mirror.records_changed) == (bound, ["RecordChanged"], 1)


def test_a_first_reading_counts_no_fewer_cards_than_the_pod_asks_for() -> None:
    cluster = Cluster(whole(0) + whole(1, 2), {CORE: 100}, {CORE: 200})
    cluster.mirror = Mirror(PodReader({"dovetail": KNOWN}), lambda: 0.0)  # after a restart
    cluster.says("0", "x")
    assert cluster.booked == [0, 1, 2]


def test_the_records_policy_covers_the_annotations_of_other_plugins() -> None:
    policy, _ = yaml.safe_load_all(POLICY.read_text(encoding="utf-8"))
    (records,) = [one["expression"] for one in policy["spec"]["variables"] if one["name"] == "records"]
    assert all(f'"{name}"' in records for name in (*gpushare.WRITTEN, gpu_manager.ASSIGNED))
    rules = [one["expression"] for one in policy["spec"]["validations"]]
    names = (gpu_manager.CARDS_OF, gpu_manager.PREDICATE_TIME, gpu_manager.PREDICATE_NODE)
    assert sum('k.startsWith("tencent.com/predicate-")' in rule for rule in rules) == 2
    assert all(name.startswith("tencent.com/predicate-") for name in names)
