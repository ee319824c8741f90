"""The keys of HAMi's device-config.yaml that change no row of the vendors table, and what Dovetail says of each.

HAMi's scheduler, webhook and device plugin read one file. No key is accepted in silence: one that the device plugin
reads causes a note; one that changes HAMi's decisions, and not Dovetail's, causes a warning with the reason. Keys are
those of HAMi v2.10 and of its main branch (pkg/device/*/device.go, ascend/vnpu.go; the chart's device-configmap.yaml).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from dovetail.kube.objects.problems import Problems, printable

Types = type | tuple[type, ...]
ON_THE_NODE = "HAMi's device plugin reads it on the nodes; the scheduler sees its effect in the nodes' registers"
NPU_PARTS = "HAMi raises a part of an NPU to one of its templates; Dovetail books what the pod asks for"


class UnusedKey(NamedTuple):
    """A key that changes nothing here. `different`: why HAMi would decide differently; "" = it would not."""

    types: Types
    different: str = ""
    harmless: tuple[Any, ...] = ()  # values with which HAMi decides as Dovetail does


_NUMBER = (int, float)
_NPU_PART = UnusedKey(int, NPU_PARTS, (0,))
# section of the file -> key
UNUSED_KEYS: dict[str, dict[str, UnusedKey]] = {
    "nvidia": {
        "deviceMemoryScaling": UnusedKey(_NUMBER),
        "deviceCoreScaling": UnusedKey(_NUMBER),
        "preConfiguredDeviceMemory": UnusedKey(int),
        "enableNumaTopology": UnusedKey(bool),
        "libCudaLogLevel": UnusedKey(int),
        "disableCoreLimit": UnusedKey(bool),
        "migProfileAllowlist": UnusedKey(list),
    },
    "metax": {
        "sgpuTopologyAware": UnusedKey(
            bool, "HAMi prefers Metax cards that are linked; Dovetail does not know their links", (False,)
        )
    },
    "mthreads": {
        "memoryPerCard": UnusedKey(
            (int, list),
            "HAMi computes the memory of Mthreads cards from it; Dovetail reads cards from their nodes only",
        )
    },
    "iluvatars[]": {"chipName": UnusedKey(str)},
    "vnpus": {
        "hamiVnpuCore": UnusedKey(bool),
        "vnpuDeviceSplitCount": UnusedKey(int),
        "hamiVnpuMode": UnusedKey(str, NPU_PARTS, ("", "hami-core", "hamiCore")),
        "enpuPolicy": UnusedKey(str, NPU_PARTS, ("",)),
        "overwriteEnv": UnusedKey(
            bool, "HAMi's webhook hides the NPUs from containers that ask for none; Dovetail's does not", (False,)
        ),
    },
    "vnpus.configs[]": {
        "chipName": UnusedKey(str),
        "memoryAllocatable": _NPU_PART,
        "memoryCapacity": _NPU_PART,
        "aiCore": _NPU_PART,
        "aiCPU": _NPU_PART,
        "templates": UnusedKey(list, NPU_PARTS, ([],)),
        "superPod": UnusedKey(
            bool, "HAMi gives out Ascend 910C in pairs; Dovetail gives the number that is asked for", (False,)
        ),
        "overwriteEnv": UnusedKey(
            bool, "HAMi's webhook hides the NPUs from containers that ask for none; Dovetail's does not", (False,)
        ),
    },
}


class UnusedFound:
    """The unused keys of one file. A section's keys of one reason are one line, however many entries a list has."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)  # section, reason -> keys

    def look(self, section: str, path: str, content: Mapping[Any, Any], known: set[str], problems: Problems) -> None:
        """Look at a mapping of the file. `known`: keys that are used; `path`: where it is, for messages."""
        keys = UNUSED_KEYS.get(section, {})
        for key, value in content.items():
            if key in known or value is None:
                continue
            unused = keys.get(key) if isinstance(key, str) else None
            if unused is None:
                where = f"{path}.{printable(str(key))}"
                problems.warning(self._source, where, "is no key that HAMi has here; it is ignored")
            elif not is_of(value, unused.types):
                expected = noun(unused.types)
                problems.fatal(self._source, f"{path}.{key}", f"must be {expected}, not {printable(repr(value))}")
            elif value not in unused.harmless:
                self._found[section, unused.different][key] = None

    def tell(self, problems: Problems) -> None:
        """Report what was found."""
        for (section, different), keys in self._found.items():
            names = ", ".join(keys)
            if different:
                problems.warning(self._source, f"{section}: {names}", f"is not used: {different}")
            else:
                problems.note(self._source, f"{section}: {names}", f"is not the scheduler's: {ON_THE_NODE}")


def is_of(value: Any, expected: Types) -> bool:
    """Whether the value has one of these types; true and false are no numbers."""
    return isinstance(value, expected) and (not isinstance(value, bool) or expected is bool)


def noun(expected: Types) -> str:
    words = {int: "a whole number ≥ 0", float: "a number", str: "a text", bool: "true or false", list: "a list"}
    kinds = expected if isinstance(expected, tuple) else (expected,)
    return " or ".join(words[kind] for kind in kinds)
