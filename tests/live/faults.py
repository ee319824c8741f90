"""For tests that break things: load that comes and goes, a witness of every moment, processes started again."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tests.live.assigned import Use, cards, faults, holds, over, uses, wrongly_pending
from tests.live.dovetail_process import Dovetail
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.objects import condition, gpu_limits, pod

SOAK = os.environ.get("DOVETAIL_SOAK") == "1"  # make soak: bigger numbers


def more(usually: int, in_a_soak: int) -> int:
    return in_a_soak if SOAK else usually


def create_all(api: Client, items: Iterable[Object], at_once: int = 8) -> list[Object]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(api.create, items))


def mixed(dice: random.Random, name: str) -> Object:
    """A share of a card, or one to four whole cards."""
    if dice.random() < 0.15:
        return pod(name, gpu_limits(dice.choice((1, 1, 2, 4)), memory=15360, cores=100))
    return pod(name, gpu_limits(1, memory=dice.randrange(1000, 6000), cores=dice.randrange(10, 40)))


class Alongside:
    """Works in a thread as long as the block runs: `with Witness(api) as witness: …`"""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(60)


class Witness(Alongside):
    """Follows the pods' watch from the first change to the last: a card given twice for a moment only is seen, too.

    Afterwards `witness.wrong`. Registers are those of the beginning.
    """

    def __init__(self, api: Client) -> None:
        super().__init__()
        self._api, self._cards = api, cards(api)
        self._use: dict[str, dict[str, Use]] = defaultdict(dict)  # card -> by uid
        self._held: dict[str, dict[str, Use]] = {}  # uid -> by card
        self.wrong: list[str] = []
        self.bound: dict[str, str] = {}  # uid -> node, of everybody who ever had one

    def _run(self) -> None:
        version = ""
        while True:
            last = self._stop.is_set()
            try:
                version = version or self._list()
                for event in self._api.watch("Pod", version, None, seconds=2, allowWatchBookmarks="true"):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._hear(event["object"], event["type"] == "DELETED")
            except (OSError, ApiError, ValueError):  # the server is away, or has forgotten
                version = ""
                time.sleep(0.2)
            if last:
                return

    def _list(self) -> str:
        said = self._api.ask("GET", "/api/v1/pods")
        there = {item["metadata"]["uid"] for item in said["items"]}
        for uid in [uid for uid in self._held if uid not in there]:
            self._drop(uid)
        for item in said["items"]:
            self._hear(item, gone=False)
        return str(said["metadata"]["resourceVersion"])

    def _hear(self, item: Object, gone: bool) -> None:
        uid = item["metadata"]["uid"]
        self._drop(uid)
        if gone or not holds(item):
            return
        node = item["spec"]["nodeName"]
        if self.bound.setdefault(uid, node) != node:
            self.wrong.append(f"{item['metadata']['name']} was bound twice")
        self._held[uid] = uses(item)
        for uuid, use in self._held[uid].items():
            self._use[uuid][uid] = use
            self.wrong += over(uuid, self._cards.get(uuid), self._use[uuid].values())

    def _drop(self, uid: str) -> None:
        for uuid in self._held.pop(uid, {}):
            del self._use[uuid][uid]


class Tenants(Alongside):
    """Make pods one after the other, and take every second one away again some time later; all by the dice."""

    def __init__(self, api: Client, seed: int, count: int, seconds: float) -> None:
        super().__init__()
        self._api, self._dice, self._count, self._pause = api, random.Random(seed), count, seconds / count
        self.made = self.left = 0
        self.error: BaseException | None = None

    def working(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        """Until all have come."""
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self._come_and_go()
        except BaseException as error:
            self.error = error

    def _come_and_go(self) -> None:
        leaving: list[tuple[int, str]] = []  # after so many pods, who
        started = time.monotonic()
        for number in range(self._count):
            name = f"p{number:05}"
            self._api.create(mixed(self._dice, name))
            self.made += 1
            if number % 2:
                leaving.append((number + self._dice.randrange(1, 120), name))
            for one in [one for one in leaving if one[0] <= number]:
                leaving.remove(one)
                self._leave(one[1])
            if self._stop.wait(max(0.0, started + number * self._pause - time.monotonic())):
                return
        for _, name in leaving:
            self._leave(name)

    def _leave(self, name: str) -> None:
        self._api.delete("Pod", name)
        self.left += 1


def everybody_settled(api: Client, seconds: float = 120, sums: bool = True) -> None:
    """Every pod of ours has a node, or waits for a good reason and says so; nothing is given twice."""

    def settled() -> bool:
        pods = [item for item in api.list("Pod", namespace=None) if item["spec"].get("schedulerName") == "dovetail"]
        waiting = [item for item in pods if not item["spec"].get("nodeName")]
        return all(_says_why(item) for item in waiting) and not (waiting and wrongly_pending(api))

    try:
        api.wait_until(settled, "everybody is placed, or waits and says why", seconds)
    except TimeoutError as error:
        silent = [
            item["metadata"]["name"]
            for item in api.list("Pod", namespace=None)
            if not item["spec"].get("nodeName") and not _says_why(item)
        ]
        raise AssertionError(f"{error}; silent: {silent[:5]}; {wrongly_pending(api)[:5]}") from None
    wrong = faults(api, sums)
    assert wrong == [], wrong


def _says_why(item: Object) -> bool:
    said = condition(item, "PodScheduled")
    return said is not None and said["status"] == "False" and bool(said.get("message"))


@contextmanager
def kept_alive(dovetail: Dovetail) -> Iterator[None]:
    """As kubelet would: whenever the process ends, it is started again."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            dovetail.start_again()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
