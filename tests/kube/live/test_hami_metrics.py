"""HAMi's metrics: the names, the labels and the values that a HAMi user's dashboards and alerts read."""

from __future__ import annotations

import asyncio

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.conversion.reading import Held
from dovetail.kube.live.known import Known, Stand
from dovetail.kube.live.metrics.hami import HamiMetrics, HamiMetricsOptions
from dovetail.model.decision import Share
from dovetail.model.events import NodeChanged, PodGone, PodObserved
from dovetail.model.pod import Quota, RunningPod
from tests.builders import ask, card, node, pod
from tests.kube.live.metric_service import engine, metrics, sample, service

CARD = 'zone="vGPU",node="a",device_uuid="GPU-1",device_index="0"'
KIND = 'device_type="NVIDIA A100"'
POD = 'zone="vGPU",namespace="default",node="a",pod="p",container_index="0",device_uuid="GPU-1"'
ON = HamiMetricsOptions(enabled=True)


def _holding(made: Scheduler, name: str, at: str, *shares: Share) -> Known:
    running = RunningPod(pod(name, ask(len(shares))), at, shares)
    made.handle(PodObserved(0.0, running))
    return Known(running.pod.key, Stand.HOLDS, "1", running.pod, Held(running, shares), runs=True)


def _one_card() -> tuple[Scheduler, dict[str, Known]]:
    """A card of 8,000 MiB, of which a pod holds 2,000 MiB and 25.5 % of the compute."""
    made = engine()
    made.handle(NodeChanged(0.0, node("a", card("GPU-1", 8000, model="NVIDIA A100"))))
    known = _holding(made, "p", "a", Share(0, "GPU-1", 2000, 255))
    return made, {known.pod.uid: known}


def test_the_samples_of_a_card_and_of_a_container() -> None:
    text = metrics(service(*_one_card()), ON)
    mib = 2**20
    for series, value in {
        f"hami_gpu_memory_limit_bytes{{{CARD},{KIND}}}": 8000 * mib,
        f"hami_gpu_core_limit_ratio{{{CARD},{KIND}}}": 100,
        f'hami_gpu_memory_allocated_bytes{{{CARD},device_cores="100",{KIND}}}': 2000 * mib,
        f"hami_gpu_shared_count{{{CARD},{KIND}}}": 1,
        f"hami_gpu_core_allocated_ratio{{{CARD},{KIND}}}": 26,  # 25.5, rounded up as HAMi does
        f'hami_node_gpu_overview{{{CARD},device_cores="100",device_memory_limit="8000",{KIND}}}': 2000 * mib,
        f"hami_node_gpu_memory_allocated_ratio{{{CARD}}}": 0.25,
        f"hami_vgpu_memory_allocated_bytes{{{POD}}}": 2000 * mib,
        f"hami_vgpu_core_allocated_ratio{{{POD}}}": 26,
        "dovetail_hami_cards_left_out": 0,
    }.items():
        assert sample(text, series) == value
    assert "GPUDeviceMemoryLimit" not in text


def test_the_old_names() -> None:
    text = metrics(service(*_one_card()), HamiMetricsOptions(enabled=True, legacy=True))
    old = 'zone="vGPU",nodeid="a",deviceuuid="GPU-1",deviceidx="0"'
    kind = 'devicetype="NVIDIA A100"'
    in_pod = 'zone="vGPU",podnamespace="default",nodename="a",podname="p",containeridx="0",deviceuuid="GPU-1"'
    for series, value in {
        f"GPUDeviceMemoryLimit{{{old},{kind}}}": 8000 * 2**20,
        f"GPUDeviceCoreLimit{{{old},{kind}}}": 100,
        f'GPUDeviceMemoryAllocated{{{old},devicecores="100",{kind}}}': 2000 * 2**20,
        f"GPUDeviceSharedNum{{{old},{kind}}}": 1,
        f"GPUDeviceCoreAllocated{{{old},{kind}}}": 25,
        f'nodeGPUOverview{{{old},devicecores="100",devicememorylimit="8000",{kind}}}': 2000 * 2**20,
        f"nodeGPUMemoryPercentage{{{old}}}": 0.25,
        f"vGPUMemoryAllocated{{{in_pod}}}": 2000 * 2**20,
        f"vGPUCoreAllocated{{{in_pod}}}": 25,
    }.items():
        assert sample(text, series) == value
    assert f"hami_gpu_memory_limit_bytes{{{CARD},{KIND}}}" in text


