"""The minimum known of a pod that could not be read: its identity, and roughly its request.

A running pod must be charged, whatever is wrong with the rest of it. Each part is read separately, and a part that
cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from dovetail.kube.conversion.amounts import amount, within_priorities
from dovetail.kube.conversion.assigned import recorded_shares
from dovetail.kube.conversion.plugins import with_plugin_records
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS, Vendors
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.model.node import CPU, MEMORY
from dovetail.model.pod import Container, DeviceAsk, Pod, RunningPod, Trust
from dovetail.model.units import WHOLE_CARD

MAX_CARDS = 64  # for each container and vendor: more than a machine has


def bare_pod(source: objects.Pod, vendors: Vendors = DEFAULT_VENDORS) -> Pod:
    """Names, CPU, memory, and a whole card for every requested card."""
    meta, resources = source.metadata, dict[str, int]()
    for container in source.spec.containers:
        for key in (CPU, MEMORY):
            asked = container.resources.requests.get(key, container.resources.limits.get(key))
            with suppress(Exception):
                resources[key] = resources.get(key, 0) + (amount(key, asked) if asked is not None else 0)
    containers = tuple(Container(one.name, asks=tuple(_asks(one, vendors))) for one in source.spec.containers)
    scheduler = source.spec.scheduler_name
    priority = within_priorities(source.spec.priority or 0)  # pods of a lower priority must not take its place
    return Pod(
        *(meta.namespace, meta.name, meta.uid, resources),
        containers=containers,
        scheduler=scheduler,
        priority=priority,
        leaving=bool(meta.deletion_timestamp),
    )


def bare_running(source: objects.Pod, known: Pod | None, vendors: Vendors = DEFAULT_VENDORS) -> RunningPod:
    """What the pod holds, by its record where that can be read. `known`: its request from when it could be read."""
    pod = known if known is not None else bare_pod(source, vendors)
    shares = None
    with suppress(Exception):
        notes = with_plugin_records(pod, source.spec.node_name, source.metadata.annotations, vendors)
        shares = recorded_shares(pod, notes, vendors, pod.key, Problems())
    return RunningPod(pod, source.spec.node_name, shares, Trust.AMOUNTS_AS_ASKED)


def _asks(container: objects.Container, vendors: Vendors) -> Iterator[DeviceAsk]:
    for row in vendors.rows:
        asked = container.resources.limits.get(row.count) if row.count else None
        if row.plugin and any(name in container.resources.limits for name in row.shares):
            yield DeviceAsk(row.word, 1, memory_percent=100, compute_milli=WHOLE_CARD)
        if asked is None:
            continue
        with suppress(Exception):
            count = min(amount(row.count, asked), MAX_CARDS)
            if count > 0:
                yield DeviceAsk(row.word, count, memory_percent=100, compute_milli=WHOLE_CARD)
