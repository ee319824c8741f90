"""What GPUs have and what pods hold of them, by model; from the ledger's arrays, in a few milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.engine.ledger.ledger import Ledger
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.rows import (
    ACTIVE,
    CARD_KIND,
    CARD_MEMORY,
    CARDS,
    COMPUTE,
    FLAGS,
    NODE_FLAGS,
    QUARANTINED,
    SLOTS,
    UNUSABLE,
)

MOST_MODELS = 50
OTHER_MODEL = "other"
MIB = 2**20
Mask = npt.NDArray[np.bool_]
ByModel = dict[tuple[str, ...], float]


def gpu_metrics(ledger: Ledger) -> dict[str, float | ByModel]:
    """The metrics of GPUs, by name."""
    size, rows = len(ledger.nodes), ledger.rows
    real = _registered(ledger)
    models, model_of = _models(ledger, real)
    card, held = rows.card[:size], rows.held[:size]
    cordoned = np.fromiter((node.unschedulable for node in ledger.nodes), dtype=np.bool_, count=size)
    usable: Mask = np.asarray(real & (rows.free[:size, :, 0] != UNUSABLE) & ~cordoned[:, None], dtype=np.bool_)
    idle: Mask = np.asarray(~held.any(axis=2), dtype=np.bool_)
    left = np.where(usable, rows.left[:size], 0) / WHOLE_CARD

    def by_model(values: Any, where: Mask = real) -> ByModel:
        sums = np.bincount(model_of[where], weights=np.broadcast_to(values, where.shape)[where], minlength=len(models))
        return dict(zip(models, sums.tolist(), strict=False))

    return {
        "dovetail_gpus": by_model(1),
        "dovetail_gpus_unusable": by_model(1, real & ~usable),
        "dovetail_gpus_in_use": by_model(1, real & ~idle),
        "dovetail_gpus_whole_free": by_model(1, usable & idle),
        "dovetail_gpus_free": by_model(left),
        "dovetail_gpus_free_in_pieces": by_model(left, real & ~idle),
        "dovetail_gpus_largest_free_block": _largest_block(models, model_of, usable & idle),
        "dovetail_gpu_slots": by_model(card[..., SLOTS]),
        "dovetail_gpu_slots_allocated": by_model(held[..., SLOTS]),
        "dovetail_gpu_memory_bytes": by_model(card[..., CARD_MEMORY] * MIB),
        "dovetail_gpu_memory_allocated_bytes": by_model(held[..., CARD_MEMORY] * MIB),
        "dovetail_gpu_compute": by_model(card[..., COMPUTE] / WHOLE_CARD),
        "dovetail_gpu_compute_allocated": by_model(held[..., COMPUTE] / WHOLE_CARD),
        "dovetail_gpu_models_left_out": float(_left_out(ledger, real)),
    }


def _registered(ledger: Ledger) -> Mask:
    """[node, card]: cards that an existing node registers."""
    size, rows = len(ledger.nodes), ledger.rows
    fact, card = rows.fact[:size], rows.card[:size]
    there = np.arange(card.shape[1]) < fact[:, CARDS, None]
    found: Mask = there & ((fact[:, NODE_FLAGS] & ACTIVE) != 0)[:, None] & ((card[..., FLAGS] & QUARANTINED) == 0)
    return found


def _names(ledger: Ledger, real: Mask) -> list[str]:
    """The models that exist, those with the most cards first."""
    kinds = ledger.rows.card[: len(ledger.nodes), :, CARD_KIND][real]
    names = [key[1] if key is not None else "" for key in ledger.intern.kinds]
    cards: dict[str, int] = {}
    for kind, count in enumerate(np.bincount(kinds, minlength=len(names)).tolist()):
        if count:
            cards[names[kind]] = cards.get(names[kind], 0) + count
    return sorted(cards, key=lambda model: (-cards[model], model))


def _left_out(ledger: Ledger, real: Mask) -> int:
    return max(0, len(_names(ledger, real)) - MOST_MODELS)


def _models(ledger: Ledger, real: Mask) -> tuple[list[tuple[str]], npt.NDArray[np.int64]]:
    """The values of the label `model`, and [node, card] the position of the card's model among them."""
    shown = _names(ledger, real)[:MOST_MODELS]
    labels = [*shown, OTHER_MODEL] if _left_out(ledger, real) else shown
    number = {model: n for n, model in enumerate(shown)}
    of_kind = [number.get(key[1] if key is not None else "", len(shown)) for key in ledger.intern.kinds]
    kinds = ledger.rows.card[: len(ledger.nodes), :, CARD_KIND]
    found = np.array(of_kind or [0], dtype=np.int64)[np.where(real, kinds, 0)]
    return [(label,) for label in labels], found


def _largest_block(models: list[tuple[str]], model_of: npt.NDArray[np.int64], free: Mask) -> ByModel:
    blocks: ByModel = {}
    for number, label in enumerate(models):
        on_nodes = (free & (model_of == number)).sum(axis=1)
        blocks[label] = float(on_nodes.max(initial=0))
    return blocks
