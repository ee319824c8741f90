"""The metrics of HAMi's scheduler under HAMi's names and labels, for dashboards and alerts that exist already.

They are those of HAMi's cmd/scheduler/metrics.go. Each GPU has series of its own, and so has each container that holds
a part of one; so their number has a bound. Text is kept by node and by pod, and written again only where something
changed. Other tasks of the scheduler run in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.rights.quota import Quotas
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS, Vendors
from dovetail.kube.live.known import Known
from dovetail.kube.live.metrics.hami_quotas import HAMI_ZONE, Limits, quota_limits, quota_lines
from dovetail.kube.live.metrics.table import Metric
from dovetail.kube.live.metrics.text import escaped, written
from dovetail.model.device import Device
from dovetail.model.node import Node
from dovetail.model.pod import RunningPod
from dovetail.policies.rows import CARD_MEMORY, COMPUTE, SLOTS

MOST_CARD_SERIES = 10_000  # with series of their own, by default; as many for containers
PORTION_OF_NODES = 8  # written in one go: about a millisecond
PORTION_OF_HOLDERS = 200
MIB = 2**20
_IN_ZONE = f'zone="{HAMI_ZONE}"'
_CARD = ("node", "device_uuid", "device_index", "device_type")
_OLD_CARD = ("nodeid", "deviceuuid", "deviceidx", "devicetype")
_POD = ("namespace", "node", "pod", "container_index", "device_uuid")
_OLD_POD = ("podnamespace", "nodename", "podname", "containeridx", "deviceuuid")


def _metric(name: str, text: str, labels: tuple[str, ...]) -> Metric:
    return Metric(name, text, ("zone", *labels))


def _with(labels: tuple[str, ...], *more: str) -> tuple[str, ...]:
    """The labels of a card with more labels before its type."""
    return (*labels[:3], *more, labels[3])


CARD_METRICS = (
    _metric("hami_gpu_memory_limit_bytes", "Memory of the GPU.", _CARD),
    _metric("hami_gpu_core_limit_ratio", "100, or 0 for a GPU without compute.", _CARD),
    _metric("hami_gpu_memory_allocated_bytes", "Memory of the GPU that containers hold.", _with(_CARD, "device_cores")),
    _metric("hami_gpu_shared_count", "Containers that hold a part of the GPU.", _CARD),
    _metric("hami_gpu_core_allocated_ratio", "Compute that containers hold, in per cent of the GPU's.", _CARD),
    _metric(
        "hami_node_gpu_overview",
        "Memory of the GPU that containers hold.",
        _with(_CARD, "device_cores", "device_memory_limit"),
    ),
    _metric("hami_node_gpu_memory_allocated_ratio", "The same as a part of the GPU's memory, 0 to 1.", _CARD[:3]),
)
OLD_CARD_METRICS = (
    _metric("GPUDeviceMemoryLimit", "Memory of the GPU in bytes.", _OLD_CARD),
    _metric("GPUDeviceCoreLimit", "Compute of the GPU; 100 is a whole GPU.", _OLD_CARD),
    _metric("GPUDeviceMemoryAllocated", "Bytes that containers hold.", _with(_OLD_CARD, "devicecores")),
    _metric("GPUDeviceSharedNum", "Containers that hold a part of the GPU.", _OLD_CARD),
    _metric("GPUDeviceCoreAllocated", "Compute that containers hold; 100 is a whole GPU.", _OLD_CARD),
    _metric("nodeGPUOverview", "Bytes that containers hold.", _with(_OLD_CARD, "devicecores", "devicememorylimit")),
    _metric("nodeGPUMemoryPercentage", "Memory that containers hold, as a part of the GPU's, 0 to 1.", _OLD_CARD[:3]),
)
POD_METRICS = (
    _metric("hami_vgpu_memory_allocated_bytes", "GPU memory that a container holds on a GPU.", _POD),
    _metric("hami_vgpu_core_allocated_ratio", "Compute that a container holds, in per cent of the GPU.", _POD),
)
OLD_POD_METRICS = (
    _metric("vGPUMemoryAllocated", "Bytes of GPU memory that a container holds on a GPU.", _OLD_POD),
    _metric("vGPUCoreAllocated", "Compute that a container holds on a GPU; 100 is a whole GPU.", _OLD_POD),
)
CARDS_LEFT_OUT = Metric(
    "dovetail_hami_cards_left_out", "GPUs without series of HAMi's names, because there are too many."
)
CONTAINERS_LEFT_OUT = Metric(
    "dovetail_hami_containers_left_out", "Parts of GPUs held by containers that have no series of HAMi's names."
)


@dataclass(frozen=True, slots=True)
class HamiMetricsOptions:
    enabled: bool = False
    legacy: bool = False  # the names before HAMi 2.6, too: HAMi's --legacy-metrics
    most_cards: int = MOST_CARD_SERIES
    vendors: Vendors = DEFAULT_VENDORS  # their names for resources


class _NodeText(NamedTuple):
    node: Node  # as it was written
    held: bytes  # what its cards were used for
    texts: tuple[str, ...]  # by metric


class _PodText(NamedTuple):
    running: RunningPod
    texts: tuple[str, ...]
    shares: int


class HamiMetrics:
    """The text of HAMi's metrics. `update` first."""

    def __init__(self, options: HamiMetricsOptions) -> None:
        self._options = options
        self.card_metrics = (*CARD_METRICS, *(OLD_CARD_METRICS if options.legacy else ()))
        self.pod_metrics = (*POD_METRICS, *(OLD_POD_METRICS if options.legacy else ()))
        self._nodes: dict[str, _NodeText] = {}  # by name
        self._pods: dict[str, _PodText] = {}  # by uid
        self._limits: Limits = {}
        self.cards_left_out = self.holders_left_out = 0

    async def update(self, ledger: Ledger, quotas: Quotas, pods: Collection[Known]) -> None:
        await self._update_nodes(ledger)
        await self._update_pods(ledger, pods)
        self._limits = await quota_limits(quotas.uses(), self._options.vendors, self._options.most_cards)

    async def _update_nodes(self, ledger: Ledger) -> None:
        kept: dict[str, _NodeText] = {}
        cards, done, self.cards_left_out = 0, 0, 0
        for name in sorted(ledger.row_of):
            row = ledger.row_of.get(name)
            if row is None or not ledger.is_active(row):
                continue
            node, held = ledger.nodes[row], ledger.rows.held[row].tobytes()
            if cards + len(node.devices) > self._options.most_cards:
                self.cards_left_out += len(node.devices)
                continue
            cards += len(node.devices)
            known = self._nodes.get(name)
            if known is None or known.node is not node or known.held != held:
                known = _NodeText(node, held, self._node_text(ledger, row))
                done += 1
                if done % PORTION_OF_NODES == 0:
                    await asyncio.sleep(0)
            kept[name] = known
        self._nodes = kept

    def _node_text(self, ledger: Ledger, row: int) -> tuple[str, ...]:
        node = ledger.nodes[row]
        used = ledger.rows.held[row, : len(node.devices)].tolist()
        by_card = [self._card_lines(node.name, device, held) for device, held in zip(node.devices, used, strict=True)]
        return tuple("\n".join(column) for column in zip(*by_card, strict=True)) if by_card else ()

    def _card_lines(self, name: str, device: Device, held: list[int]) -> tuple[str, ...]:
        """The samples of one card, by metric."""
        cores, used_cores = device.compute_milli // 10, held[COMPUTE] // 10
        memory = held[CARD_MEMORY]
        part = memory / device.memory_mib if device.memory_mib else 0.0
        ratio = ceil(held[COMPUTE] / device.compute_milli * 100) if device.compute_milli else 0
        mib, uuid, kind = device.memory_mib, escaped(device.uuid), escaped(device.model)
        values = (mib * MIB, 100 if cores else 0, memory * MIB, held[SLOTS], ratio, memory * MIB, part)
        labels = f'{_IN_ZONE},node="{escaped(name)}",device_uuid="{uuid}",device_index="{device.index}"'
        size, limit, last = f'device_cores="{cores}",', f'device_memory_limit="{mib}",', f'device_type="{kind}"'
        ends = (f",{last}", f",{last}", f",{size}{last}", f",{last}", f",{last}", f",{size}{limit}{last}", "")
        found = _samples(CARD_METRICS, labels, ends, values)
        if not self._options.legacy:
            return found
        values = (mib * MIB, cores, memory * MIB, held[SLOTS], used_cores, memory * MIB, part)
        labels = f'{_IN_ZONE},nodeid="{escaped(name)}",deviceuuid="{uuid}",deviceidx="{device.index}"'
        size, limit, last = f'devicecores="{cores}",', f'devicememorylimit="{mib}",', f'devicetype="{kind}"'
        ends = (f",{last}", f",{last}", f",{size}{last}", f",{last}", f",{last}", f",{size}{limit}{last}", "")
        return (*found, *_samples(OLD_CARD_METRICS, labels, ends, values))

    async def _update_pods(self, ledger: Ledger, pods: Collection[Known]) -> None:
        kept: dict[str, _PodText] = {}
        shares = self.holders_left_out = 0
        for number, known in enumerate([one for one in pods if one.held is not None]):
            if number % PORTION_OF_HOLDERS == 0:
                await asyncio.sleep(0)
            running = known.running
            if running is None or not running.shares:
                continue
            if shares + len(running.shares) > self._options.most_cards:
                self.holders_left_out += len(running.shares)
                continue
            shares += len(running.shares)
            text = self._pods.get(known.pod.uid)
            if text is None or text.running is not running:
                text = _PodText(running, self._pod_text(ledger, running), len(running.shares))
            kept[known.pod.uid] = text
        self._pods = kept

    def _pod_text(self, ledger: Ledger, running: RunningPod) -> tuple[str, ...]:
        row = ledger.row_of.get(running.node)
        whole = {one.uuid: one.compute_milli for one in ledger.nodes[row].devices} if row is not None else {}
        place = tuple(map(escaped, (running.pod.namespace, running.node, running.pod.name)))
        lines: list[tuple[str, ...]] = []
        for share in running.shares or ():
            size, uuid = whole.get(share.uuid, 0), escaped(share.uuid)
            memory, ratio = share.memory_mib * MIB, ceil(share.compute_milli / size * 100) if size else 0
            labels = '{},namespace="{}",node="{}",pod="{}",container_index="{}",device_uuid="{}"'.format(
                _IN_ZONE, *place, share.container, uuid
            )
            found = _samples(POD_METRICS, labels, ("", ""), (memory, ratio))
            if self._options.legacy:
                labels = '{},podnamespace="{}",nodename="{}",podname="{}",containeridx="{}",deviceuuid="{}"'.format(
                    _IN_ZONE, *place, share.container, uuid
                )
                found += _samples(OLD_POD_METRICS, labels, ("", ""), (memory, share.compute_milli // 10))
            lines.append(found)
        return tuple("\n".join(column) for column in zip(*lines, strict=True))

    def lines(self) -> Iterator[str]:
        """Pieces of the page, by metric."""
        yield from _family(self.card_metrics, (one.texts for one in self._nodes.values()))
        yield from _family(self.pod_metrics, (one.texts for one in self._pods.values()))
        yield from quota_lines(self._limits, self._options.legacy)
        for metric, count in ((CARDS_LEFT_OUT, self.cards_left_out), (CONTAINERS_LEFT_OUT, self.holders_left_out)):
            yield from (*_comments(metric), f"{metric.name} {count}")


def _samples(
    metrics: tuple[Metric, ...], labels: str, ends: tuple[str, ...], values: tuple[float, ...]
) -> tuple[str, ...]:
    return tuple(
        f"{metric.name}{{{labels}{end}}} {written(value)}"
        for metric, end, value in zip(metrics, ends, values, strict=True)
    )


def _comments(metric: Metric) -> tuple[str, str]:
    return f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"


def _family(metrics: tuple[Metric, ...], texts: Iterable[tuple[str, ...]]) -> Iterator[str]:
    columns = list(zip(*(one for one in texts if one), strict=True)) or [()] * len(metrics)
    for metric, column in zip(metrics, columns, strict=True):
        yield from _comments(metric)
        yield from column
