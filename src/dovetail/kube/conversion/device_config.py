"""HAMi's device-config.yaml → the vendors table, so that a cluster with renamed resources is read correctly.

The keys are those of HAMi v2.10, charts/hami/templates/scheduler/device-configmap.yaml. A ConfigMap that contains the
file is accepted too. Unknown keys cause a warning; a wrong type is an error that names the key. device_config_keys.py
has the keys that change nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dovetail.kube.conversion.device_config_keys import UnusedFound, noun
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

_ILUVATAR = {**_NAMES, "memoryFactor": "memory_factor"}  # iluvatars[]
_NPU = {  # vnpus.configs[]
    "resourceName": "count",
    "resourceMemoryName": "memory",
    "resourceCoreName": "core",
    "memoryFactor": "memory_factor",
    "runtimeClassName": "runtime_class",
}
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
    unused = UnusedFound(source)
    for section, content in body.items():
        rows.extend(_section(source, str(section), content, base, unused, problems))
    unused.tell(problems)
    return base.with_rows(rows)


def _section(
    source: str, section: str, content: Any, base: Vendors, unused: UnusedFound, problems: Problems
) -> list[Vendor]:
    if section == "iluvatars":
        return _listed(source, section, content, unused, problems)
    if section == "vnpus":
        return _npus(source, content, unused, problems)
    if section not in SECTIONS:
        vendors = ", ".join((*SECTIONS, "iluvatars", "vnpus"))
        problems.warning(source, printable(section), f"is no vendor HAMi knows; known are {vendors}")
        return []
    if content is None:
        return []
    if not isinstance(content, dict):
        problems.fatal(source, section, "must be a mapping")
        return []
    known = {key for fields in SECTIONS[section].values() for key in fields}
    unused.look(section, section, content, known, problems)
    return [
        _changed((source, section), base.by_word[word], content, fields, problems)
        for word, fields in SECTIONS[section].items()
    ]


def _npus(source: str, content: Any, unused: UnusedFound, problems: Problems) -> list[Vendor]:
    """`vnpus` is a mapping with the list `configs`; in older files it is that list."""
    if not isinstance(content, dict):
        return _listed(source, "vnpus", content, unused, problems)
    unused.look("vnpus", "vnpus", content, {"configs", "runtimeClassName"}, problems)
    rows = _listed(source, "vnpus.configs", content.get("configs"), unused, problems)
    for_all = content.get("runtimeClassName")  # HAMi's main branch has it here
    if for_all is not None and not isinstance(for_all, str):
        problems.fatal(source, "vnpus.runtimeClassName", f"must be {noun(str)}, not {printable(repr(for_all))}")
        return rows
    return [row if row.runtime_class or not for_all else replace(row, runtime_class=for_all) for row in rows]


def _listed(source: str, section: str, content: Any, unused: UnusedFound, problems: Problems) -> list[Vendor]:
    if content is None:
        return []
    if not isinstance(content, list):
        problems.fatal(source, section, "must be a list")
        return []
    rows, is_iluvatar = [], section == "iluvatars"
    fields = _ILUVATAR if is_iluvatar else _NPU
    for number, entry in enumerate(content[:1000]):
        path = f"{section}[{number}]"
        word = entry.get("commonWord") if isinstance(entry, dict) else None
        if not isinstance(word, str) or not word:
            problems.fatal(source, f"{path}.commonWord", "is missing")
            if number >= MOST_BROKEN:
                break
            continue
        kind = "iluvatars[]" if is_iluvatar else "vnpus.configs[]"
        unused.look(kind, path, entry, {*fields, "commonWord"}, problems)
        row = iluvatar(word) if is_iluvatar else ascend(word)
        rows.append(_changed((source, path), row, entry, fields, problems))
    return rows


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
            problems.fatal(source, f"{path}.{key}", f"must be {noun(wanted)}, not {printable(repr(value))}")
        elif name == "count" and not value:
            problems.fatal(source, f"{path}.{key}", "must name a resource")
        elif name == "memory_factor" and value == 0:
            changes[name] = 1  # HAMi reads an unset factor as 1
        else:
            changes[name] = value
    return replace(row, **changes)
