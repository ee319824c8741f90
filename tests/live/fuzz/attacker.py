"""The attackers as a process of their own, so that what they do does not slow down those who measure.

`python -m tests.live.fuzz.attacker ORDER.json` carries out an Order, and prints a Tally as JSON at its end.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import IO

from tests.live.fuzz.node import LyingNode
from tests.live.fuzz.tenant import Tenant
from tools.controlplane.client import Access, Client

TENANT, NODE = WHO = ("tenant", "node")


@dataclass(frozen=True)
class Order:
    who: str  # one of WHO
    tokens: dict[str, str]  # namespace or node -> its token
    port: int
    authority: str
    seed: int
    seconds: float
    rate: float  # requests a second, of all threads together
    threads: int
    without: list[str]  # names of a tenant's twists, or of a node's acts, that are left out
    acts: str  # the file to which every act is written: seconds, milliseconds it took, status, what


@dataclass
class Tally:
    """What was done."""

    sent: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)  # HTTP status, or the name of an error -> how often
    kinds: Counter[str] = field(default_factory=Counter)  # first word of an act -> how often it was accepted

    @property
    def accepted(self) -> int:
        return sum(self.kinds.values())

    @property
    def rate(self) -> float:
        return self.sent / self.seconds if self.seconds else 0.0


class Attack:
    def __init__(self, order: Order, acts: IO[str]) -> None:
        self._order, self._acts, self._lock = order, acts, threading.Lock()
        self._started = time.monotonic()
        self.tally = Tally()

    def run(self) -> Tally:
        threads = [threading.Thread(target=self._thread, args=(n,)) for n in range(self._order.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.tally.seconds = time.monotonic() - self._started
        return self.tally

    def _thread(self, number: int) -> None:
        order = self._order
        names = sorted(order.tokens)
        name, dice = names[number % len(names)], random.Random(f"{order.seed}/{order.who}/{number}")
        client = Client(Access(order.port, order.tokens[name], Path(order.authority)), timeout=60.0)
        actor: Tenant | LyingNode
        if order.who == TENANT:
            actor = Tenant(client, name, dice, f"t{number}", order.without)
        else:
            actor = LyingNode(client, name, dice, order.without)
        pause, due = order.threads / order.rate, self._started + number / order.rate
        while (now := time.monotonic()) - self._started < order.seconds:
            if now < due:
                time.sleep(min(0.2, due - now))
                continue
            due = max(due + pause, now - 2.0)  # what was missed for more than two seconds is not made up for
            try:
                what, status = actor.act()
                self._put_down(now, what, str(status), status < 300)
            except (OSError, HTTPException, ValueError) as error:
                client.close()
                self._put_down(now, "?", type(error).__name__, False)

    def _put_down(self, sent: float, what: str, status: str, accepted: bool) -> None:
        with self._lock:
            self.tally.sent += 1
            self.tally.statuses[status] += 1
            if accepted:
                self.tally.kinds[what.partition(" ")[0]] += 1
            now = time.monotonic()
            self._acts.write(f"{now - self._started:.3f} {(now - sent) * 1000:.0f} {status} {what}\n")


def main() -> int:
    path = Path(sys.argv[1])
    order = Order(**json.loads(path.read_text(encoding="utf-8")))
    with open(order.acts, "w", encoding="utf-8", buffering=1) as acts:
        tally = Attack(order, acts).run()
    print(json.dumps(vars(tally)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
