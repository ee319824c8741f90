"""Converts a trace to the engine's model: machines become nodes, jobs become pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dovetail.model.decision import Share
from dovetail.model.device import Device
from dovetail.model.gang import ANYWHERE, Role
from dovetail.model.node import CPU, MEMORY, PODS, Enforcer, Node
from dovetail.model.pod import POD_GROUP, TENANT, Container, ContainerKind, DeviceAsk, DeviceRules, Group, Pod, Profile
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.rows import Ints
from dovetail.policies.typical import most_frequent
from dovetail.sim.gpu_models import UNKNOWN_MEMORY_MIB
from dovetail.sim.racks import labels_of, rule_of
from dovetail.sim.trace import Job, Machine

MIB = 2**20
VENDOR = "NVIDIA"
MAX_PODS_PER_NODE = 1001  # per node, as in the published simulator
SLOTS_PER_GPU = 1000  # containers per GPU: so many that slots never run out
NAMESPACE = "trace"
KBIT_PER_CORE = 20_000  # what a pod moves, by its CPU: traces do not say; only `balanced-network` reads it
Request = tuple[int, int, int, int, str]


def nodes_of(machines: Sequence[Machine]) -> list[Node]:
    """The nodes of a cluster. A name begins with the machine's position in the list: ties go to the smallest name."""
    width = len(str(len(machines)))
    return [node_of(machine, f"{n:0{width}d}.{machine.name}") for n, machine in enumerate(machines)]


def machine_name(node: str) -> str:
    return node.partition(".")[2]


def model_name(machine: Machine) -> str:
    return machine.model or "GPU"


def card_memory(machine: Machine) -> int:
    """MiB of each GPU of the machine; UNKNOWN_MEMORY_MIB if the trace does not say."""
    return machine.gpu_memory_mib or UNKNOWN_MEMORY_MIB


def node_of(machine: Machine, name: str) -> Node:
    memory, model = card_memory(machine), model_name(machine)
    devices = tuple(Device(f"{name}/{d}", d, VENDOR, model, memory, slots=SLOTS_PER_GPU) for d in range(machine.gpus))
    room = {CPU: machine.cpu_milli, MEMORY: machine.memory_mib * MIB, PODS: MAX_PODS_PER_NODE}
    return Node(name, room, devices, labels=labels_of(machine), enforcer=Enforcer.DOVETAIL)


def pod_of(job: Job, profile: Profile, name: str) -> Pod:
    """One pod of a job. A pod that asks for a whole GPU gets all its memory too."""
    asks: tuple[DeviceAsk, ...] = ()
    if job.gpus:
        whole = job.gpu_milli >= WHOLE_CARD
        memory = 0 if whole else job.gpu_memory_mib
        asks = (DeviceAsk(VENDOR, job.gpus, memory, 100 if whole else None, job.gpu_milli),)
    return Pod(
        NAMESPACE,
        name,
        name,
        {CPU: job.cpu_milli, MEMORY: job.memory_mib * MIB},
        job.cpu_milli,
        job.memory_mib * MIB,
        (Container("main", ContainerKind.APP, asks),),
        (DeviceRules(VENDOR, use_types=tuple(sorted(set(job.models)))),) if job.models else (),
        profile=profile,
        priority=job.priority,
        created=job.arrival,
        owner=job.tenant and f"{TENANT}{job.tenant}",
        network_kbit=job.cpu_milli * KBIT_PER_CORE // 1000,
    )


def uids(job: Job) -> list[str]:
    """The names of the job's pods."""
    return [job.name] if job.pods == 1 else [f"{job.name}.{n}" for n in range(job.pods)]


def group_of(job: Job, pods: Sequence[Pod]) -> Group:
    if job.pods == 1 and rule_of(job) == ANYWHERE:
        return Group(pods[0].key, tuple(pods))
    name, rule = f"{POD_GROUP}{NAMESPACE}/{job.name}", rule_of(job)
    if rule != ANYWHERE:
        pods = [replace(pod, group=name) for pod in pods]
    return Group(name, tuple(pods), minimum=job.pods, topology=rule)


def gang_of(rows: Sequence[tuple[Job, Sequence[Pod]]]) -> Group:
    """A gang with a role for each of these jobs. The rules of a job are those of its role."""
    name = f"{POD_GROUP}{NAMESPACE}/{rows[0][0].gang}"
    pods = [replace(pod, group=name, role=job.name) for job, some in rows for pod in some]
    roles = tuple(Role(job.name, job.pods, rule_of(job)) for job, _ in rows)
    return Group(name, tuple(pods), minimum=len(pods), roles=roles)


def card_index(share: Share) -> int:
    """The index of the share's GPU on its machine."""
    return int(share.uuid.rpartition("/")[2])


class Cast(NamedTuple):
    """Jobs as a few templates: pod n has the template `kinds[n]`."""

    templates: tuple[Pod, ...]
    kinds: Ints


def cast(jobs: Sequence[Job], profile: Profile) -> Cast:
    """Templates for the jobs: jobs with equal requests share one, whatever their names."""
    seen: dict[tuple[object, ...], int] = {}
    templates: list[Pod] = []
    kinds = np.empty(len(jobs), dtype=np.int64)
    for n, job in enumerate(jobs):
        key = (*request(job), job.memory_mib, job.priority, job.tenant)
        if key not in seen:
            seen[key] = len(templates)
            templates.append(pod_of(job, profile, f"template-{len(templates)}"))
        kinds[n] = seen[key]
    return Cast(tuple(templates), kinds)


def request(job: Job) -> Request:
    """The key that makes two requests equal.

    It is the paper's key (CPU, share, GPUs, models as written in the trace), and GPU memory.
    """
    if not job.gpus:
        return (job.cpu_milli, 0, 0, 0, "|".join(job.models))
    memory = job.gpu_memory_mib if job.gpu_milli < WHOLE_CARD else 0
    return (job.cpu_milli, job.gpu_milli, memory, job.gpus, "|".join(job.models))


def typical(jobs: Iterable[Job], part: float = 0.95) -> list[tuple[Job, int]]:
    """The most frequent requests that together make up `part` of a trace, each with its number of pods."""
    example: dict[Request, Job] = {}
    times: dict[Request, int] = {}
    for job in jobs:
        key = request(job)
        example.setdefault(key, job)
        times[key] = times.get(key, 0) + job.pods
    return [(example[key], count) for key, count in most_frequent(times.items(), part)]
