"""Alibaba's openb trace (cluster-trace-gpu-v2023): its node and pod lists as machines and jobs.

Columns of a pod list: name, cpu_milli, memory_mib, num_gpu, gpu_milli. All lists but the multigpu ones also have
gpu_spec, qos, pod_phase and three times in seconds. Columns of a node list: sn, cpu_milli, memory_mib, gpu, model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dovetail.model.units import WHOLE_CARD
from dovetail.sim.fields import MOST_MIB, MOST_MILLI, Field, label, models, name, seconds, whole
from dovetail.sim.gpu_models import GPU_MODELS, UNKNOWN_MEMORY_MIB
from dovetail.sim.jobs_file import MOST_GPUS, job_of
from dovetail.sim.rows import Misfit, RowProblem, Values, header_of, read
from dovetail.sim.trace import Job, Machine

_HINT = "the openb trace has it as published"
_CPU = Field("cpu_milli", whole(0, MOST_MILLI), "1000 is one core", required=True)
_MEMORY = Field("memory_mib", whole(0, MOST_MIB), "1024 is one GiB", required=True)
_TIMES = ("creation_time", "deletion_time", "scheduled_time")

POD_LIST_FIELDS = (
    Field("name", name, "give every pod a name of its own", required=True),
    _CPU,
    _MEMORY,
    Field("num_gpu", whole(0, MOST_GPUS), "0 is a pod without GPU", required=True),
    Field("gpu_milli", whole(0, WHOLE_CARD), "it is per GPU, and 1000 is the GPU for itself", required=True),
    Field("gpu_spec", models, "leave it empty for any model"),
    Field("qos", label, _HINT),
    Field("pod_phase", label, _HINT),
    *(Field(time, seconds, "leave it empty where it is not known") for time in _TIMES),
)
NODE_LIST_FIELDS = (
    Field("sn", name, "give every node a name of its own", required=True),
    _CPU,
    _MEMORY,
    Field("gpu", whole(0, MOST_GPUS), "0 is a node without GPU", required=True),
    Field("model", label, "leave it empty for a node without GPU"),
)


def is_pod_list(path: Path) -> bool:
    return {"name", "num_gpu", "gpu_milli"} <= set(header_of(path))


def is_node_list(path: Path) -> bool:
    return {"sn", "cpu_milli", "gpu"} <= set(header_of(path))


def read_pods(path: Path, skip_bad: bool = False) -> tuple[list[Job], list[RowProblem]]:
    """Jobs sorted by name, as the indices of orders require, and the problems of the file."""
    jobs, problems = read(path, POD_LIST_FIELDS, _job, "pods", skip_bad)
    return sorted(jobs, key=lambda job: job.name), problems


def read_nodes(path: Path, skip_bad: bool = False) -> tuple[list[Machine], list[RowProblem]]:
    """Machines sorted by name, as the indices of orders require, and the problems of the file."""
    machines, problems = read(path, NODE_LIST_FIELDS, _machine, "nodes", skip_bad)
    return sorted(machines, key=lambda machine: machine.name), problems


def _job(values: Values, position: int) -> Sequence[Job]:
    created, deleted = values.get("creation_time"), values.get("deletion_time")
    began = values.get("scheduled_time", created)  # pods that never ran have no scheduled time
    duration = None if deleted is None or began is None else deleted - began
    if duration is not None and duration < 0:
        raise Misfit("deletion_time", f"{deleted:.0f} is before the pod began at {began:.0f}; swap or empty them")
    job = {
        "name": values["name"],
        "cpu_milli": values["cpu_milli"],
        "memory_mib": values["memory_mib"],
        "gpus": values["num_gpu"],
        "gpu_milli": values["gpu_milli"],
        "models": values.get("gpu_spec", ()),
        "arrival": float(position) if created is None else created,
        "duration": duration,
        "tenant": values.get("qos", ""),
    }
    return (job_of(job),)


def _machine(values: Values, _: int) -> Sequence[Machine]:
    model, gpus = values.get("model", ""), values["gpu"]
    known = GPU_MODELS.get(model)
    memory = known.memory_mib if known else UNKNOWN_MEMORY_MIB
    name, cpu, host = values["sn"], values["cpu_milli"], values["memory_mib"]
    return (Machine(name, cpu, host, gpus, model, memory if gpus else 0),)
