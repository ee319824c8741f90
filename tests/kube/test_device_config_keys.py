"""Every key of HAMi's device-config.yaml is used, or said to be the plugin's, or warned about with the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dovetail.kube.conversion.device_config import read_device_config
from dovetail.kube.conversion.device_config_keys import NPU_PARTS, ON_THE_NODE, UNUSED_KEYS
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS, Vendors
from dovetail.kube.objects.problems import Problem, Problems

PAGE = (Path(__file__).parents[2] / "docs" / "extender.md").read_text(encoding="utf-8")


class Used(NamedTuple):
    """A key that sets a field of a vendor's row."""

    word: str
    field: str


NODE = "note"  # the device plugin's
WARNED = "warning"
NEW = "Ascend910Z"
# Where the key is -> key -> an example, and what becomes of it. HAMi v2.10: cmd/scheduler, pkg/device/*, and its chart.
KEYS: dict[str, dict[str, tuple[Any, Used | str]]] = {
    "nvidia": {
        "resourceCountName": ("e.com/gpu", Used("NVIDIA", "count")),
        "resourceMemoryName": ("e.com/mem", Used("NVIDIA", "memory")),
        "resourceMemoryPercentageName": ("e.com/pct", Used("NVIDIA", "percentage")),
        "resourceCoreName": ("e.com/cores", Used("NVIDIA", "core")),
        "resourcePriorityName": ("e.com/prio", Used("NVIDIA", "priority")),
        "overwriteEnv": (True, Used("NVIDIA", "overwrite_env")),
        "defaultMemory": (512, Used("NVIDIA", "default_memory")),
        "defaultCores": (10, Used("NVIDIA", "default_cores")),
        "defaultGPUNum": (2, Used("NVIDIA", "default_count")),
        "memoryFactor": (4, Used("NVIDIA", "memory_factor")),
        "deviceSplitCount": (5, Used("NVIDIA", "split_count")),
        "gpuCorePolicy": ("force", Used("NVIDIA", "core_policy")),
        "runtimeClassName": ("nvidia", Used("NVIDIA", "runtime_class")),
        "deviceMemoryScaling": (1.5, NODE),
        "deviceCoreScaling": (2, NODE),
        "preConfiguredDeviceMemory": (1000, NODE),
        "enableNumaTopology": (True, NODE),
        "libCudaLogLevel": (4, NODE),
        "disableCoreLimit": (True, NODE),
        "migProfileAllowlist": ([{"models": ["A30"], "profiles": ["1g.6gb"]}], NODE),
    },
    "metax": {
        "resourceCountName": ("m/gpu", Used("Metax-GPU", "count")),
        "resourceVCountName": ("m/sgpu", Used("Metax-SGPU", "count")),
        "resourceVMemoryName": ("m/mem", Used("Metax-SGPU", "memory")),
        "resourceVCoreName": ("m/core", Used("Metax-SGPU", "core")),
        "sgpuTopologyAware": (True, WARNED),
    },
    "hygon": {
        "resourceCountName": ("h/dcu", Used("DCU", "count")),
        "resourceMemoryName": ("h/mem", Used("DCU", "memory")),
        "resourceCoreName": ("h/core", Used("DCU", "core")),
        "memoryFactor": (2, Used("DCU", "memory_factor")),
    },
    "cambricon": {
        "resourceCountName": ("c/mlu", Used("MLU", "count")),
        "resourceMemoryName": ("c/mem", Used("MLU", "memory")),
        "resourceCoreName": ("c/core", Used("MLU", "core")),
    },
    "mthreads": {
        "resourceCountName": ("t/gpu", Used("Mthreads", "count")),
        "resourceMemoryName": ("t/mem", Used("Mthreads", "memory")),
        "resourceCoreName": ("t/core", Used("Mthreads", "core")),
        "memoryPerCard": ([96], WARNED),
    },
    "enflame": {
        "resourceNameGCU": ("e/gcu", Used("GCU", "count")),
        "resourceNameDRSGCU": ("e/drs", Used("Enflame", "count")),
        "resourceNameGCUMemory": ("e/mem", Used("Enflame", "memory")),
        "resourceNameGCUCore": ("e/core", Used("Enflame", "core")),
    },
    "kunlun": {
        "resourceCountName": ("k/xpu", Used("kunlun", "count")),
        "resourceVCountName": ("k/vxpu", Used("XPU", "count")),
        "resourceVMemoryName": ("k/mem", Used("XPU", "memory")),
    },
    "awsneuron": {
        "resourceCountName": ("a/neuron", Used("AWSNeuron", "count")),
        "resourceCoreName": ("a/core", Used("AWSNeuron", "core")),
    },
    "amd": {
        "resourceCountName": ("a/gpu", Used("AMD", "count")),
        "resourceMemoryName": ("a/mem", Used("AMD", "memory")),
        "resourceCoreName": ("a/core", Used("AMD", "core")),
    },
    "vastai": {"resourceCountName": ("v/va", Used("Vastai", "count"))},
    "biren": {"resourceCountName": ("b/gpu", Used("Biren", "count"))},
    "iluvatars[]": {
        "resourceCountName": ("i/gpu", Used(NEW, "count")),
        "resourceMemoryName": ("i/mem", Used(NEW, "memory")),
        "resourceCoreName": ("i/core", Used(NEW, "core")),
        "chipName": ("X", NODE),
    },
    "vnpus": {
        "runtimeClassName": ("ascend", Used(NEW, "runtime_class")),
        "hamiVnpuCore": (True, NODE),
        "vnpuDeviceSplitCount": (8, NODE),
        "hamiVnpuMode": ("enpu", WARNED),
        "enpuPolicy": ("fixed", WARNED),
        "overwriteEnv": (True, WARNED),
    },
    "vnpus.configs[]": {
        "resourceName": ("h/npu", Used(NEW, "count")),
        "resourceMemoryName": ("h/mem", Used(NEW, "memory")),
        "resourceCoreName": ("h/core", Used(NEW, "core")),
        "memoryFactor": (2, Used(NEW, "memory_factor")),
        "runtimeClassName": ("ascend", Used(NEW, "runtime_class")),
        "chipName": ("910Z", NODE),
        "memoryAllocatable": (32_768, WARNED),
        "memoryCapacity": (32_768, WARNED),
        "aiCore": (20, WARNED),
        "aiCPU": (7, WARNED),
        "overwriteEnv": (True, WARNED),
        "superPod": (True, WARNED),
        "templates": ([{"name": "vir05_1c_8g", "memory": 8192, "aiCore": 5}], WARNED),
    },
}
ALL = [(section, key) for section, keys in KEYS.items() for key in keys]


