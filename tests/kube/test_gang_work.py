"""The work for gangs that wait: names are read as one gang each, and a question costs no more than its answer."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from dovetail.kube.conversion import gangs as gangs_module
from dovetail.kube.conversion import stated_terms
from dovetail.kube.conversion.gangs import Gangs
from dovetail.kube.conversion.groups import WORKLOADS, GroupName, group_name, together
from dovetail.kube.conversion.stated_terms import StatedTerms
from dovetail.kube.objects.gangs import PodGroup
from dovetail.kube.objects.queues import KOORDINATOR
from dovetail.model.gang import GangTerms, Role
from dovetail.model.pod import Pod
from tests.kube.manifests import Object, pod
from tests.kube.test_gang_kinds import koordinator, notes, only_group


class Lookups:
    """How often the terms of an object are looked up."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, real = 0, StatedTerms._object

        def counted(terms: StatedTerms, key: str) -> GangTerms | None:
            self.count += 1
            return real(terms, key)

        patch.setattr(StatedTerms, "_object", counted)


def waiting(gangs: Gangs, *names: GroupName) -> None:
    for number, name in enumerate(names):
        gangs.waits(Pod(name.namespace, f"p{number}", f"u{number}", group=name.key))


def annotated(key: str, name: str) -> Object:
    return {"annotations": {key: name}}


@pytest.mark.parametrize(
    "meta",
    [
        notes(gang="a+b:c+d", gang_size="1"),
        annotated("scheduling.k8s.io/group-name", "a+b:c+d"),
        annotated("pod-group-name", "a+b:c+d"),
        koordinator("a+b:c+d", min_available="1"),
    ],
)
def test_a_name_that_a_tenant_writes_is_one_gang(meta: Object) -> None:
    name = group_name(only_group(pod(meta=meta)).name)
    assert name.parts == (name,)


@pytest.mark.parametrize("meta", [notes(gang="a+b", gang_size="1"), koordinator("a+b", min_available="1")])
def test_a_gang_with_a_plus_in_its_name_is_placed(meta: Object) -> None:
    group = only_group(pod(meta=meta))
    assert (group.minimum, group.roles, group.pods[0].refusal) == (1, (), None)


def test_an_unknown_gang_that_waits_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name = together(GroupName(KOORDINATOR, "ml", f"g{number}") for number in range(64))
    gangs = Gangs()
    waiting(gangs, name)
    lookups = Lookups(monkeypatch)
    assert gangs.minimum(name.key) == 0
    first = lookups.count
    assert [gangs.minimum(name.key) for _ in range(10)] == [0] * 10
    assert lookups.count == first
    gangs.forget("u0")
    assert gangs.minimum(name.key) == 0
    assert gangs._terms._merged == {}


def described(gangs: Gangs, name: GroupName, minimum: int) -> list[str]:
    meta = {"namespace": name.namespace, "name": name.name}
    source = msgspec.convert({"metadata": meta, "spec": {"minMember": minimum}}, PodGroup)
    return gangs.set_group(name, source, lambda *_: None)


def test_a_new_pod_group_costs_nothing_for_gangs_that_it_does_not_describe(monkeypatch: pytest.MonkeyPatch) -> None:
    gangs, names = Gangs(), [GroupName(KOORDINATOR, "ml", f"g{number}") for number in range(50)]
    waiting(gangs, *names)
    assert all(gangs.minimum(name.key) == 0 for name in names)
    lookups, read = Lookups(monkeypatch), Counter[str]()
    for module in (gangs_module, stated_terms):
        monkeypatch.setattr(module, "group_name", lambda key: (read.update([key]), group_name(key))[1])
    assert described(gangs, names[0], 2) == [names[0].key]
    assert [gangs.minimum(name.key) for name in names] == [2] + [0] * 49
    assert set(read) == {names[0].key}
    assert lookups.count == 3  # before, after, and for the one gang


def test_a_pod_group_is_news_for_all_gangs_that_start_with_it() -> None:
    """Also for one whose pods have nodes and say something, and for none whose pods are gone."""
    one, two, far = (GroupName(KOORDINATOR, space, name) for space, name in (("ml", "a"), ("ml", "b"), ("x", "c")))
    gangs, pairs = Gangs(), [together((one, two)), together((one, far))]
    waiting(gangs, *pairs)
    part = GangTerms(0, (Role(two.title, 2),))
    gangs.holds(Pod("ml", "held", "held", group=pairs[0].key, terms=part))
    assert described(gangs, one, 1) == [one.key, pairs[0].key, pairs[1].key]
    assert [gangs.minimum(pair.key) for pair in pairs] == [3, 0]
    gangs.forget("u0")
    assert described(gangs, one, 4) == [one.key, pairs[1].key]
    assert gangs.minimum(pairs[0].key) == 6
    gangs.forget("u1")
    gangs.gone(Pod("ml", "held", "held", group=pairs[0].key))
    assert (gangs._terms._sharing, set(gangs._terms._merged)) == ({}, set())


def test_replicas_of_a_group_in_a_workload_are_found_by_their_object() -> None:
    gangs = Gangs()
    own, other = GroupName(WORKLOADS, "ml", "w/g"), GroupName(WORKLOADS, "ml", "v/g")
    waiting(gangs, own._replace(name="w/g/0"), own._replace(name="w/g/1"), other._replace(name="v/g/0"), own)
    assert gangs._sharing(own.key) == [own._replace(name=f"w/g/{number}").key for number in range(2)]
