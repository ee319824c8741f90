"""The doctor's checks of quotas and queues: amounts that no node has, and limits that count nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from dovetail.engine.usage import own_cards
from dovetail.kube.conversion.queues import UNLIMITED_QUOTA, queue_from
from dovetail.kube.conversion.quotas import quota_from
from dovetail.kube.doctor.finding import Check, Finding
from dovetail.kube.doctor.survey import Survey
from dovetail.kube.files.decode import Found
from dovetail.kube.objects.problems import Problems
from dovetail.kube.objects.queues import QUEUE_KINDS
from dovetail.model.device import Device, type_matches
from dovetail.model.pod import Pod, Quota
from dovetail.model.rights import GPU_AMOUNTS, GPU_COMPUTE, GPU_MEMORY, GPUS, gpu_amount
from dovetail.model.units import WHOLE_CARD

UNITS = {GPUS: ("GPUs", WHOLE_CARD), GPU_MEMORY: ("MiB of GPU memory", 1), GPU_COMPUTE: ("% of compute", 10)}
WHOLE_PERCENT_OF_A_CARD = 100


def _promises(survey: Survey) -> Iterator[Finding]:
    """Queues that are promised more GPUs than all nodes have, for all models or for one."""
    devices = [card.device for use in survey.seen.uses for card in own_cards(use)]
    if not survey.seen.uses:
        return
    for (group, kind), _ in QUEUE_KINDS.items():
        for source in survey.of(f"{kind}.{group}"):
            meta = source.metadata
            title = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
            item = Found(f"{kind} {title}", kind, group, meta.namespace, meta.name, source)
            queue = queue_from(item, survey.vendors, Problems())
            for name, amount in sorted(queue.guarantee.items()) if queue is not None else ():
                has = _total(devices, name)
                if has is None or amount <= has or amount >= UNLIMITED_QUOTA:
                    continue
                unit, size = UNITS[gpu_amount(name)[0]]
                model = gpu_amount(name)[1]
                of = f" of model {model}" if model else ""
                text = f"is promised {amount / size:,g} {unit}{of}, and all nodes together have {has / size:,g}"
                yield Finding("quota-unhostable", item.where, "", text, "lower the guarantee, or add nodes")


def _total(devices: list[Device], name: str) -> int | None:
    """The amount that all nodes have; None = it is no amount of GPUs."""
    kind, model = gpu_amount(name)
    if kind not in GPU_AMOUNTS:
        return None
    fitting = [device for device in devices if not model or type_matches(device.model, model)]
    sizes = {
        GPUS: WHOLE_CARD * len(fitting),
        GPU_MEMORY: sum(device.memory_mib for device in fitting),
        GPU_COMPUTE: sum(device.compute_milli for device in fitting),
    }
    return sizes[kind]


def _too_small(survey: Survey) -> Iterator[Finding]:
    """Waiting pods that ask for more than the quota of their namespace has in all: they wait for ever."""
    smallest: dict[str, int] = {}
    for use in survey.seen.uses:
        for card in own_cards(use):
            device = card.device
            smallest[device.vendor] = min(smallest.get(device.vendor, device.memory_mib), device.memory_mib)
    quotas: dict[str, list[Quota]] = defaultdict(list)
    for quota, _ in _quotas(survey):
        quotas[quota.namespace].append(quota)
    for one in survey.asked:
        if one.source.spec.node_name or one.pod.namespace not in quotas:
            continue
        memory, compute = _amounts_of(one.pod, smallest)
        for quota in quotas[one.pod.namespace]:
            for what, asks, has, unit in (
                ("GPU memory", memory, quota.device_memory_mib, "MiB"),
                ("compute", compute, {word: n // 10 for word, n in quota.device_compute_milli.items()}, "%"),
            ):
                for word, most in has.items():
                    if asks[word] > most:
                        text = f"asks for {asks[word]:,} {unit} of {what}; quota {quota.name} has {most:,} in all"
                        advice = "raise the quota, or ask for less: this pod never starts"
                        yield Finding("quota-too-small", one.where, "", text, advice)


def _amounts_of(pod: Pod, smallest: Mapping[str, int]) -> tuple[Counter[str], Counter[str]]:
    """(MiB, per cent of compute) by vendor; a part of a card is that of the smallest card."""
    memory, compute = Counter[str](), Counter[str]()
    for container in pod.containers:
        for ask in container.asks:
            part = smallest.get(ask.vendor, 0) * (ask.memory_percent or 0) // WHOLE_PERCENT_OF_A_CARD
            memory[ask.vendor] += ask.count * (ask.memory_mib or part)
            compute[ask.vendor] += ask.count * ask.compute_milli // 10
    return memory, compute


def _without_effect(survey: Survey) -> Iterator[Finding]:
    """Limits of ResourceQuotas that nothing counts."""
    for quota, problems in _quotas(survey):
        for problem in problems.found():
            where = f"ResourceQuota {quota.namespace}/{quota.name}"
            advice = (
                "limit requests.nvidia.com/gpu (cards), limits.nvidia.com/gpumem (MiB) or limits.nvidia.com/gpucores"
            )
            yield Finding("quota-ignored", where, "", f"{problem.field}: {problem.message}", advice)


def _quotas(survey: Survey) -> Iterator[tuple[Quota, Problems]]:
    for source in survey.of("ResourceQuota"):
        meta, problems = source.metadata, Problems()
        namespace = meta.namespace or "default"
        item = Found(f"ResourceQuota {namespace}/{meta.name}", "ResourceQuota", "", namespace, meta.name, source)
        yield quota_from(item, survey.vendors, problems), problems


QUOTA_CHECKS = (
    Check("quota-unhostable", "warning", "A queue is promised more GPUs than the nodes have.", _promises),
    Check("quota-too-small", "warning", "A pod asks for more than its namespace's whole quota.", _too_small),
    Check("quota-ignored", "note", "A limit of a ResourceQuota counts nothing.", _without_effect),
)
