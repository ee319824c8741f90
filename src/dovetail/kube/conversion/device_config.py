"""HAMi's device-config.yaml → the vendors table, so that a cluster with renamed resources is read correctly.

The keys are those of HAMi v2.10, charts/hami/templates/scheduler/device-configmap.yaml. A ConfigMap that contains the
file is accepted too. Unknown keys cause a warning; a wrong type is an error that names the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dovetail.kube.conversion.vendors import DEFAULT_VENDORS, Vendor, Vendors, ascend, iluvatar
from dovetail.kube.files.documents import MOST_BROKEN, read_yaml
from dovetail.kube.objects.problems import Problems, printable

_NAMES = {"resourceCountName": "count", "resourceMemoryName": "memory", "resourceCoreName": "core"}
_NVIDIA = {
    **_NAMES,
    "resourceMemoryPercentageName": "percentage",
    "resourcePriorityName": "priority",
    "defaultMemory": "default_memory",
    "defaultCores": "default_cores",
    "defaultGPUNum": "default_count",
    "memoryFactor": "memory_factor",
    "deviceSplitCount": "split_count",
    "overwriteEnv": "overwrite_env",
    "runtimeClassName": "runtime_class",
    "gpuCorePolicy": "core_policy",
}

# section -> vendor word -> key in the file -> field of the row
SECTIONS: dict[str, dict[str, dict[str, str]]] = {
    "nvidia": {"NVIDIA": _NVIDIA},
    "amd": {"AMD": _NAMES},
    "cambricon": {"MLU": _NAMES},
    "hygon": {"DCU": {**_NAMES, "memoryFactor": "memory_factor"}},
    "mthreads": {"Mthreads": _NAMES},
    "metax": {
        "Metax-GPU": {"resourceCountName": "count"},
        "Metax-SGPU": {"resourceVCountName": "count", "resourceVMemoryName": "memory", "resourceVCoreName": "core"},
    },
    "enflame": {
        "GCU": {"resourceNameGCU": "count"},
        "Enflame": {"resourceNameDRSGCU": "count", "resourceNameGCUMemory": "memory", "resourceNameGCUCore": "core"},
    },
    "kunlun": {
        "kunlun": {"resourceCountName": "count"},
        "XPU": {"resourceVCountName": "count", "resourceVMemoryName": "memory"},
    },
    "awsneuron": {"AWSNeuron": _NAMES},
    "vastai": {"Vastai": _NAMES},
    "biren": {"Biren": _NAMES},
}

# Keys that matter to HAMi's webhook or plugin, but not to the choice of a card: only their type is checked.
UNUSED: dict[str, type | tuple[type, ...]] = {
    "overwriteEnv": bool,
    "deviceMemoryScaling": (int, float),
    "deviceCoreScaling": (int, float),
    "preConfiguredDeviceMemory": int,
    "enableNumaTopology": bool,
    "gpuCorePolicy": str,
    "libCudaLogLevel": int,
    "runtimeClassName": str,
    "disableCoreLimit": bool,
    "migProfileAllowlist": list,
    "sgpuTopologyAware": bool,
    "memoryPerCard": (int, list),
    "chipName": str,
    "commonWord": str,
    "memoryAllocatable": int,
    "memoryCapacity": int,
    "aiCore": int,
    "aiCPU": int,
    "superPod": bool,
    "templates": list,
}
_LISTED = {**_NAMES, "resourceName": "count", "memoryFactor": "memory_factor"}  # iluvatars[], vnpus.configs[]
_LARGEST = 2**31 - 1  # HAMi stores these as int32


def read_device_config(source: str, text: str, problems: Problems, base: Vendors = DEFAULT_VENDORS) -> Vendors:
    """The table with the file's names and defaults. Fatal problems are collected, not raised."""
    body = read_yaml(source, text, problems)
    if isinstance(body, dict) and body.get("kind") == "ConfigMap":
        data = body.get("data")
        inner = data.get("device-config.yaml") if isinstance(data, dict) else None
        if not isinstance(inner, str):
            problems.fatal(source, "data.device-config.yaml", "is missing from the ConfigMap")
            return base
        body = read_yaml(source, inner, problems)
    if not isinstance(body, dict):
        problems.fatal(source, "", "is not a device-config.yaml: a mapping of vendors such as `nvidia:` is expected")
        return base
    rows: list[Vendor] = []
    for section, content in body.items():
        rows.extend(_section(source, str(section), content, base, problems))
    return base.with_rows(rows)


