"""The port to a scheduler that asks: it has the queue, and our driver decides about a pod when it is asked to."""

from __future__ import annotations

from typing import Protocol

from dovetail.model.events import Bind


class PlacementHolder(Protocol):
    def hold(self, bind: Bind) -> None:
        """Keep the placement, which is reserved in the ledger, until the other scheduler asks for its bind."""
