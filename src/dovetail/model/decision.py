"""What was decided: small values. What every other node lacked is recomputed when asked (engine/explain.py)."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.model.reason import Reason


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one card given to one container."""

    container: int  # position among the pod's containers, init first
    uuid: str
    memory_mib: int
    compute_milli: int


@dataclass(frozen=True, slots=True)
class Decision:
    """`node` is None where the pod stays pending, and `reason` says why."""

    uid: str
    node: str | None
    shares: tuple[Share, ...]
    reason: Reason
    generation: int  # of the ledger when it was decided

    @property
    def placed(self) -> bool:
        return self.node is not None