def _section(source: str, section: str, content: Any, base: Vendors, problems: Problems) -> list[Vendor]:
    if section == "iluvatars":
        return _listed(source, section, content, problems)
    if section == "vnpus":
        nested = isinstance(content, dict)
        inner = content.get("configs") if nested else content
        return _listed(source, f"{section}.configs" if nested else section, inner, problems)
    if section not in SECTIONS:
        problems.warning(source, printable(section), f"is no vendor HAMi knows; known are {', '.join(SECTIONS)}")
        return []
    if content is None:
        return []
    if not isinstance(content, dict):
        problems.fatal(source, section, "must be a mapping")
        return []
    known = {key for fields in SECTIONS[section].values() for key in fields}
    _check_unused(source, section, content, known, problems)
    return [
        _changed((source, section), base.by_word[word], content, fields, problems)
        for word, fields in SECTIONS[section].items()
    ]


def _listed(source: str, section: str, content: Any, problems: Problems) -> list[Vendor]:
    if content is None:
        return []
    if not isinstance(content, list):
        problems.fatal(source, section, "must be a list")
        return []
    rows = []
    for number, entry in enumerate(content[:1000]):
        path = f"{section}[{number}]"
        word = entry.get("commonWord") if isinstance(entry, dict) else None
        if not isinstance(word, str) or not word:
            problems.fatal(source, f"{path}.commonWord", "is missing")
            if number >= MOST_BROKEN:
                break
            continue
        _check_unused(source, path, entry, set(_LISTED), problems)
        row = iluvatar(word) if section == "iluvatars" else ascend(word)
        rows.append(_changed((source, path), row, entry, _LISTED, problems))
    return rows


def _check_unused(source: str, path: str, content: Mapping[Any, Any], known: set[str], problems: Problems) -> None:
    for key, value in content.items():
        if key in known or value is None:
            continue
        expected = UNUSED.get(key) if isinstance(key, str) else None
        if expected is None:
            problems.warning(source, f"{path}.{printable(str(key))}", "is no key HAMi knows; it is ignored")
        elif not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            problems.fatal(source, f"{path}.{key}", f"must be {_noun(expected)}, not {printable(repr(value))}")


def _changed(
    place: tuple[str, str], row: Vendor, content: Mapping[Any, Any], fields: Mapping[str, str], problems: Problems
) -> Vendor:
    """The row with the file's values; `place` is the file and the path inside it."""
    source, path = place
    changes: dict[str, Any] = {}
    for key, name in fields.items():
        value = content.get(key)
        if value is None:
            continue
        wanted = type(getattr(row, name))
        if type(value) is not wanted or (wanted is int and not 0 <= value <= _LARGEST):
            problems.fatal(source, f"{path}.{key}", f"must be {_noun(wanted)}, not {printable(repr(value))}")
        elif name == "count" and not value:
            problems.fatal(source, f"{path}.{key}", "must name a resource")
        elif name == "memory_factor" and value == 0:
            changes[name] = 1  # HAMi reads an unset factor as 1
        else:
            changes[name] = value
    return replace(row, **changes)


def _noun(expected: type | tuple[type, ...]) -> str:
    words = {int: "a whole number ≥ 0", float: "a number", str: "a text", bool: "true or false", list: "a list"}
    kinds = expected if isinstance(expected, tuple) else (expected,)
    return " or ".join(words[kind] for kind in kinds)