def document(section: str, key: str, value: Any) -> dict[str, Any]:
    """The file with this key only, and what its place needs."""
    entry = {"commonWord": NEW, key: value}
    if section == "vnpus":
        return {"vnpus": {key: value, "configs": [{"commonWord": NEW}]}}
    if section == "vnpus.configs[]":
        return {"vnpus": {"configs": [entry]}}
    return {"iluvatars": [entry]} if section == "iluvatars[]" else {section: {key: value}}


def read(content: Any) -> tuple[Vendors, tuple[Problem, ...]]:
    problems = Problems()
    vendors = read_device_config("device-config.yaml", yaml.safe_dump(content), problems)
    problems.stop_if_fatal()
    return vendors, problems.found()


@pytest.mark.parametrize(("section", "key"), ALL)
def test_a_key_is_used_or_said_not_to_be(section: str, key: str) -> None:
    value, fate = KEYS[section][key]
    vendors, problems = read(document(section, key, value))
    if isinstance(fate, Used):
        assert problems == ()
        assert getattr(vendors.by_word[fate.word], fate.field) == value
        default = DEFAULT_VENDORS.by_word.get(fate.word)
        assert default is None or getattr(default, fate.field) != value  # else the example shows nothing
    else:
        assert [(problem.severity, problem.field) for problem in problems] == [(fate, f"{section}: {key}")]
        assert (ON_THE_NODE in problems[0].message) == (fate == NODE)
        rows = {word: row for word, row in vendors.by_word.items() if word != NEW}
        assert rows == DEFAULT_VENDORS.by_word  # nothing is taken from it


def test_no_key_of_the_code_is_missing_from_this_table() -> None:
    unused = {(section, key) for section, keys in UNUSED_KEYS.items() for key in keys}
    said = {(section, key) for section, key in ALL if not isinstance(KEYS[section][key][1], Used)}
    assert unused == said


@pytest.mark.parametrize(("section", "key"), [one for one in ALL if KEYS[one[0]][one[1]][1] == WARNED])
def test_a_value_with_which_hami_decides_as_dovetail_needs_no_warning(section: str, key: str) -> None:
    harmless = UNUSED_KEYS[section][key].harmless
    if section == "mthreads":
        assert harmless == ()  # HAMi needs it whatever it is
        return
    assert harmless
    for value in harmless:
        assert read(document(section, key, value))[1] == ()


def test_many_entries_of_a_list_give_one_line() -> None:
    chips = [{"commonWord": f"Ascend{n}", "aiCore": 8, "templates": [{"name": "v", "memory": 1}]} for n in range(9)]
    (problem,) = read({"vnpus": {"configs": chips}})[1]
    assert str(problem) == f"device-config.yaml: vnpus.configs[]: aiCore, templates: is not used: {NPU_PARTS}"


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"vnpus": {"hamiVnpuKore": True}}, "vnpus.hamiVnpuKore"),
        ({"vnpus": {"configs": [{"commonWord": NEW, "resourceCountName": "x"}]}}, "vnpus.configs[0].resourceCountName"),
        ({"iluvatars": [{"commonWord": NEW, "aiCore": 1}]}, "iluvatars[0].aiCore"),
        ({"amd": {"gpuCorePolicy": "force"}}, "amd.gpuCorePolicy"),
        ({"biren": {"superPod": True}}, "biren.superPod"),
    ],
)
def test_a_key_in_a_place_where_hami_has_none_is_warned_of(content: Any, field: str) -> None:
    problems = read(content)[1]
    assert [(problem.severity, problem.field) for problem in problems] == [("warning", field)]


def test_the_page_has_every_key() -> None:
    section = PAGE.partition("## device-config.yaml\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)(?:: true)?`", section))
    assert {key for _, key in ALL} - named == set()
