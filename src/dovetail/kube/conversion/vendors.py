"""The vendors of accelerators, and HAMi's names of their resources and annotations: rows, not code.

Names are HAMi v2.10's (pkg/device/*). Where HAMi's source was not available, a key is "" and that way of reading is
off. Rows with a `plugin` are cards that a device plugin of another system hands out (plugins.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

NVIDIA = "NVIDIA"
GPUSHARE, GPU_MANAGER = "gpushare", "gpu-manager"  # device plugins of other systems
MIB_PER_GIB = 1024
MIB_PER_BLOCK = 256  # of tencent.com/vcuda-memory


@dataclass(frozen=True, slots=True)
class Vendor:
    """One row. Resource and annotation names are "" where the vendor has none."""

    word: str  # in device strings: "GPU-a,NVIDIA,3000,30:"
    count: str  # resource: how many cards
    memory: str = ""  # resource: MiB per card / memory_factor
    percentage: str = ""  # resource: per cent of a card's memory
    core: str = ""  # resource: per cent of a card's compute
    priority: str = ""  # resource: an environment variable; not used by the scheduler
    register: str = ""  # node annotation: the cards
    score: str = ""  # node annotation: pair scores between cards
    to_allocate: str = ""  # pod annotation: consumed by the node's plugin
    allocated: str = ""  # pod annotation: the lasting record
    use_type: str = ""  # pod annotations from here on
    nouse_type: str = ""
    use_uuid: str = ""
    nouse_uuid: str = ""
    numa_bind: str = ""
    mode: str = ""
    webhook: bool = False  # HAMi's webhook fills in the count and exclusive cores (nvidia/device.go:417)
    overwrite_env: bool = False  # the webhook hides all cards from containers that ask for none
    runtime_class: str = ""  # the RuntimeClass that the webhook writes; "" = none
    core_policy: str = "default"  # of all containers: GPU_CORE_UTILIZATION_POLICY, if not "default"
    memory_factor: int = 1
    default_memory: int = 0  # MiB; 0 = the whole card
    default_cores: int = 0
    default_count: int = 1
    split_count: int = 10  # slots per card
    plugin: str = ""  # GPUSHARE or GPU_MANAGER; "" = HAMi's plugin, ours, or the vendor's own
    one_card: bool = False  # a pod's containers together get a part of one card
    node_policy: str = ""  # the policies of pods that ask for these cards and name none; "" = the default
    device_policy: str = ""
    chooses_itself: bool = False  # the plugin refuses a card that `device_policy` would not have chosen

    @property
    def shares(self) -> frozenset[str]:
        """Resources that describe a part of a card; they are never counted on a node by themselves."""
        return frozenset(name for name in (self.memory, self.percentage, self.core, self.priority) if name)

    @property
    def pod_keys(self) -> tuple[str, ...]:
        """Annotations of a pod that name the cards that it accepts or has."""
        rules = (self.use_type, self.nouse_type, self.use_uuid, self.nouse_uuid, self.numa_bind, self.mode)
        return (*rules, self.to_allocate, self.allocated)


@dataclass(frozen=True)
class Vendors:
    """The table of vendors, with the lookups for requests and nodes."""

    rows: tuple[Vendor, ...]

    @cached_property
    def by_word(self) -> dict[str, Vendor]:
        return {row.word: row for row in self.rows}

    @cached_property
    def by_count(self) -> dict[str, Vendor]:
        return {row.count: row for row in self.rows if row.count}

    @cached_property
    def share_names(self) -> frozenset[str]:
        return frozenset(name for row in self.rows for name in row.shares)

    @cached_property
    def allocated(self) -> frozenset[str]:
        """Pod annotations that record the pod's cards."""
        return frozenset(row.allocated for row in self.rows if row.allocated)

    @cached_property
    def with_plugin(self) -> tuple[Vendor, ...]:
        """The rows of plugins of other systems."""
        return tuple(row for row in self.rows if row.plugin)

    @cached_property
    def positions(self) -> dict[str, tuple[int, ...]]:
        """Resource or pod annotation -> the rows that it concerns."""
        found: dict[str, tuple[int, ...]] = {}
        for position, row in enumerate(self.rows):
            for name in (row.count, *row.shares, *row.pod_keys):
                if name:
                    found[name] = (*found.get(name, ()), position)
        return found

    @cached_property
    def without_webhook(self) -> Vendors:
        """The table for pods that HAMi's webhook ignores."""
        return Vendors(tuple(replace(row, webhook=False) for row in self.rows))

    def concerned(self, names: Iterable[str]) -> list[Vendor]:
        """The rows that any of these resources or annotations concerns, in the table's order."""
        places = {place for name in names for place in self.positions.get(name, ())}
        return [self.rows[place] for place in sorted(places)]

    def with_rows(self, rows: Iterable[Vendor]) -> Vendors:
        """The table with these rows; each replaces the row of the same word, or is added."""
        table = dict(self.by_word)
        table.update((row.word, row) for row in rows)
        return Vendors(tuple(table.values()))

    def with_gpushare_unit(self, unit: str) -> Vendors:
        """The table for clusters whose gpushare plugin counts memory in this unit: MiB or GiB."""
        factor = {"MiB": 1, "GiB": MIB_PER_GIB}[unit]
        return self.with_rows(replace(row, memory_factor=factor) for row in self.rows if row.plugin == GPUSHARE)


