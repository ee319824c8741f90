"""A pod's request in the words of a trace. Raises NotOfATrace where a trace has no words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.model.node import CPU, MEMORY
from dovetail.model.pod import ContainerKind, DeviceAsk, DeviceRules, Pod
from dovetail.model.reason import Reason, sentence
from dovetail.model.relations import NO_RELATIONS
from dovetail.model.units import WHOLE_CARD
from dovetail.sim.cast import MIB
from dovetail.sim.fields import MOST_MIB, MOST_MILLI, Wrong, label
from dovetail.sim.fleet import Fleet
from dovetail.sim.jobs_file import HIGHEST_PRIORITY, MOST_GPUS
from dovetail.sim.trace import Job

DIFFERENT_PARTS = "its containers ask for different parts of GPUs, or for GPUs of several vendors"
ONLY_INIT = "only its init containers ask for GPUs"
TOO_LARGE = "asks for more than a trace can say"
INIT_TOO = "init containers with GPUs: the job has those of the other containers"
PERCENTAGE = "percentage of GPU memory: taken of the GPUs of its node"
NODE_RULES = "rules about nodes (selector, affinity, taints) that GPU models do not say"
RELATIONS = "rules about other pods, ports or volumes"
GPU_RULES = "names GPUs, a GPU mode or one NUMA node"
OF_GANGS = frozenset((Reason.GROUP_UNKNOWN, Reason.GROUP_INCOMPLETE))  # a trace has the pods that there were


class NotOfATrace(ValueError):
    """Why a pod is left out."""


@dataclass(frozen=True, slots=True)
class Requested:
    """What a job asks for per pod."""

    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    gpu_milli: int = 0
    gpu_memory_mib: int = 0
    models: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # what of the pod's request is not in it

    def job(self, name: str) -> Job:
        return Job(
            name,
            cpu_milli=self.cpu_milli,
            memory_mib=self.memory_mib,
            gpus=self.gpus,
            gpu_milli=self.gpu_milli,
            gpu_memory_mib=self.gpu_memory_mib,
            models=self.models,
        )


def requested(pod: Pod, fleet: Fleet, node: str) -> Requested:
    """The request of a pod. `node`: where it ran; "" = nowhere."""
    if pod.refusal is not None and pod.refusal.reason not in OF_GANGS:
        raise NotOfATrace(f"no scheduler of ours would place it: {sentence(pod.refusal.reason)}")
    cpu, memory = pod.resources.get(CPU, 0), -(-pod.resources.get(MEMORY, 0) // MIB)
    if cpu > MOST_MILLI or memory > MOST_MIB or abs(pod.priority) > HIGHEST_PRIORITY:
        raise NotOfATrace(TOO_LARGE)
    remarks = [RELATIONS] if pod.relations != NO_RELATIONS else []
    asks = _asks(pod, remarks)
    if not asks:
        remarks += [] if fleet.takes_all(pod.node_rules) else [NODE_RULES]
        return Requested(cpu, memory, remarks=tuple(remarks))
    ask, gpus = asks[0], sum(one.count for one in asks)
    rules = pod.rules_for(ask.vendor)
    models, exact = fleet.models_for(pod.node_rules, rules)
    remarks += [] if exact else [NODE_RULES]
    remarks += [GPU_RULES] if _names_gpus(rules) else []
    milli, mib = _part(ask, fleet.memory_of(node, models), remarks)
    models = tuple(model for model in models if _is_model(model))
    if gpus > MOST_GPUS or mib > MOST_MIB:
        raise NotOfATrace(TOO_LARGE)
    return Requested(cpu, memory, gpus, milli, mib, models, tuple(remarks))


def _asks(pod: Pod, remarks: list[str]) -> Sequence[DeviceAsk]:
    """The requests for GPUs of containers that stay: they are equal but for the number of GPUs."""
    of_init = any(part.asks for part in pod.containers if part.kind is ContainerKind.INIT)
    asks = [ask for part in pod.containers if part.kind is not ContainerKind.INIT for ask in part.asks]
    if of_init and not asks:
        raise NotOfATrace(ONLY_INIT)
    if of_init:
        remarks.append(INIT_TOO)
    if len({(ask.vendor, ask.whole, ask.memory_mib, ask.memory_percent, ask.compute_milli) for ask in asks}) > 1:
        raise NotOfATrace(DIFFERENT_PARTS)
    return asks


def _part(ask: DeviceAsk, card_mib: int, remarks: list[str]) -> tuple[int, int]:
    """The compute and memory of each GPU; a whole GPU has no memory of its own in a trace."""
    if ask.whole:
        return WHOLE_CARD, 0
    milli, mib = min(ask.compute_milli, WHOLE_CARD), ask.memory_mib
    if ask.memory_percent is not None:
        mib = card_mib * ask.memory_percent // 100
        if ask.memory_percent < 100:
            remarks.append(PERCENTAGE)
    return milli, 0 if milli == WHOLE_CARD else mib


def _names_gpus(rules: DeviceRules) -> bool:
    return bool(rules.use_uuids or rules.nouse_uuids or rules.numa_bind or rules.mode)


def _is_model(text: str) -> bool:
    """Whether a trace can name it."""
    try:
        return "|" not in text and text == label(text).strip()
    except Wrong:
        return False
