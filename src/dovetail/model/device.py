"""One accelerator, and how a pod's GPU type is matched with it."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from dovetail.model.units import WHOLE_CARD

HAMI_CORE = "hami-core"
MIG = "mig"


class Device(msgspec.Struct, frozen=True):
    """A card as its node registers it. Memory in MiB, compute in milli (1000 = a whole card, more = overcommit)."""

    uuid: str
    index: int
    vendor: str  # HAMi's vendor word: NVIDIA, AMD, MLU, …
    model: str  # product name: "NVIDIA A100-SXM4-80GB"
    memory_mib: int
    compute_milli: int = WHOLE_CARD
    slots: int = 10  # how many containers may share the card
    numa: int = 0
    healthy: bool = True
    cordoned: bool = False
    mode: str = HAMI_CORE
    quarantined: bool = False  # in use by a pod, but not registered by the node


_SEPARATORS = re.compile(r"[ \-_/]+")


def type_tokens(text: str) -> tuple[str, ...]:
    """`NVIDIA A100-SXM4-80GB` → (`nvidia`, `a100`, `sxm4`, `80gb`)."""
    return tuple(token for token in _SEPARATORS.split(text.lower()) if token)


def type_matches(model: str, wanted: str) -> bool:
    """Whether `wanted` is a run of whole tokens of `model`: `H20` matches `NVIDIA H20`, never `NVIDIA H200`."""
    return any_type_matches(model, (wanted,))


def any_type_matches(model: str, wanted: tuple[str, ...]) -> bool:
    """Whether one of them matches. Each is a text search, as lists may be long and there may be many kinds of card."""
    have = _spaced(model)
    return any(run in have for run in _runs(wanted))


@lru_cache(4_096)
def _spaced(model: str) -> str:
    """` nvidia a100 sxm4 80gb `: each token is between spaces."""
    return f" {' '.join(type_tokens(model))} "


@lru_cache(128)  # lists of types, each of up to 64 × 200 characters
def _runs(wanted: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f" {' '.join(tokens)} " for tokens in map(type_tokens, wanted) if tokens)


def only_substring_matches(model: str, wanted: str) -> bool:
    """Whether HAMi would match (by substring) and Dovetail does not: a case for a warning."""
    wanted = wanted.strip().lower()
    return bool(wanted) and wanted in model.lower() and not type_matches(model, wanted)
