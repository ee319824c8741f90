"""HAMi's metrics of namespaces' limits on GPU memory and compute, under HAMi's names.

`quota_name` is the resource, as in HAMi (pkg/device/quota.go). Kubernetes itself counts no use of these limits, so
kube-state-metrics has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dovetail.engine.rights.quota import QuotaUse
from dovetail.kube.conversion.register import MILLI_PER_CORE
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.live.metrics.table import Metric
from dovetail.kube.live.metrics.text import lines
from dovetail.model.rights import GPU_COMPUTE, GPU_MEMORY

HAMI_ZONE = "vGPU"
_UNIT = "MiB of memory, or per cent of a GPU's compute"
QUOTA_USED = Metric(
    "hami_resource_quota_used",
    f"What a namespace's pods hold of a limit: {_UNIT}.",
    ("zone", "namespace", "quota_name", "limit"),
)
QUOTA_LIMIT = Metric(
    "hami_resource_quota_limit",
    f"The smallest limit of a namespace's quotas on a resource: {_UNIT}.",
    ("zone", "namespace", "quota_name"),
)
OLD_QUOTA_USED = Metric("QuotaUsed", QUOTA_USED.help, ("zone", "quotanamespace", "quotaName", "limit"))


class ResourceLimit(NamedTuple):
    """The smallest limit on a resource, and its use. All quotas of a namespace hold; in HAMi one of them does."""

    used: int
    hard: int


Limits = Mapping[tuple[str, str], ResourceLimit]  # by namespace and resource


async def quota_limits(uses: Iterable[QuotaUse], vendors: Vendors, most: int) -> dict[tuple[str, str], ResourceLimit]:
    """The limits on GPU memory and compute, at most so many. Other tasks run in between."""
    found: dict[tuple[str, str], ResourceLimit] = {}
    for one in uses:
        await asyncio.sleep(0)
        what, _, word = one.resource.partition("/")
        row = vendors.by_word.get(word)
        if row is None or what not in (GPU_MEMORY, GPU_COMPUTE):
            continue
        unit = 1 if what == GPU_MEMORY else MILLI_PER_CORE
        key = one.namespace, row.memory if what == GPU_MEMORY else row.core
        limit = ResourceLimit(one.used // unit, one.hard // unit)
        if key in found or len(found) < most:
            found[key] = min(found.get(key, limit), limit, key=lambda each: each.hard)
    return found


def quota_lines(limits: Limits, legacy: bool) -> Iterator[str]:
    used = {(HAMI_ZONE, *key, str(one.hard)): float(one.used) for key, one in limits.items()}
    yield from lines(QUOTA_USED, used)
    yield from lines(QUOTA_LIMIT, {(HAMI_ZONE, *key): float(one.hard) for key, one in limits.items()})
    if legacy:
        yield from lines(OLD_QUOTA_USED, used)
