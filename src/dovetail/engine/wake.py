"""Who could use what rows have now: those who wait are held against a row by their distinct requests, in one call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from dovetail.engine.build import Kernel
from dovetail.engine.ledger import Ledger
from dovetail.engine.queue import ALWAYS, WaitingRoom
from dovetail.engine.requests import Requests
from dovetail.engine.state import Batch
from dovetail.model.pod import Pod, Profile

PLAIN = 3  # parts of the key of a request that no rule about other pods belongs to


class News:
    """Pods that came or went while somebody waits whose rules are about other pods. A witness of the ledger."""

    def __init__(self) -> None:
        self.wanted = False
        self.pods: list[Pod] = []

    def came(self, pod: Pod, row: int) -> None:
        if self.wanted:
            self.pods.append(pod)

    def left(self, pod: Pod, row: int) -> None:
        if self.wanted:
            self.pods.append(pod)

    def take(self) -> list[Pod]:
        taken, self.pods = self.pods, []
        return taken


class Wake:
    def __init__(
        self, waiting: WaitingRoom, ledger: Ledger, requests: Requests, kernel: Callable[[Profile], Kernel]
    ) -> None:
        self._waiting, self._ledger, self._requests, self._kernel = waiting, ledger, requests, kernel
        self._lists: list[tuple[list[Any], Batch]] = []  # see _list
        self._version = -1  # of the waiting room

    def helped(self, rows: Sequence[int]) -> list[Hashable]:
        """Requests somebody waits for that one of the rows could take; and those for which one row does not tell."""
        if self._version != self._waiting.version:
            self._lists, self._version = self._list(), self._waiting.version
        return [*([ALWAYS] if self._waiting.asks(ALWAYS) else []), *self.fitting(rows)]

    def fitting(self, rows: Sequence[int]) -> list[Hashable]:
        """Of the requests that somebody waited for when `helped` was asked, those that one of the rows could take."""
        found: list[Hashable] = []
        for keys, batch in self._lists:
            which_fit = self._kernel(keys[0][0]).which_fit
            state = self._ledger.state()
            fitting = set()
            for row in rows:
                if which_fit(state, batch, row):
                    fitting.update(np.flatnonzero(batch.results[:, 0]).tolist())
            found += [keys[n] for n in sorted(fitting)]
        return found

    def related(self, helped: Callable[[Pod], bool] = lambda pod: True) -> list[Hashable]:
        """Those whose rules are about other pods, or volumes, and whom it may help."""
        keys = [key for key in self._waiting.requests() if isinstance(key, tuple) and len(key) > PLAIN]
        return [key for key in keys if helped(self._waiting.first(key).pods[0])]

    def _list(self) -> list[tuple[list[Any], Batch]]:
        """Per profile the distinct requests somebody waits for, ready to be held against a row."""
        by_profile: dict[Profile, list[Any]] = {}
        for key in self._waiting.requests():
            if isinstance(key, tuple):
                by_profile.setdefault(key[0], []).append(key)
        made = []
        for keys in by_profile.values():
            pods = [self._waiting.first(key).pods[0] for key in keys]
            signatures = [self._requests.signature(pod) for pod in pods]
            made.append((keys, self._requests.batch(pods, signatures, [(1, 1)] * len(pods))))
        return made
