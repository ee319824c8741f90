"""Decisions: small values, made by the hundred thousand, hence msgspec.

What every other node scored or lacked is recomputed on request (engine/why/explain.py).
"""

from __future__ import annotations

import msgspec

from dovetail.model.reason import Reason


class Share(msgspec.Struct, frozen=True, gc=False):
    """A part of one card given to one container."""

    container: int  # position among the pod's containers, init first
    uuid: str
    memory_mib: int
    compute_milli: int


class Decision(msgspec.Struct, frozen=True):
    """The result for one pod. `node` is None if the pod stays pending; then `reason` says why."""

    uid: str
    node: str | None
    shares: tuple[Share, ...]
    reason: Reason
    generation: int  # of the ledger when it was decided

    @property
    def placed(self) -> bool:
        return self.node is not None
