"""Dovetail's own trace files: jobs and machines as CSV or JSON lines. docs/traces.md describes them for users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from dovetail.model.units import WHOLE_CARD
from dovetail.sim.fields import MOST_MIB, MOST_MILLI, Field, Wrong, label, models, name, one_of, seconds, shown, whole
from dovetail.sim.racks import LEVEL_LABELS
from dovetail.sim.rows import Misfit, RowProblem, Values, read, write
from dovetail.sim.trace import Job, Machine, TraceError

MOST_GPUS = 1_024  # per pod, and per machine
MAX_PODS_PER_JOB = MOST_MACHINES = 100_000
TOPOLOGY_FIELDS = frozenset({"gang", "required", "preferred", "least_racks", "most_per_node", "block", "rack"})
HIGHEST_PRIORITY = 2_000_001_000  # of the Kubernetes class system-node-critical, the highest one

_CPU = Field("cpu_milli", whole(0, MOST_MILLI), "1000 is one core")
_MEMORY = Field("memory_mib", whole(0, MOST_MIB), "1024 is one GiB")

JOB_FIELDS = (
    Field("name", name, "give every job a name of its own", required=True),
    Field("arrival", seconds, "count from the begin of the trace"),
    Field("duration", seconds, "leave it empty for a job that stays"),
    Field("gpus", whole(0, MOST_GPUS), "0 is a job without GPU"),
    Field("gpu_milli", whole(0, WHOLE_CARD), "it is per GPU, and 1000 is the GPU for itself; ask for more by gpus"),
    Field("gpu_memory_mib", whole(0, MOST_MIB), "it is per GPU; leave it empty for no claim"),
    _CPU,
    _MEMORY,
    Field("models", models, "leave it empty for any model"),
    Field("priority", whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY), "higher goes first"),
    Field("pods", whole(1, MAX_PODS_PER_JOB), "1 is a job of one pod"),
    Field("tenant", label, "leave it empty for none"),
    Field("gang", label, "give the roles of one gang the same name; leave it empty for a job of its own"),
    Field("required", one_of(*LEVEL_LABELS), "leave it empty for any nodes"),
    Field("preferred", one_of(*LEVEL_LABELS), "leave it empty for no preference"),
    Field("least_racks", whole(0, MOST_MACHINES), "leave it empty for any number of racks"),
    Field("most_per_node", whole(0, MAX_PODS_PER_JOB), "leave it empty for any number"),
)
MACHINE_FIELDS = (
    Field("name", name, "give every machine a name of its own", required=True),
    Field("cpu_milli", _CPU.parse, _CPU.fix, required=True),
    Field("memory_mib", _MEMORY.parse, _MEMORY.fix, required=True),
    Field("gpus", whole(0, MOST_GPUS), "0 is a machine without GPU"),
    Field("model", label, "name the model of its GPUs"),
    Field("gpu_memory_mib", whole(0, MOST_MIB), "it is per GPU; leave it empty where it is not known"),
    Field("block", label, "leave it empty for none"),
    Field("rack", label, "leave it empty for none"),
    Field("count", whole(1, MOST_MACHINES), "leave it empty for one machine of exactly this name"),
)


def read_jobs(path: Path, skip_bad: bool = False) -> tuple[list[Job], list[RowProblem]]:
    """Jobs in the order of the file, and the problems of the file (only with `skip_bad`; otherwise they are raised)."""
    return read(path, JOB_FIELDS, lambda values, _: (job_of(values),), "jobs", skip_bad)


def read_machines(path: Path, skip_bad: bool = False) -> tuple[list[Machine], list[RowProblem]]:
    """Machines in the order of the file, and its problems. A machine with a `count` becomes NAME-0, NAME-1, …"""
    return read(path, MACHINE_FIELDS, lambda values, _: _machines_of(values), "machines", skip_bad)


def job_of(values: Values) -> Job:
    """A job of checked values. A job that asks for GPUs, and for no part of them, gets whole GPUs."""
    if values.get("gpus") and "gpu_milli" not in values and not values.get("gpu_memory_mib"):
        values = {**values, "gpu_milli": WHOLE_CARD}
    job = Job(**values)
    for claim in ("gpu_milli", "gpu_memory_mib"):
        if not job.gpus and getattr(job, claim):
            raise Misfit(claim, f"{getattr(job, claim)} of no GPU; set gpus to 1 or more, or leave {claim} empty")
    return job


def _machines_of(values: Values) -> tuple[Machine, ...]:
    count = values.pop("count", None)
    machine = Machine(**values)
    if count is None:
        return (machine,)
    return tuple(Machine(**{**values, "name": f"{machine.name}-{number}"}) for number in range(count))


def write_jobs(path: Path, jobs: Iterable[Job]) -> None:
    """Write jobs so that `read_jobs` reads back equal ones."""
    rows = [_row(job, JOB_FIELDS) for job in jobs]
    write(path, rows, _columns(JOB_FIELDS, rows))


def write_machines(path: Path, machines: Iterable[Machine]) -> None:
    """Write machines so that `read_machines` reads back equal ones: one row per machine, without `count`."""
    columns = MACHINE_FIELDS[:-1]
    rows = [_row(machine, columns) for machine in machines]
    write(path, rows, _columns(columns, rows))


def _columns(columns: Sequence[Field], rows: Sequence[Values]) -> list[str]:
    """The columns of a file: those about topology only if a row has a value there."""
    used = {name for row in rows for name in row}
    return [field.name for field in columns if field.name in used or field.name not in TOPOLOGY_FIELDS]


def _row(record: Job | Machine, columns: Sequence[Field]) -> Values:
    """The fields that differ from their defaults. Raises TraceError for a value that could not be read back."""
    defaults = {field.name: field.default for field in fields(record) if field.default is not MISSING}
    row: Values = {}
    for field in columns:
        value: Any = getattr(record, field.name)
        if field.name in defaults and value == defaults[field.name] and not _default_depends(record, field):
            continue
        try:
            field.parse(value)
        except Wrong as error:
            raise TraceError(f"{shown(record.name)}: {field.name}: {shown(value)} is not {error}") from error
        row[field.name] = _plain(value)
    return row


def _default_depends(record: Job | Machine, field: Field) -> bool:
    """True for `gpu_milli` of a GPU job: if absent, it is read as 1000, or as 0 if GPU memory is given."""
    return field.name == "gpu_milli" and record.gpus > 0


def _plain(value: Any) -> Any:
    """The value for a file: whole seconds as integers, which are easier to read and equal; tuples as lists."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else value
