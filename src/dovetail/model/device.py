"""One accelerator, and the rule by which a pod's wish for a GPU type is matched with it."""

from __future__ import annotations

import re

import msgspec

WHOLE_COMPUTE = 1000  # milli: a whole card
HAMI_CORE = "hami-core"
MIG = "mig"


class Device(msgspec.Struct, frozen=True):
    """A card as its node registers it. Memory in MiB, compute in milli (1000 = a whole card, more = overcommit)."""

    uuid: str
    index: int
    vendor: str  # HAMi's vendor word: NVIDIA, AMD, MLU, …
    model: str  # product name: "NVIDIA A100-SXM4-80GB"
    memory_mib: int
    compute_milli: int = WHOLE_COMPUTE
    slots: int = 10  # how many containers may share the card
    numa: int = 0
    healthy: bool = True
    cordoned: bool = False
    mode: str = HAMI_CORE
    quarantined: bool = False  # in use by a pod, yet not registered by the node


_SEPARATORS = re.compile(r"[ \-_/]+")


def type_tokens(text: str) -> tuple[str, ...]:
    """`NVIDIA A100-SXM4-80GB` → (`nvidia`, `a100`, `sxm4`, `80gb`)."""
    return tuple(token for token in _SEPARATORS.split(text.lower()) if token)


def type_matches(model: str, wanted: str) -> bool:
    """True where `wanted` is a run of whole tokens of `model`: `H20` matches `NVIDIA H20`, never `NVIDIA H200`."""
    have, want = type_tokens(model), type_tokens(wanted)
    if not want:
        return False
    return any(have[i : i + len(want)] == want for i in range(len(have) - len(want) + 1))


def only_substring_matches(model: str, wanted: str) -> bool:
    """HAMi would have matched this (substring), we do not: worth a warning."""
    wanted = wanted.strip().lower()
    return bool(wanted) and wanted in model.lower() and not type_matches(model, wanted)
