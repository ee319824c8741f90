"""What preemption needs of the placer, which is built on top of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import Requests
from dovetail.engine.rights.queues import Queues
from dovetail.model.decision import Decision
from dovetail.model.pod import Group, Pod
from dovetail.policies.rows import Bytes

Flags = npt.NDArray[np.bool_]


class Placing(Protocol):
    """See engine/single_node.py."""

    ledger: Ledger
    queues: Queues
    requests: Requests

    def restricts(self, pod: Pod) -> bool: ...

    def row_kept_for(self, uid: str) -> int: ...

    def static_refusals(self, pod: Pod) -> Bytes: ...

    def is_admitted(self, pod: Pod) -> bool: ...

    def fit_of(self, pod: Pod, row: int) -> Callable[[], bool]: ...

    def place_on(self, pod: Pod, row: int) -> Decision: ...

    def place_lone(self, pod: Pod) -> Decision: ...

    def not_placed(self, pod: Pod) -> Decision: ...

    def book_promised(self, group: Group) -> None: ...

    def domain_choices(self, group: Group) -> Iterable[Flags]: ...

    def open_rows(self, group: Group, pod: Pod) -> Flags: ...

    def confined(self, rows: Flags | None) -> AbstractContextManager[None]: ...

    def broken_rule(self, group: Group, decisions: Sequence[Decision]) -> str: ...
