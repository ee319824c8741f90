"""Slips in the names of annotations, labels and resources: the likely name is said; right names are left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from tests.kube.manifests import GPU, Object, container, pod, read, said, workload


def slips(*objects: Object) -> dict[str, str]:
    """field -> what is said of it."""
    return {p.field: p.message for p in said(read(*objects), "warning")}


@pytest.mark.parametrize(
    ("written", "likely"),
    [
        ("hami.io/gpu-schedular-policy", "hami.io/gpu-scheduler-policy"),
        ("hami.io/node-schedular-policy", "hami.io/node-scheduler-policy"),
        ("hami.io/gpu_scheduler_policy", "hami.io/gpu-scheduler-policy"),
        ("hami.io/use-gputype", "nvidia.com/use-gputype"),
        ("hami.oi/gpu-scheduler-policy", "hami.io/gpu-scheduler-policy"),
        ("nvidia.com/use-gpu-type", "nvidia.com/use-gputype"),
        ("nvidia.com/use-gputypes", "nvidia.com/use-gputype"),
        ("nvidia.com/nouse-gpu-uuid", "nvidia.com/nouse-gpuuuid"),
        ("dovetail.dev/node-scheduler-policy", "dovetail.dev/node-policy"),
        ("dovetail.dev/gpu-scheduler-policy", "dovetail.dev/gpu-policy"),
        ("dovetail.dev/gpu-polices", "dovetail.dev/gpu-policy"),
        ("scheduling.k8s.io/groupname", "scheduling.k8s.io/group-name"),
    ],
)
def test_a_slip_in_an_annotation(written: str, likely: str) -> None:
    found = slips(pod("p", meta={"annotations": {written: "x"}}))
    assert list(found) == [f"metadata.annotations.{written}"]
    assert found[f"metadata.annotations.{written}"].endswith(f"did you mean {likely}?")


@pytest.mark.parametrize(
    ("written", "likely"),
    [
        ("nvidia.com/gpu-mem", "nvidia.com/gpumem"),
        ("nvidia.com/gpumemory", "nvidia.com/gpumem"),
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvidia.com/GPU", "nvidia.com/gpu"),
        ("nvidia.com/gpucore", "nvidia.com/gpucores"),
        ("nvidia.com/gpu-cores", "nvidia.com/gpucores"),
        ("nvidia.com/gpumem-percent", "nvidia.com/gpumem-percentage"),
        ("hygon.com/dcu-mem", "hygon.com/dcumem"),
    ],
)
def test_a_slip_in_a_resource(written: str, likely: str) -> None:
    field = f"spec.containers[0].resources.limits.{written}"
    for requests in ({}, {written: 1}):
        found = slips(pod("p", container({GPU: 1, written: 1}, requests)))
        assert {field: found[field]} == found
        assert found[field].endswith(f"did you mean {likely}?")


RIGHT_RESOURCES = (
    *("nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "nvidia.com/pgpu", "nvidia.com/GA102GL_A10", "nvidia.com/rdma"),
    *("huawei.com/Ascend910", "huawei.com/Ascend310P", "cambricon.com/mlu370", "mthreads.com/gpu", "amd.com/gpu"),
    *("aws.amazon.com/neurondevice", "gpu.intel.com/i915", "habana.ai/gaudi", "google.com/tpu", "rdma/hca"),
    *("volcano.sh/vgpu-number", "example.com/gpumem", "hygon.com/dcu", "iluvatar.ai/gpu", "birentech.com/1-2-gpu"),
)
RIGHT_ANNOTATIONS = (
    *("hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/bind-phase", "nvidia.com/gpu-driver-upgrade-state"),
    *("hami.io/vgpu-devices-to-allocate", "dovetail.dev/epoch", "nvidia.com/gpu.product", "nvidia.com/mig.config"),
    *("gang.scheduling.koordinator.sh/min-available", "kubectl.kubernetes.io/default-container", "policy", "a/b/c"),
    *("scheduling.k8s.io/group-name", "sidecar.istio.io/inject", "prometheus.io/scrape", "hami.io/mutex.lock"),
)


def test_right_names_are_left_alone() -> None:
    vendors = [name for row in DEFAULT_VENDORS.rows for name in (row.count, *row.shares) if name]
    names = dict.fromkeys((*RIGHT_RESOURCES, *vendors), 1)
    given = read(pod("p", container(names, names)))
    assert [problem.field for problem in given.problems if "did you mean" in problem.message] == []
    keys = [key for row in DEFAULT_VENDORS.rows for key in (*row.pod_keys, row.to_allocate) if key]
    annotations = dict.fromkeys((*RIGHT_ANNOTATIONS, *keys), "true")
    labels = {"scheduling.x-k8s.io/pod-group": "g", "nvidia.com/gpu.present": "true", "hami.io/webhook": "on"}
    given = read(pod("p", meta={"annotations": annotations, "labels": labels}))
    assert [p.field for p in given.problems if "did you mean" in p.message or "is nothing that" in p.message] == []


def test_what_stands_in_the_wrong_place() -> None:
    policy, memory = "hami.io/gpu-scheduler-policy", "nvidia.com/gpumem"
    found = slips(
        pod("p", meta={"labels": {policy: "binpack"}, "annotations": {memory: "8192", "hami.io/webhook": "x"}})
    )
    assert "is an annotation" in found[f"metadata.labels.{policy}"]
    assert "resources.limits" in found[f"metadata.annotations.{memory}"]
    assert "is a label" in found["metadata.annotations.hami.io/webhook"]


def test_a_group_label_that_is_nearly_right() -> None:
    (message,) = slips(pod("p", meta={"labels": {"scheduling.x-k8s.io/podgroup": "g"}})).values()
    assert message.endswith("did you mean scheduling.x-k8s.io/pod-group?")


def test_our_own_domain_has_few_names() -> None:
    (message,) = slips(pod("p", meta={"annotations": {"dovetail.dev/colour": "red"}})).values()
    assert "dovetail.dev/node-policy" in message


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job", "ReplicaSet"])
def test_a_policy_on_the_workload_is_not_on_its_pods(kind: str) -> None:
    policy = {"annotations": {"hami.io/gpu-scheduler-policy": "binpack"}}
    template = {"spec": {"containers": [container({GPU: 1})]}}
    source = workload(kind, "web", template)
    source["metadata"].update(policy)
    found = slips(source)
    assert "spec.template.metadata.annotations" in found["metadata.annotations.hami.io/gpu-scheduler-policy"]
    source["spec"]["template"] = {**template, "metadata": policy}
    assert slips(source) == {}


def test_a_slip_in_a_template_names_the_template() -> None:
    template = {"metadata": {"annotations": {"nvidia.com/use-gpu-type": "A100"}}, "spec": {"containers": [container()]}}
    assert list(slips(workload("Deployment", "web", template))) == [
        "spec.template.metadata.annotations.nvidia.com/use-gpu-type"
    ]


def test_renamed_resources_are_right_under_their_new_names() -> None:
    row = replace(DEFAULT_VENDORS.by_word["NVIDIA"], memory="nvidia.com/gpu-mem")
    settings = Settings(vendors=DEFAULT_VENDORS.with_rows([row]))
    given = read(pod("p", container({GPU: 1, "nvidia.com/gpu-mem": 1000})), settings=settings)
    assert said(given, "warning") == []


def test_ten_thousand_names_are_looked_at_in_part() -> None:
    many = {f"hami.io/gpu-schedular-policy-{number}": "x" for number in range(10_000)}
    assert len(slips(pod("p", meta={"annotations": many}))) <= 200
