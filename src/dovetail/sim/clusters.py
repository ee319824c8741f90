"""Parses a cluster written as one line, such as `16xA100-SXM4-80GB:8,32xT4:4@8x4`, into machines."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches

from dovetail.sim.gpu_models import GPU_MODELS
from dovetail.sim.jobs_file import MOST_GPUS, MOST_MACHINES
from dovetail.sim.trace import Machine, TraceError

CPU_ONLY_MODEL = "CPU"  # in place of the model, for machines without GPU
CPU_ONLY_CORES, CPU_ONLY_GIB = 64, 256

_PART = re.compile(r"([0-9]{1,9})[x×]([^:,@\s]+)(?::([0-9]{1,9}))?(?:@([0-9]{1,9})(?:[x×]([0-9]{1,9}))?)?")
_EXAMPLE = "write COUNTxMODEL:GPUS, such as 16xA100-SXM4-80GB:8,32xT4:4"
_RACKS = "write @MACHINES for racks of so many machines, or @MACHINESxRACKS for blocks of so many racks"


def parse_cluster(text: str) -> tuple[Machine, ...]:
    """The machines of the text, in its order. Each is named after its model, with a number."""
    machines: list[Machine] = []
    counts: dict[str, int] = {}  # model -> machines of it so far
    racks = Racks()
    for part in text.split(","):
        count, kind = _parse_part(part.strip())
        racks.begin(part.strip())
        if len(machines) + count > MOST_MACHINES:
            raise TraceError(f"cluster: more than {MOST_MACHINES:,} machines; take fewer")
        first = counts.get(kind.name, 0)
        counts[kind.name] = first + count
        for number in range(first, first + count):
            machines.append(racks.put(_numbered(kind, number)))
    return tuple(machines)


class Racks:
    """Numbers racks and blocks while machines are added. Every part of the cluster begins with a new rack and block."""

    def __init__(self) -> None:
        self._rack = self._block = -1
        self._machines = self._racks = 0  # of a rack, of a block; 0 = no racks, all racks in one block
        self._in_rack = self._in_block = 0

    def begin(self, part: str) -> None:
        match = _PART.fullmatch(part)
        assert match is not None
        self._machines, self._racks = int(match[4] or 0), int(match[5] or 0)
        if (match[4] is not None and not self._machines) or (match[5] is not None and not self._racks):
            raise TraceError(f"cluster: {part[:60]!r} has racks or blocks of nothing; {_RACKS}")
        self._in_rack = self._in_block = 0

    def put(self, machine: Machine) -> Machine:
        """The machine in the next place."""
        if not self._machines:
            return machine
        if self._in_rack % self._machines == 0:
            self._rack += 1
            if self._in_block % (self._racks or MOST_MACHINES) == 0:
                self._block += 1
            self._in_block += 1
        self._in_rack += 1
        return replace(machine, rack=f"rack-{self._rack}", block=f"block-{self._block}")


def _parse_part(part: str) -> tuple[int, Machine]:
    match = _PART.fullmatch(part)
    if match is None:
        raise TraceError(f"cluster: {part[:60]!r} is not a kind of machine; {_EXAMPLE}")
    count, model = int(match[1]), match[2]
    if not count:
        raise TraceError(f"cluster: {part[:60]!r} has no machine; leave it out, or {_EXAMPLE}")
    if model == CPU_ONLY_MODEL:
        if match[3] not in (None, "0"):
            raise TraceError(
                f"cluster: {part[:60]!r} has GPUs of no model; machines without GPU are {count}x{CPU_ONLY_MODEL}"
            )
        return count, Machine("cpu", CPU_ONLY_CORES * 1000, CPU_ONLY_GIB * 1024)
    if model not in GPU_MODELS:
        near = [name for name in GPU_MODELS if name.lower().startswith(model.lower())]
        near = near or get_close_matches(model, GPU_MODELS, 1, 0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        known = ", ".join(GPU_MODELS)
        raise TraceError(f"cluster: {model[:60]!r} is no model known here; {hint}known are {known}, {CPU_ONLY_MODEL}")
    usual = GPU_MODELS[model]
    gpus = int(match[3]) if match[3] else usual.gpus
    if not 1 <= gpus <= MOST_GPUS:
        raise TraceError(f"cluster: {part[:60]!r}: {gpus} GPUs per machine; take 1 to {MOST_GPUS:,}")
    host_mib = usual.host_gib * gpus * 1024
    return count, Machine(model.lower(), usual.cores * gpus * 1000, host_mib, gpus, model, usual.memory_mib)


def _numbered(kind: Machine, number: int) -> Machine:
    name = f"{kind.name}-{number:03}"
    return Machine(name, kind.cpu_milli, kind.memory_mib, kind.gpus, kind.model, kind.gpu_memory_mib)