def test_they_are_off_unless_asked_for() -> None:
    assert "hami_" not in metrics(service(*_one_card()))


def test_a_page_without_pods_and_nodes_has_the_names() -> None:
    text = metrics(service(), ON)
    assert "# TYPE hami_gpu_memory_limit_bytes gauge" in text
    assert "# TYPE hami_vgpu_memory_allocated_bytes gauge" in text


def test_series_have_a_bound_and_the_rest_is_counted() -> None:
    """3 nodes of 2 cards, room for 5: the third node is left out as a whole. Of 6 pods the sixth is."""
    made, pods = engine(), {}
    for name in ("a", "b", "c"):
        made.handle(NodeChanged(0.0, node(name, gpus=2)))
        for n in range(2):
            known = _holding(made, f"{name}{n}", name, Share(0, f"{name}/{n}", 100, 10))
            pods[known.pod.uid] = known
    text = metrics(service(made, pods), HamiMetricsOptions(enabled=True, most_cards=5))
    assert text.count("hami_gpu_shared_count{") == 4
    assert sample(text, "dovetail_hami_cards_left_out") == 2
    assert text.count("hami_vgpu_memory_allocated_bytes{") == 5
    assert sample(text, "dovetail_hami_containers_left_out") == 1


def test_kept_text_follows_every_change() -> None:
    """A pod comes, goes, and the node gets another card: the kept text is the text from scratch each time."""
    made, pods = _one_card()
    kept = HamiMetrics(ON)

    def same() -> str:
        fresh = HamiMetrics(ON)
        for one in (kept, fresh):
            asyncio.run(one.update(made.ledger, made.quotas, pods.values()))
        assert list(kept.lines()) == list(fresh.lines())
        return "\n".join(kept.lines())

    first = same()
    known = _holding(made, "q", "a", Share(0, "GPU-1", 1000, 100))
    pods[known.pod.uid] = known
    assert same() != first
    made.handle(PodGone(0.0, known.pod.uid))
    del pods[known.pod.uid]
    assert same() == first
    made.handle(NodeChanged(0.0, node("a", card("GPU-1", 8000, model="NVIDIA A100"), card("GPU-2", index=1))))
    assert "GPU-2" in same()


def test_names_of_tenants_and_nodes_are_escaped() -> None:
    made = engine()
    made.handle(NodeChanged(0.0, node("a", card('GPU-"\n\\', model='x"}'))))
    text = metrics(service(made), ON)
    assert 'device_uuid="GPU-\\"\\n\\\\"' in text
    assert 'device_type="x\\"}"' in text


def test_limits_of_namespaces_are_those_that_kubernetes_does_not_count() -> None:
    """Of 6,000 and 5,000 MiB and 50 % the pod holds 2,000 MiB and 25.5 %. A limit on pods is not HAMi's."""
    made, pods = _one_card()
    for quota in (
        Quota("default", "large", {"pods": 4}, {"NVIDIA": 6000}, {"NVIDIA": 500}),
        Quota("default", "small", {}, {"NVIDIA": 5000}),
        Quota('odd"', "none", {}, {"MLU": 1000}),
    ):
        made.quotas.set(quota)
    text = metrics(service(made, pods), HamiMetricsOptions(enabled=True, legacy=True))
    where, old = 'zone="vGPU",namespace="default",quota_name=', 'zone="vGPU",quotanamespace="default",quotaName='
    for series, value in {
        f'hami_resource_quota_used{{{where}"nvidia.com/gpumem",limit="5000"}}': 2000,
        f'hami_resource_quota_used{{{where}"nvidia.com/gpucores",limit="50"}}': 25,
        f'hami_resource_quota_limit{{{where}"nvidia.com/gpumem"}}': 5000,
        f'hami_resource_quota_limit{{{where}"nvidia.com/gpucores"}}': 50,
        'hami_resource_quota_limit{zone="vGPU",namespace="odd\\"",quota_name="cambricon.com/mlu.smlu.vmemory"}': 1000,
        f'QuotaUsed{{{old}"nvidia.com/gpumem",limit="5000"}}': 2000,
    }.items():
        assert sample(text, series) == value
    assert text.count("hami_resource_quota_limit{") == 3
    few = metrics(service(made, pods), HamiMetricsOptions(enabled=True, most_cards=1))
    assert few.count("hami_resource_quota_limit{") == 1
    assert "QuotaUsed" not in few