def _keys(stem: str) -> dict[str, Any]:
    return {"to_allocate": f"hami.io/{stem}-devices-to-allocate", "allocated": f"hami.io/{stem}-devices-allocated"}


def _uuids(domain: str) -> dict[str, Any]:
    return {"use_uuid": f"{domain}/use-gpuuuid", "nouse_uuid": f"{domain}/nouse-gpuuuid"}


def _types(prefix: str, noun: str) -> dict[str, Any]:
    return {"use_type": f"{prefix}/use-{noun}type", "nouse_type": f"{prefix}/nouse-{noun}type"}


def _word_uuids(word: str) -> dict[str, Any]:
    return {"use_uuid": f"hami.io/use-{word}-uuid", "nouse_uuid": f"hami.io/no-use-{word}-uuid"}


def ascend(word: str, count: str = "", memory: str = "", core: str = "") -> Vendor:
    """A Huawei NPU. HAMi's plugin handles vNPU templates (memory rounded up to a template)."""
    count = count or f"huawei.com/{word}"
    return Vendor(
        word,
        count,
        memory or f"{count}-memory",
        core=core or f"{count}-core",
        register=f"hami.io/node-register-{word}",
        **_keys(word),
        **_word_uuids(word),
    )


def iluvatar(word: str, count: str = "", memory: str = "", core: str = "") -> Vendor:
    stem = f"iluvatar.ai/{word}"
    return Vendor(
        word,
        count or f"{stem}-vgpu",
        memory or f"{stem}.vMem",
        core=core or f"{stem}.vCore",
        register=f"hami.io/node-{word}-register",
        **_keys(word),
        **_word_uuids(word),
    )


_NVIDIA = Vendor(
    NVIDIA,
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
    register="hami.io/node-nvidia-register",
    score="hami.io/node-nvidia-score",
    **_keys("vgpu"),
    **_types("nvidia.com", "gpu"),
    **_uuids("nvidia.com"),
    numa_bind="nvidia.com/numa-bind",
    mode="nvidia.com/vgpu-mode",
    webhook=True,
)

DEFAULT_VENDORS = Vendors(
    (
        _NVIDIA,
        Vendor(
            "AMD",
            "amd.com/gpu",
            "amd.com/gpumem",
            core="amd.com/gpucores",
            register="hami.io/node-amd-register",
            **_keys("amd"),
        ),
        Vendor(
            "MLU",
            "cambricon.com/vmlu",
            "cambricon.com/mlu.smlu.vmemory",
            core="cambricon.com/mlu.smlu.vcore",
            **_keys("cambricon-mlu"),
            **_types("cambricon.com", "mlu"),
            **_uuids("cambricon.com"),
        ),
        Vendor(
            "DCU",
            "hygon.com/dcunum",
            "hygon.com/dcumem",
            core="hygon.com/dcucores",
            register="hami.io/node-dcu-register",
            **_keys("dcu"),
            **_types("hygon.com", "dcu"),
            **_uuids("hygon.com"),
        ),
        *(ascend(f"Ascend{chip}") for chip in ("910A", "910B2", "910B3", "910B4", "910B4-1", "910C", "310P")),
        *(iluvatar(chip) for chip in ("MR-V100", "MR-V50", "BI-V150", "BI-V100")),
        Vendor(
            "Mthreads",
            "mthreads.com/vgpu",
            "mthreads.com/sgpu-memory",
            core="mthreads.com/sgpu-core",
            **_keys("mthreads-vgpu"),
        ),
        Vendor("Metax-GPU", "metax-tech.com/gpu", **_keys("metax-gpu"), **_uuids("metax-tech.com")),
        Vendor(
            "Metax-SGPU",
            "metax-tech.com/sgpu",
            "metax-tech.com/vmemory",
            core="metax-tech.com/vcore",
            **_keys("metax-sgpu"),
            **_uuids("metax-tech.com"),
        ),
        Vendor("GCU", "enflame.com/gcu", **_keys("enflame-gcu")),
        Vendor(
            "Enflame",
            "enflame.com/drs-gcu",
            "enflame.com/gcu-memory",
            core="enflame.com/gcu-core",
            allocated="hami.io/enflame-vgpu-devices-allocated",
            **_uuids("enflame.com"),
        ),
        Vendor("kunlun", "kunlunxin.com/xpu", allocated="hami.io/kunlun-allocated"),
        Vendor("XPU", "kunlunxin.com/vxpu", "kunlunxin.com/vxpu-memory", **_keys("xpu")),
        Vendor(
            "AWSNeuron",
            "aws.amazon.com/neuron",
            core="aws.amazon.com/neuroncore",
            allocated="hami.io/aws-neuron-devices-allocated",
        ),
        Vendor("Vastai", "vastaitech.com/va", **_keys("Vastai")),
        Vendor("Biren", "birentech.com/gpu", **_keys("Biren")),
        Vendor(
            "gpushare",
            "",
            "aliyun.com/gpu-mem",
            allocated="dovetail.dev/gpushare-devices",
            memory_factor=MIB_PER_GIB,
            plugin=GPUSHARE,
            one_card=True,
            device_policy="gpushare",
        ),
        Vendor(
            "vcuda",
            "",
            "tencent.com/vcuda-memory",
            core="tencent.com/vcuda-core",
            allocated="dovetail.dev/vcuda-devices",
            memory_factor=MIB_PER_BLOCK,
            plugin=GPU_MANAGER,
            node_policy="vcuda",
            device_policy="vcuda",
            chooses_itself=True,
        ),
    )
)
