"""Requests that replicas share: read once for each template, and the same as if each pod were read alone."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from dovetail.kube.conversion import templates
from dovetail.kube.conversion.cluster import ClusterInput, load
from dovetail.kube.conversion.reading import asked_by
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.templates import TemplateDigests
from dovetail.kube.files.documents import parse
from dovetail.kube.objects import bounds
from dovetail.kube.objects.problems import Problem, Problems
from tests.kube.manifests import ALLOCATED, GPU, MEM, Object, card, container, node, pod

TOO_MANY = [{"name": f"v{n}"} for n in range(bounds.VOLUMES.most + 1)]
LABEL = {"matchLabels": {"app": "a"}}


def read(objects: list[Object], strict: bool = False) -> ClusterInput:
    problems = Problems(strict)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return load(parse("a.json", text, problems), Settings(), problems)


def variants() -> list[Object]:
    """Pods that differ from a plain one in one respect each, twice: waiting, and on a node."""
    asks = container({GPU: 1, MEM: 1000})
    record = {ALLOCATED: "GPU-a,NVIDIA,1000,0:;"}
    metas: list[Object] = [
        {},
        {"annotations": {"nvidia.com/use-gputype": "H100"}},
        {"annotations": {"hami.io/gpu-scheduler-policy": "nonsense"}},
        {"annotations": {"nvidia.com/use-gpu-type": "H100"}},  # a slip
        {"annotations": {"pod-group.scheduling.sigs.k8s.io": "g"}},  # a label written as an annotation
        {"annotations": {"dovetail.dev/nothing": "x"}},
        {"annotations": {"hami.io/bind-phase": "success"}},
        {"labels": {"nvidia.com/use-gputype": "H100"}},
        {"namespace": "other"},
    ]
    specs: list[Object] = [
        {"nodeSelector": {"zone": "a"}},
        {"volumes": TOO_MANY},
        {"priority": 5},
        {"priorityClassName": "unknown"},
        {"schedulerName": "dovetail"},
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
    ]
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": LABEL}
    by_label = {"topologySpreadConstraints": [{**spread, "matchLabelKeys": ["version"]}]}
    nowhere: Object = {}
    given = [(meta, nowhere) for meta in metas] + [(nowhere, spec) for spec in specs]
    given += [(nowhere, {"containers": [container({GPU: 10**n})]}) for n in (30, 31)]
    given += [({"labels": {"version": "1"}}, by_label), ({"labels": {"version": "2"}}, by_label)]
    found, numbers = [], count()
    for meta, spec in given:
        for where in (nowhere, {"nodeName": "n"}):
            n = next(numbers)
            notes = {**meta.get("annotations", {}), **(record if where else {})}
            found.append(pod(f"p{n}", asks, meta={**meta, "annotations": notes, "uid": f"u{n}"}, **spec, **where))
    return found


@pytest.mark.parametrize("strict", [False, True])
def test_pods_are_read_as_if_each_were_alone(monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    objects = [node("n", card("GPU-a")), *variants()]
    shared = read(objects, strict)
    numbers = count()
    monkeypatch.setattr(TemplateDigests, "digest", lambda *_: str(next(numbers)).encode())
    assert shared == read(objects, strict)
    assert len(shared.problems) >= 10


def test_replicas_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read_pods: list[str] = []

    def noted(source: Any, *rest: Any) -> Any:
        read_pods.append(source.metadata.name)
        return asked_by(source, *rest)

    monkeypatch.setattr(templates, "asked_by", noted)
    asks = container({GPU: 1, MEM: 1000})
    there = [
        pod(f"p{n}", asks, meta={"uid": f"u{n}", "annotations": {ALLOCATED: f"GPU-{n},NVIDIA,1000,0:;"}}, nodeName="n")
        for n in range(5)
    ]
    given = read([node("n", *(card(f"GPU-{n}") for n in range(5))), *there])
    assert read_pods == ["p0"]
    assert [one.shares[0].uuid for one in given.running if one.shares] == [f"GPU-{n}" for n in range(5)]
    assert len({id(one.pod.containers) for one in given.running}) == 1


def test_what_is_wrong_with_a_template_is_said_of_each_pod() -> None:
    wrong = {"hami.io/gpu-schedular-policy": "binpack"}
    given = read([pod(f"p{n}", meta={"uid": f"u{n}", "annotations": wrong}) for n in range(2)])
    said: list[Problem] = [one for one in given.problems if "did you mean" in one.message]
    assert [one.where for one in said] == ["a.json#1 Pod default/p0", "a.json#2 Pod default/p1"]
