"""HAMi's device-config.yaml: renamed resources, defaults, and mistakes that name the key."""

from __future__ import annotations

import pytest

from dovetail.kube.conversion.device_config import read_device_config
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS, Vendors
from dovetail.kube.objects.problems import InputError, Problem, Problems
from dovetail.model.pod import DeviceAsk
from tests.kube.manifests import container, only_pod, pod

CHART = """
nvidia:
  resourceCountName: example.com/gpu
  resourceMemoryName: example.com/gpumem
  resourceMemoryPercentageName: example.com/gpumem-percentage
  resourceCoreName: example.com/gpucores
  resourcePriorityName: example.com/priority
  overwriteEnv: false
  defaultMemory: 512
  defaultCores: 10
  defaultGPUNum: 2
  memoryFactor: 2
  deviceSplitCount: 4
  deviceMemoryScaling: 1.5
  deviceCoreScaling: 1
  gpuCorePolicy: default
  migProfileAllowlist: [{models: [A30], profiles: [1g.6gb]}]
metax: {resourceCountName: m/gpu, resourceVCountName: m/sgpu, resourceVMemoryName: m/vmem, resourceVCoreName: m/vcore}
enflame: {resourceNameGCU: e/gcu, resourceNameDRSGCU: e/drs}
kunlun:
iluvatars: [{chipName: X, commonWord: BI-V150, resourceCountName: i/bi}]
vnpus:
  hamiVnpuCore: false
  configs: [{chipName: 910Z, commonWord: Ascend910Z, resourceName: h/z, resourceMemoryName: h/z-mem, aiCore: 20}]
"""


def table(text: str) -> tuple[Vendors, list[Problem]]:
    problems = Problems()
    vendors = read_device_config("device-config.yaml", text, problems)
    problems.stop_if_fatal()
    return vendors, list(problems.found())


def test_names_and_defaults_of_the_file_win() -> None:
    vendors, problems = table(CHART)
    assert {problem.severity for problem in problems} == {"note", "warning"}  # test_device_config_keys.py
    row = vendors.by_word["NVIDIA"]
    assert (row.count, row.memory, row.memory_factor, row.split_count) == (
        "example.com/gpu",
        "example.com/gpumem",
        2,
        4,
    )
    assert (vendors.by_word["Metax-SGPU"].count, vendors.by_word["Metax-SGPU"].core) == ("m/sgpu", "m/vcore")
    assert (vendors.by_word["GCU"].count, vendors.by_word["Enflame"].count) == ("e/gcu", "e/drs")
    assert vendors.by_word["BI-V150"].count == "i/bi"
    assert vendors.by_word["Ascend910Z"].memory == "h/z-mem"
    assert vendors.by_word["AMD"] == DEFAULT_VENDORS.by_word["AMD"]


def test_requests_are_read_by_the_new_names() -> None:
    vendors, _ = table(CHART)
    settings = Settings(vendors=vendors)
    found = only_pod(pod("p", container({"example.com/gpumem": 1024})), settings=settings)
    assert found.containers[0].asks == (DeviceAsk("NVIDIA", 2, 2048, None, 100),)  # 2 cards, 1024 × 2 MiB, 10 cores
    old = only_pod(pod("p", container({"nvidia.com/gpu": 1})), settings=settings)
    assert not old.wants_devices
    assert old.resources == {"nvidia.com/gpu": 1}


def test_a_config_map_around_it_and_the_old_list_of_npus() -> None:
    wrapped = "kind: ConfigMap\ndata:\n  device-config.yaml: |\n    nvidia: {defaultCores: 7}\n"
    assert table(wrapped)[0].by_word["NVIDIA"].default_cores == 7
    assert table("vnpus: [{commonWord: Ascend310P, resourceName: x/y}]")[0].by_word["Ascend310P"].count == "x/y"


def test_unknown_keys_are_warned_of() -> None:
    _, problems = table("nvidia: {resourceCountNam: x}\nacme: {}")
    assert [(p.severity, p.field) for p in problems] == [("warning", "nvidia.resourceCountNam"), ("warning", "acme")]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("nvidia: {defaultMemory: lots}", "nvidia.defaultMemory"),
        ("nvidia: {defaultCores: -1}", "nvidia.defaultCores"),
        ("nvidia: {resourceCountName: 3}", "nvidia.resourceCountName"),
        ("nvidia: {resourceCountName: ''}", "nvidia.resourceCountName"),
        ("nvidia: {overwriteEnv: 'no'}", "nvidia.overwriteEnv"),
        ("nvidia: {deviceMemoryScaling: true}", "nvidia.deviceMemoryScaling"),
        ("nvidia: [1]", "nvidia"),
        ("iluvatars: {}", "iluvatars"),
        ("vnpus: {configs: [{chipName: x}]}", "vnpus.configs[0].commonWord"),
        ("just text", ""),
        ("a: [", ""),
        ("kind: ConfigMap", "data.device-config.yaml"),
    ],
)
def test_mistakes_name_the_key(text: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        table(text)
    assert field in [problem.field for problem in caught.value.problems]
    assert caught.value.problems[0].where == "device-config.yaml"
