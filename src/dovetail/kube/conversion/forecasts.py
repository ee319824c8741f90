"""What a pod will likely load beyond its requests: CPU by its limits, and the network by an annotation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.node import CPU
from dovetail.model.pod import ONE_CORE
from dovetail.model.signals import MAX_NETWORK_KBIT

# In Mbit/s; the first one set counts. The second is the name of the extender liang, whose policies Dovetail has.
NETWORK_KEYS = ("dovetail.dev/network-mbit", "LiangNetIO")
KBIT_PER_MBIT = 1000
MAX_DIGITS = 9


def expected_cpu_milli(staying: Iterable[tuple[Mapping[str, int], Mapping[str, int]]], overhead: int) -> int:
    """CPU milli of containers that stay, given as (limits, requests); the overhead of the pod included.

    Trimaran's estimate (TargetLoadPacking): the limit, else 1.5 × the request, else one core.
    """
    total = 0
    for limits, requests in staying:
        total += limits.get(CPU, 0) or (requests.get(CPU, 0) * 3 + 1) // 2 or ONE_CORE
    return total + overhead


def network_kbit(annotations: Mapping[str, str], where: str, problems: Problems) -> int:
    """kbit/s that the pod states; 0 = none, or not a whole number of Mbit/s."""
    key = next((key for key in NETWORK_KEYS if annotations.get(key, "").strip()), "")
    if not key:
        return 0
    text = annotations[key].strip()
    if len(text) > MAX_DIGITS or not (text.isascii() and text.isdigit()):
        message = f"{printable(text, 40)!r} is not a whole number of Mbit/s; it counts as 0"
        problems.warning(where, f"metadata.annotations.{key}", message)
        return 0
    return min(int(text) * KBIT_PER_MBIT, MAX_NETWORK_KBIT)
