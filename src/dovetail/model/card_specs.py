"""Published data of GPU models, for policies that compare kinds of card.

Sources: NVIDIA's data sheets; memory clocks as `nvidia-smi -q -d CLOCK` lists them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from dovetail.model.device import type_matches


class CardSpec(NamedTuple):
    """In the order of `rows.spec`; 0 = unknown."""

    bandwidth: int = 0  # of the memory, in GB/s
    clock: int = 0  # highest memory clock, in MHz
    cores: int = 0  # CUDA cores
    power: int = 0  # limit in W


UNKNOWN_CARD = CardSpec()
# The first that matches the model by whole words counts, so names with more words come first.
CARD_SPECS: tuple[tuple[str, CardSpec], ...] = (
    ("T4", CardSpec(320, 5001, 2560, 70)),
    ("P100", CardSpec(732, 715, 3584, 250)),
    ("V100", CardSpec(900, 877, 5120, 300)),
    ("V100M16", CardSpec(900, 877, 5120, 300)),  # the name in the openb trace, as is the next
    ("V100M32", CardSpec(900, 877, 5120, 300)),
    ("A10", CardSpec(600, 6251, 9216, 150)),
    ("A30", CardSpec(933, 1215, 3584, 165)),
    ("L4", CardSpec(300, 6251, 7424, 72)),
    ("L40S", CardSpec(864, 9001, 18_176, 350)),
    ("A100 PCIE 40GB", CardSpec(1555, 1215, 6912, 250)),
    ("A100 80GB PCIe", CardSpec(1935, 1512, 6912, 300)),
    ("A100 SXM4 80GB", CardSpec(2039, 1593, 6912, 400)),
    ("A100", CardSpec(1555, 1215, 6912, 400)),
    ("H100 PCIe", CardSpec(2000, 1593, 14_592, 350)),
    ("H100", CardSpec(3350, 2619, 16_896, 700)),
    ("H200", CardSpec(4800, 3201, 16_896, 700)),
)


@lru_cache(4_096)
def spec_of(model: str) -> CardSpec:
    """The data of a model by its product name, such as `NVIDIA A100-SXM4-80GB`; UNKNOWN_CARD if it is not listed."""
    return next((spec for name, spec in CARD_SPECS if type_matches(model, name)), UNKNOWN_CARD)
