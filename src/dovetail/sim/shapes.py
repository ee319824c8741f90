"""The requests of generated jobs: the most frequent shapes of the openb trace, cut to fit the machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from dovetail.model.units import WHOLE_CARD
from dovetail.sim.chance import Weighted
from dovetail.sim.trace import Job, Machine

Kind = Literal["cpu only", "share", "1 GPU", "several GPUs"]
CPU_ONLY: Kind = "cpu only"
SHARE: Kind = "share"
ONE_GPU: Kind = "1 GPU"
MULTI_GPU: Kind = "several GPUs"


class Shape(NamedTuple):
    """The request of one pod."""

    gpus: int
    gpu_milli: int
    cpu_milli: int
    memory_mib: int


# weights: how often the shape occurs in openb's default list, in pods
_CPU_ONLY = (((12_500, 57_344), 375), ((32_000, 49_152), 290), ((8_000, 30_517), 185), ((16_000, 51_200), 215))
_SHARES = (
    ((810, 3_152, 5_600), 1047),
    ((470, 11_908, 47_104), 388),
    ((470, 8_000, 30_517), 360),
    ((650, 11_908, 47_104), 237),
    ((320, 4_000, 22_888), 232),
    ((320, 8_000, 30_517), 72),
    ((230, 4_000, 30_517), 140),
    ((590, 3_152, 5_600), 75),
    ((550, 4_152, 10_600), 72),
    ((160, 4_000, 15_258), 74),
    ((460, 6_000, 6_144), 128),
    ((370, 4_152, 10_600), 47),
    ((220, 4_000, 15_258), 62),
    ((110, 2_000, 8_192), 31),
)
_ONE_GPU = (
    ((11_300, 49_152), 1391),
    ((3_152, 5_600), 470),
    ((18_708, 64_512), 255),
    ((9_810, 41_560), 195),
    ((12_000, 24_576), 257),
    ((15_700, 58_368), 251),
    ((11_908, 47_104), 153),
    ((16_000, 32_768), 108),
    ((8_000, 16_384), 159),
    ((4_000, 24_576), 104),
    ((24_200, 93_184), 84),
)
_SEVERAL = (
    ((8, 88_000, 327_680), 18),
    ((8, 64_000, 262_144), 21),
    ((8, 120_000, 655_360), 5),
    ((4, 32_000, 131_072), 12),
    ((4, 60_000, 320_512), 3),
    ((2, 16_000, 66_560), 10),
    ((2, 6_000, 65_536), 3),
    ((2, 30_000, 160_768), 3),
)
SHAPES: dict[Kind, Weighted[Shape]] = {
    CPU_ONLY: Weighted([(Shape(0, 0, *shape), weight) for shape, weight in _CPU_ONLY]),
    SHARE: Weighted([(Shape(1, *shape), weight) for shape, weight in _SHARES]),
    ONE_GPU: Weighted([(Shape(1, WHOLE_CARD, *shape), weight) for shape, weight in _ONE_GPU]),
    MULTI_GPU: Weighted([(Shape(gpus, WHOLE_CARD, *rest), weight) for (gpus, *rest), weight in _SEVERAL]),
}


class Site:
    """The kinds of machines of a cluster, and what they could take if empty."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        kinds = (replace(machine, name="", block="", rack="") for machine in machines)
        self._counts = Counter(kinds)  # kind of machine -> how many
        self.largest = max((machine.gpus for machine in machines), default=0)
        racks: dict[tuple[str, str], list[Machine]] = {}
        for machine in machines:
            if machine.rack:
                racks.setdefault((machine.block, machine.rack), []).append(replace(machine, block="", rack=""))
        self._racks = [Site(rack) for rack in racks.values()]

    def models_with(self, gpus: int) -> list[tuple[str, float]]:
        """The models that have at least `gpus` GPUs in one machine, each with its number of GPUs."""
        found: Counter[str] = Counter()
        for machine, count in self._counts.items():
            if machine.gpus >= gpus:
                found[machine.model] += machine.gpus * count
        return [(model, float(found[model])) for model in sorted(found)]

    def hosts(self, job: Job) -> list[Machine]:
        """The kinds of machines whose GPUs suit the job. CPU and memory are not checked."""
        return [
            machine
            for machine in self._counts
            if machine.gpus >= job.gpus
            and (not job.gpus or not job.models or machine.model in job.models)
            and machine.gpu_memory_mib >= job.gpu_memory_mib
        ]

    def cut_to_fit(self, job: Job) -> Job:
        """The job, reduced to the CPU and memory of one machine, and to the number of pods that the cluster holds."""
        host = max(self.hosts(job), key=lambda machine: (machine.cpu_milli, machine.memory_mib, machine.model))
        cpu, memory = min(job.cpu_milli, host.cpu_milli), min(job.memory_mib, host.memory_mib)
        job = replace(job, cpu_milli=cpu, memory_mib=memory)
        return replace(job, pods=max(1, min(job.pods, self.room(job)))) if job.pods > 1 else job

    def cut_to_rack(self, job: Job) -> Job:
        """The job with a required rack, reduced to the pods that the largest rack holds; as it is if no rack does."""
        room = max((rack.room(job) for rack in self._racks), default=0)
        return replace(job, required="rack", pods=min(job.pods, room)) if room > 1 else job

    def room(self, job: Job) -> int:
        """How many pods of the job the empty cluster holds. A lower bound for jobs with a part of a GPU."""
        total = 0
        for machine in self.hosts(job):
            bounds = [
                machine.cpu_milli // max(job.cpu_milli, 1),
                machine.memory_mib // max(job.memory_mib, 1),
                machine.gpus // job.gpus if job.gpus else machine.cpu_milli,
            ]
            total += min(bounds) * self._counts[machine]
        return total
