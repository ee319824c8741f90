"""PodGroups as they are reported: what is wrong with one is told once, in a few lines, and forgotten with it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.gangs import Gangs
from dovetail.kube.conversion.groups import Standing
from dovetail.kube.live.pod_group_mirror import MOST_PROBLEMS, PodGroupMirror
from dovetail.kube.live.pod_group_objects import PodGroupObjects
from dovetail.kube.objects.gangs import GangObject, PodGroup, PodGroupSpec
from dovetail.kube.objects.problems import Problem
from dovetail.kube.objects.queues import KAI_GROUP

VERSION = "v2alpha2"


def group(name: str = "train", **spec: Any) -> PodGroup:
    return msgspec.convert({"metadata": {"name": name, "namespace": "ml"}, "spec": spec}, PodGroup)


class Heard:
    """A mirror of KAI's PodGroups, and what it said."""

    def __init__(self) -> None:
        self.told: list[Problem] = []
        self._mirror = PodGroupMirror(Gangs(), lambda fault: pytest.fail(str(fault)), self.told.extend)

    def hear(self, event: Event[GangObject], version: str = VERSION) -> int:
        """How many problems are told."""
        self.told.clear()
        self._mirror.hear([event], KAI_GROUP, version, Standing.LISTED)
        return len(self.told)

    @property
    def kept(self) -> int:
        return len(self._mirror._said)


@pytest.mark.parametrize("gone", [Deleted(Ref("ml", "train", "u"), None), Replaced([], []), NotServed()])
def test_what_was_wrong_with_an_object_is_forgotten_with_it(gone: Event[GangObject]) -> None:
    heard, wrong = Heard(), group(minMember=-1)
    assert [heard.hear(Changed(wrong)), heard.hear(Changed(wrong)), heard.kept] == [1, 0, 1]
    heard.hear(gone, "v2")  # another version, which did not report it
    assert heard.hear(Changed(wrong)) == 0
    heard.hear(gone)
    assert heard.kept == 0
    assert heard.hear(Changed(wrong)) == 1


def sub_groups(chain: int, leaves: int) -> list[dict[str, Any]]:
    """Groups above one another, and leaves below the lowest; no level can be read."""
    rule = {"topologyConstraint": {"requiredTopologyLevel": "!!"}}
    above = [{"name": f"c{n}", "parent": f"c{n - 1}" if n else "", **rule} for n in range(chain)]
    return [*above, *({"name": f"l{n}", "parent": f"c{chain - 1}", **rule} for n in range(leaves))]


def test_each_mistake_of_a_sub_group_is_told_once() -> None:
    heard = Heard()
    assert heard.hear(Changed(group(minMember=1, subGroups=sub_groups(3, 3)))) == 6
    assert len(set(heard.told)) == 6


def test_an_object_with_many_mistakes_has_few_messages() -> None:
    heard, many = Heard(), group(minMember=1, subGroups=sub_groups(20, 20))
    assert heard.hear(Changed(many)) == MOST_PROBLEMS + 1
    assert heard.told[-1].message == "has 20 further problems, which are not listed"
    assert heard.hear(Changed(many)) == 0


def test_of_a_spec_only_what_is_read_later_is_kept() -> None:
    """A PodGroup may have a MiB of sub-groups and tasks; thousands of PodGroups are kept."""
    read: dict[str, Any] = {"minResources": {"cpu": "1"}, "scheduleTimeoutSeconds": 60}
    many: dict[str, Any] = {"minTaskMember": {f"t{n}": 1 for n in range(100)}}
    many["networkTopology"] = {"highestTierName": "x" * 100}
    known = PodGroupObjects()
    source = group(minMember=1, subGroups=sub_groups(50, 50), queue="q" * 1_000, **read, **many)
    known.hear([Changed(source)], KAI_GROUP, VERSION)
    ((_, found),) = known
    assert found.source.spec == PodGroupSpec(min_resources={"cpu": "1"}, schedule_timeout_seconds=60, queue="q" * 254)
