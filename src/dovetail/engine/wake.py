"""Find the waiting requests that changed rows can take now: one call checks many distinct requests against a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.engine.kernel.build import Kernel, Pair
from dovetail.engine.kernel.state import Batch
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.requests import Requests
from dovetail.engine.queue import ALWAYS, WaitingRoom
from dovetail.model.pod import Pod, Profile

MAX_LISTED = 256  # requests that one call checks against a row: about 0.1 ms with a compiled kernel
MAX_LISTED_INTERPRETED = 8  # the same with an interpreted kernel: about 1 ms
PLAIN = 3  # length of a request's key without rules about other pods; such rules make the key longer


class News:
    """A witness of the ledger: collects pods that arrive or leave while a pod with inter-pod rules waits."""

    def __init__(self) -> None:
        self.wanted = False
        self.pods: list[Pod] = []

    def came(self, pod: Pod, row: int) -> None:
        if self.wanted:
            self.pods.append(pod)

    def left(self, pod: Pod, row: int) -> None:
        if self.wanted:
            self.pods.append(pod)

    def clear(self, reserved: Collection[str]) -> None:
        """Do nothing: pods that are booked again did not change."""

    def take(self) -> list[Pod]:
        taken, self.pods = self.pods, []
        return taken


class Wake:
    def __init__(
        self, waiting: WaitingRoom, ledger: Ledger, requests: Requests, kernel: Callable[[Profile], Kernel]
    ) -> None:
        self._waiting, self._ledger, self._requests, self._kernel = waiting, ledger, requests, kernel
        self._lists: list[tuple[list[Any], Batch]] = []  # requests of one profile each, ready for a check against a row
        self._list_of: dict[Hashable, int] = {}  # request -> its list; includes requests that no pod waits for any more
        self._open: dict[Profile, int] = {}  # the list that takes the profile's next request
        self._version = -1  # of the waiting room; negative: all lists must be built again
        self.is_complete = True
        self.restarts = 0  # how often all lists were built again
        # Node and GPU policies whose requests are in long lists; None = those of compiled kernels. A repetition has
        # them from the recorded run: the lists decide how many pods a portion of retries tries.
        self.long: set[Pair] | None = None

    def helped(self, rows: Sequence[int]) -> list[Hashable]:
        """Waiting requests that one of the rows could take, and ALWAYS: one row does not decide for its groups."""
        return [*([ALWAYS] if self._waiting.asks(ALWAYS) else []), *self.fitting(rows)]

    def fitting(self, rows: Sequence[int]) -> list[Hashable]:
        """The waiting requests that one of the rows could take."""
        return [key for number in range(self.lists()) for key in self.fitting_in(number, rows)]

    def lists(self, most: int | None = None) -> int:
        """The number of lists of requests, for `fitting_in`. A list has at most MAX_LISTED requests.

        `most`: build about this many new lists. `is_complete` is False while some requests are in no list.
        """
        if self._version != self._waiting.version or not self.is_complete:
            if self._version < 0 or len(self._list_of) > 2 * len(self._waiting.requests()) + MAX_LISTED:
                self._lists, self._list_of, self._open = [], {}, {}
                self.restarts += 1
            self.is_complete = self._list_new(most)
            self._version = self._waiting.version
        return len(self._lists)

    def fitting_in(self, number: int, rows: Sequence[int]) -> list[Hashable]:
        """The same as `fitting`, for one list."""
        keys, batch = self._lists[number]
        which_fit = self._kernel(keys[0][0]).which_fit
        state = self._ledger.state()
        fitting = set()
        for row in rows:
            if which_fit(state, batch, row):
                fitting.update(np.flatnonzero(batch.results[:, 0]).tolist())
        return [keys[n] for n in sorted(fitting) if self._waiting.asks(keys[n])]

    @property
    def is_outdated(self) -> bool:
        """Whether all lists will be built again."""
        return self._version < 0

    def __len__(self) -> int:
        """The number of lists now."""
        return len(self._lists)

    def list_of(self, key: Hashable) -> int | None:
        """The list that contains the request; None = no list does."""
        if self._version < 0:
            self.lists(1)
        return self._list_of.get(key)

    def forget(self) -> None:
        """Build all lists again: the numbers of requests may change."""
        self._version = -1

    def related(self, helped: Callable[[Pod], bool] = lambda pod: True) -> list[Hashable]:
        """Waiting requests with rules about other pods or volumes, for whose first pod `helped` is true."""
        keys = [key for key in self._waiting.requests() if isinstance(key, tuple) and len(key) > PLAIN]
        return [key for key in keys if helped(self._waiting.first(key).pods[0])]

    def _list_new(self, most: int | None) -> bool:
        """Put new requests in lists. Returns whether all of them are listed.

        Requests that no pod waits for any more stay listed: such pods may come again.
        """
        left = len(self._waiting.requests()) if most is None else most
        new: dict[Profile, list[Any]] = {}
        for key in self._waiting.requests():
            if isinstance(key, tuple) and key not in self._list_of:
                new.setdefault(key[0], []).append(key)
        for profile, keys in new.items():
            if left <= 0:
                return False
            number = self._open.pop(profile, None)
            if number is not None:
                listed = self._lists[number][0]
                for key in listed:
                    del self._list_of[key]
                keys = [key for key in listed if self._waiting.asks(key)] + keys
            longest = self._longest(profile)
            for start in range(0, len(keys), longest):
                if start and left <= 0:
                    return False
                left -= 1
                made = self._list(keys[start : start + longest])
                if number is None:
                    self._lists.append(made)
                else:
                    self._lists[number] = made
                at = len(self._lists) - 1 if number is None else number
                self._list_of.update(dict.fromkeys(made[0], at))
                number = None
                if len(made[0]) < longest:
                    self._open[profile] = at
        return True

    def _longest(self, profile: Profile) -> int:
        """The most requests in a list: one list is checked without a break, and every other pod waits meanwhile."""
        if self.long is None:
            is_fast = isinstance(self._kernel(profile).which_fit, partial)
        else:
            is_fast = (profile.node, profile.device) in self.long
        return MAX_LISTED if is_fast else MAX_LISTED_INTERPRETED

    def _list(self, keys: list[Any]) -> tuple[list[Any], Batch]:
        pods = [self._waiting.first(key).pods[0] for key in keys]
        signatures = [self._requests.signature(pod) for pod in pods]
        return keys, self._requests.batch(pods, signatures, [(1, 1)] * len(pods))
