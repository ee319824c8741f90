"""Whether the process stood still: frozen, or starved of CPU, for longer than its caller waited.

What a process reads after a stall may be a request whose caller gave up meanwhile. kube-scheduler then counts the pod
as not placed, and gives its CPU and memory on the node to other pods; so the pod must not be bound by such a request.
"""

from __future__ import annotations

import asyncio

BEAT_SECONDS = 0.1
STALL_SECONDS = 3.0  # without a beat: the shortest httpTimeout that we expect is 5 s
SUSPECT_SECONDS = 1.0  # after a stall, in which requests that waited in sockets are read


class Stalls:
    def __init__(self) -> None:
        self._beat = 0.0  # the loop's time of the last beat; 0 = there was none
        self._suspect_until = 0.0
        self.seen = 0

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.note(asyncio.get_running_loop().time())
            await asyncio.sleep(BEAT_SECONDS)

    def note(self, now: float) -> None:
        if self._beat and now - self._beat > STALL_SECONDS:
            self.seen += 1
            self._suspect_until = now + SUSPECT_SECONDS
        self._beat = now

    def is_suspect(self, now: float) -> bool:
        """Whether a request that is read now may have waited while the process stood still."""
        self.note(now)
        return now < self._suspect_until
