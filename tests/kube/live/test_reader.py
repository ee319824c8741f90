"""What is read once: a template for all its pods, bound ones too, and a node that only sends heartbeats."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted
from dovetail.kube.conversion import reading
from dovetail.kube.conversion.forecasts import NETWORK_KEYS
from dovetail.kube.conversion.requests import pod_from
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.reader import PodReader
from dovetail.kube.objects import core as objects
from dovetail.model.events import NodeChanged, NodeGone
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from tools.controlplane.objects import gpu_limits, node, pod


def _reader() -> PodReader:
    return PodReader({"dovetail": Settings()})


def _pod(name: str = "a", **changes: Any) -> objects.Pod:
    made = pod(name, gpu_limits(1, memory=1024), labels={"app": "web"}, **changes.pop("spec", {}))
    made["metadata"] |= {"uid": name, "resourceVersion": "1", **changes}
    return msgspec.convert(made, objects.Pod)


def _node(version: str, **changes: Any) -> Changed[objects.Node]:
    made = node("n", gpus=2)
    made["metadata"] |= {"uid": "n", "resourceVersion": version}
    made["status"]["conditions"][0] |= {"lastHeartbeatTime": version}
    for path, value in changes.items():
        made["metadata"][path] = value
    return Changed(msgspec.convert(json.loads(json.dumps(made)), objects.Node))


SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


@pytest.mark.parametrize("spec", [{}, SPREAD])
def test_a_bound_pod_is_read_by_the_template_it_waited_with(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, read = _reader(), list[int]()

    def counted(*words: Any) -> Pod:
        read.append(1)
        return pod_from(*words)

    monkeypatch.setattr(reading, "pod_from", counted)
    waiting = reader.pod(_pod(spec=spec)).pod
    given = {
        "hami.io/vgpu-node": "n",
        "hami.io/vgpu-time": "1",
        "hami.io/bind-phase": "success",
        "hami.io/bind-time": "1",
        "hami.io/vgpu-devices-to-allocate": "GPU-n-0,NVIDIA,1024,0:;",
        "hami.io/vgpu-devices-allocated": "GPU-n-0,NVIDIA,1024,0:;",
        "dovetail.dev/epoch": "1.x",
    }
    labels = {"app": "web", "hami.io/vgpu-node": "n", "topology.kubernetes.io/zone": "a"}  # the server copies zones
    bound, _ = reader.running(_pod(spec={**spec, "nodeName": "n"}, annotations=given, labels=labels))
    assert bound.running.pod == replace(waiting, labels={"app": "web", "topology.kubernetes.io/zone": "a"})
    assert bound.record is not None
    assert [share.uuid for share in bound.record] == ["GPU-n-0"]
    assert len(read) == 1


def test_a_pod_that_waits_is_not_tied_to_the_node_of_one_that_runs() -> None:
    reader = _reader()
    reader.running(_pod("runs", spec={"nodeName": "n"}))
    assert reader.pod(_pod("waits")).pod.node_rules.node_name == ""


def test_rules_that_take_over_a_label_are_read_for_each_of_its_values() -> None:
    reader, keyed = _reader(), {**SPREAD["topologySpreadConstraints"][0], "matchLabelKeys": ["version"]}
    read = [
        reader.pod(_pod(name, spec={"topologySpreadConstraints": [keyed]}, labels={"app": "web", "version": name})).pod
        for name in ("a", "b")
    ]
    assert read[0].relations != read[1].relations


def test_what_a_pod_asks_for_by_annotation_is_another_template() -> None:
    reader = _reader()
    plain = reader.pod(_pod()).pod
    picky = reader.pod(_pod(annotations={"nvidia.com/use-gputype": "A100"})).pod
    assert plain.device_rules != picky.device_rules


@pytest.mark.parametrize("name", NETWORK_KEYS)
def test_the_network_load_that_a_pod_states_is_part_of_its_template(name: str) -> None:
    reader = _reader()
    assert [reader.pod(_pod(annotations={name: text})).pod.network_kbit for text in ("1", "900")] == [1_000, 900_000]


def test_pods_that_hamis_webhook_passes_over_are_another_template() -> None:
    reader, whole = _reader(), {"containers": [{"name": "c", "resources": {"limits": gpu_limits(1)}}]}
    ignored = reader.pod(_pod("a", spec=whole, labels={"hami.io/webhook": "ignore"})).pod
    filled = reader.pod(_pod("b", spec=whole)).pod
    assert [found.containers[0].asks[0].compute_milli for found in (ignored, filled)] == [0, 1000]


def test_a_heartbeat_is_not_read_and_a_change_is() -> None:
    mirror = Mirror(_reader(), lambda: 0.0)
    assert [type(each) for each in mirror.hear_nodes([_node("1")])] == [NodeChanged]
    mirror._reader.node = None  # type: ignore[assignment, method-assign]  # to read it again would fail
    assert mirror.hear_nodes([_node("2")]) == []
    del mirror._reader.node
    assert [type(each) for each in mirror.hear_nodes([_node("3", labels={"zone": "a"})])] == [NodeChanged]


def test_a_node_that_comes_again_is_heard_though_it_says_the_same() -> None:
    mirror = Mirror(_reader(), lambda: 0.0)
    first = _node("1")
    mirror.hear_nodes([first])
    assert [type(each) for each in mirror.hear_nodes([Deleted(Ref("", "n", "n"), first.object)])] == [NodeGone]
    assert [type(each) for each in mirror.hear_nodes([_node("2")])] == [NodeChanged]


def test_pods_of_a_pool_are_placed_on_its_nodes_only_and_stay_the_same_when_bound() -> None:
    reader = PodReader({"dovetail": Settings()}, (("pool", "a"),))
    waiting = reader.pod(_pod(spec={"nodeSelector": {"disk": "ssd"}})).pod
    assert waiting.node_rules.selector == (("disk", "ssd"), ("pool", "a"))
    marked = {"dovetail.dev/bound-by": "kube-system/dovetail-scheduler"}
    bound = _pod(spec={"nodeSelector": {"disk": "ssd"}, "nodeName": "n"}, annotations=marked)
    assert reader.pod(bound).pod == waiting


@pytest.mark.parametrize(
    "beyond",
    [
        {"labels": {f"label-{number}": "x" for number in range(257)}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j" * 600, "uid": "u", "controller": True}]},
    ],
    ids=["labels", "owner"],
)
def test_a_pod_beyond_a_bound_is_not_a_template_for_pods_within_it(beyond: dict[str, Any]) -> None:
    """Labels and owners are not part of a template. The first pod that was read decided for all pods of its spec."""
    for first in (True, False):
        reader = _reader()
        if not first:
            assert reader.pod(_pod("within")).pod.refusal is None
        refused = reader.pod(_pod("beyond", **beyond)).pod
        assert refused.refusal is not None
        assert refused.refusal.reason is Reason.LIMIT_EXCEEDED
        assert len(refused.owner) < 600
        assert reader.pod(_pod("within")).pod.refusal is None
