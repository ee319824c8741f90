"""Annotations that somebody made up to break a scheduler. The same seed makes the same ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

REGISTER = "hami.io/node-nvidia-register"
ON_NODES = (
    REGISTER,
    "hami.io/node-nvidia-score",
    "hami.io/node-handshake",
    "hami.io/mutex.lock",
    "hami.io/node-register-mlu",
    "dovetail.dev/policy",
)
ON_PODS = (
    "hami.io/vgpu-devices-allocated",
    "hami.io/vgpu-devices-to-allocate",
    "hami.io/bind-phase",
    "hami.io/gpu-scheduler-policy",
    "hami.io/node-scheduler-policy",
    "nvidia.com/use-gputype",
    "nvidia.com/nouse-gpuuuid",
    "nvidia.com/numa-bind",
    "dovetail.dev/epoch",
    "dovetail.dev/owner",
)
NUMBERS: tuple[object, ...] = (
    0,
    -1,
    1,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**30,
    0.5,
    1e308,
    "NaN",
    "１２",
    None,
    True,
    [],
    {},
)
TEXTS = (
    "",
    " ",
    "\x00",
    "\u202e",
    "💥" * 50,
    "null",
    "[]",
    "{}",
    "[[[[",
    '"',
    "'; drop",
    "../../etc",
    "%s%n",
    "\ud7ff",
)
LARGE = 200_000  # bytes; Kubernetes keeps 256 kB of annotations


def values(seed: int, count: int, largest: int = LARGE) -> Iterator[str]:
    """Broken registers, broken device strings, and anything else."""
    dice = random.Random(seed)
    makers = (_register, _devices, _score, _text, _cut_register, _lock)
    for number in range(count):
        if number % 400 == 399:
            yield _large(dice, largest)
        else:
            yield dice.choice(makers)(dice)


def _card(dice: random.Random) -> object:
    card: dict[str, object] = {
        "id": f"GPU-{dice.randrange(9)}",
        "count": 10,
        "devmem": 8000,
        "devcore": 100,
        "type": "T4",
    }
    for _ in range(dice.randrange(3)):
        card[dice.choice([*card, "health", "numa", "index", "mode", "x"])] = dice.choice(NUMBERS + TEXTS)
    return card if dice.random() < 0.9 else dice.choice(NUMBERS + TEXTS)


def _register(dice: random.Random) -> str:
    return json.dumps([_card(dice) for _ in range(dice.randrange(4))])


def _cut_register(dice: random.Random) -> str:
    text = _register(dice)
    return text[: dice.randrange(len(text) + 1)] + dice.choice(TEXTS)


def _devices(dice: random.Random) -> str:
    fields = ("GPU-0", "GPU-1", "NVIDIA", "8000", "100", "-5", "9" * 30, "1e9", "0x10", "½", "", " ", "💥")
    entries = [",".join(dice.choice(fields) for _ in range(dice.randrange(6))) for _ in range(dice.randrange(5))]
    return "".join(entry + dice.choice((":", ";", ":;", ";;", ",", "")) for entry in entries)


def _score(dice: random.Random) -> str:
    return json.dumps([{"uuid": dice.choice(TEXTS), "score": {"GPU-0": dice.choice(NUMBERS)}}])


def _lock(dice: random.Random) -> str:
    return ",".join(dice.choice((*TEXTS, "2026-01-01T00:00:00Z", "default", "p")) for _ in range(dice.randrange(5)))


def _text(dice: random.Random) -> str:
    return "".join(dice.choice((*TEXTS, "a", "1", ",", ":", ";")) for _ in range(dice.randrange(8)))


def _large(dice: random.Random, largest: int) -> str:
    kind = dice.randrange(4)
    if kind == 0:
        return "[" * largest
    if kind == 1:
        return json.dumps([{"id": f"GPU-{number}", "devmem": 1} for number in range(largest // 40)])
    if kind == 2:
        return "GPU-0,NVIDIA,1,1:" * (largest // 17)
    return "x" * largest
