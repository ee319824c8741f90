"""Which policies are compiled, and what happens to pods whose policies are not: the work is bounded for any choice.

The loop never compiles. Up to FEW_NODES nodes, a kernel that is not compiled is interpreted, which takes milliseconds;
it is compiled only once it was used often. On a larger cluster a decision could take a fifth of a second. There the pod
waits until its kernel is compiled, and others continue. Pairs of policies beyond the limit, or that cannot be compiled,
are interpreted there at a limited rate.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

from dovetail.engine.kernel.build import Pair, pair_of
from dovetail.engine.scheduler import Scheduler
from dovetail.kube.live.warm import NotCompiled, title
from dovetail.kube.log import WARNING, Log
from dovetail.model.not_compiled import INTERPRETED_INSTEAD
from dovetail.model.pod import Group, Profile

FEW_NODES = 200  # up to here, an interpreted decision takes at most 5 ms
# Decisions in COUNTED_SECONDS on a small cluster from which a pair is compiled. Fewer take less than one per cent of a
# core interpreted, and no memory for good.
WORTH_COMPILING, COUNTED_SECONDS = 100, 60.0
MAX_COUNTED_PAIRS = 1_024  # pairs whose decisions are counted; beyond, all counts begin anew
MOST_PAIRS = 32  # compiled in one process: each takes some 10 s of a core, and about 2.5 MiB that are not freed
INTERPRETED_PAUSE = 1.0  # seconds between two interpreted decisions on a larger cluster
MOST_ADMITTED = 8  # turns kept for groups that arrive late; a deleted group leaves its turn unused

Make = Callable[[Sequence[Pair]], Awaitable[float]]
Again = Callable[[], object]


@dataclass(slots=True)
class KernelCounts:
    """Counters for metrics."""

    compiled: int = 0  # compiled by us, not found on disk
    loaded: int = 0
    failed: int = 0
    compiling: int = 0
    seconds: float = 0.0


class Kernels:
    """Admits groups to decisions.

    `make` compiles or loads kernels elsewhere (warm.py); None: everything is interpreted, as configured.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        make: Make | None,
        *,
        log: Log,
        most: int = MOST_PAIRS,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._scheduler, self._make, self._log, self._most, self._now = scheduler, make, log, most, now
        self.counts = KernelCounts()
        self._ready: set[Pair] = set()
        self._interpreted: set[Pair] = set()  # until the process ends
        # Decisions on a small cluster since `_counted_from`, by pairs that are neither ready nor requested.
        self._decided, self._counted_from = Counter[Pair](), now()
        self._works: bool | None = None if make is not None else False  # None = not known yet
        self._queue: dict[Pair, None] = {}  # requested, in order
        self._first: Sequence[Pair] = ()  # those of the configuration, made together
        self._news, self._settled = asyncio.Event(), asyncio.Event()
        self._parked: dict[Pair, dict[str, Again]] = {}  # pair -> group's name -> what to call when the kernel is ready
        self._paced: dict[str, Again] = {}  # group's name -> what to call, one after another
        self._admitted: dict[str, None] = {}  # groups whose turn has come and that were not decided since

    def configure(self, pairs: Sequence[Pair]) -> None:
        """Set the policies of the configuration: they are made first, regardless of the limit."""
        self._first = pairs

    async def settled(self, seconds: float) -> None:
        """Wait until the configured kernels are ready, or will not be ready soon; at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        except TimeoutError:
            self._log(f"kernels are not compiled after {seconds:.0f} s; going on without", WARNING)

    def admit(self, group: Group, nodes: int, again: Again) -> str:
        """Why the group may not be decided now, or "". `again` is called when it may."""
        slow: Pair | None = None
        for profile in {(pod.profile.node, pod.profile.device): pod.profile for pod in group.pods}.values():
            pair = pair_of(profile)
            few = nodes <= FEW_NODES
            if self._may_run(pair, profile, few) or few:
                continue
            if pair not in self._interpreted:
                self._parked.setdefault(pair, {})[group.name] = again
                return f"its policies ({title(pair)}) are being compiled, which takes some seconds"
            slow = pair
        return self._wait_for_turn(slow, group.name, again) if slow is not None else ""

    def _may_run(self, pair: Pair, profile: Profile, few: bool) -> bool:
        """Whether pods of this profile are decided at once on a cluster of any size.

        Requests the kernel if it is neither compiled nor known to stay interpreted; with `few` nodes, if it is used
        often.
        """
        if self._scheduler.is_compiled(profile) or self._works is False:
            return True
        if pair in self._ready:
            self._scheduler.use_compiled(profile)
            return True
        if pair not in self._interpreted and pair not in self._queue and (not few or self._is_used_often(pair)):
            self._want(pair)
        return False

    def _is_used_often(self, pair: Pair) -> bool:
        """Count one more decision on a small cluster. True: so many were made lately that compiling is worth its cost.

        A count over the whole life of the process would load one pair after the other, over hours, for policies that
        few pods name.
        """
        is_new = len(self._decided) >= MAX_COUNTED_PAIRS and pair not in self._decided
        if is_new or self._now() - self._counted_from > COUNTED_SECONDS:
            self._decided.clear()
            self._counted_from = self._now()
        self._decided[pair] += 1
        if self._decided[pair] < WORTH_COMPILING:
            return False
        del self._decided[pair]
        return True

    def _want(self, pair: Pair) -> None:
        if len(self._ready) + len(self._queue) >= max(self._most, len(self._first)):
            self._interpreted.add(pair)
            self._log(f"{title(pair)}: not compiled, as {self._most} pairs of policies are; interpreted", WARNING)
            return
        self._queue[pair] = None
        self._news.set()

    def _wait_for_turn(self, pair: Pair, name: str, again: Again) -> str:
        """Wait for a turn. One turn serves the whole group, however many of its pods and pairs are interpreted."""
        if name in self._admitted:
            del self._admitted[name]
            return ""
        if not self._paced:
            asyncio.get_running_loop().call_later(INTERPRETED_PAUSE, self._next_turn)
        self._paced[name] = again
        return f"its policies ({title(pair)}) are not compiled; such pods are placed one every {INTERPRETED_PAUSE:g} s"

    def _next_turn(self) -> None:
        name, again = next(iter(self._paced.items()))
        del self._paced[name]
        self._admitted[name] = None
        if len(self._admitted) > MOST_ADMITTED:
            del self._admitted[next(iter(self._admitted))]
        if self._paced:
            asyncio.get_running_loop().call_later(INTERPRETED_PAUSE, self._next_turn)
        again()

    async def run(self) -> None:
        """Make requested kernels one after another, until cancelled."""
        if self._make is not None and self._first:
            self._queue.update(dict.fromkeys(self._first))
            await self._provide(self._make, self._first)
        self._settled.set()
        while True:
            await self._news.wait()
            self._news.clear()
            while self._make is not None and self._queue:
                await self._provide(self._make, [next(iter(self._queue))])

    async def _provide(self, make: Make, pairs: Sequence[Pair]) -> None:
        self.counts.compiling = len(pairs)
        try:
            took = await make(pairs)
        except NotCompiled as error:
            self._failed(pairs, str(error))
        else:
            self._made(pairs, took)
        finally:
            self.counts.compiling = 0
        for pair in pairs:
            self._queue.pop(pair, None)
            for again in self._parked.pop(pair, {}).values():
                again()

    def _made(self, pairs: Sequence[Pair], took: float) -> None:
        self._works = True
        self.counts.seconds += took
        if took:
            self.counts.compiled += len(pairs)
        else:
            self.counts.loaded += len(pairs)
        how = f"compiled in {took:.1f} s" if took else "loaded"
        self._log(f"kernels {how}: {_list(pairs)}", seconds=took, count=len(pairs))
        for pair in pairs:
            self._ready.add(pair)
            self._scheduler.use_compiled(Profile(*pair))

    def _failed(self, pairs: Sequence[Pair], why: str) -> None:
        """Note a failure. If nothing was ever compiled, nothing will be: log it once, and interpret everything."""
        self.counts.failed += len(pairs)
        self._interpreted.update(pairs)
        if self._works is None:
            self._works = False
            self._log(f"{INTERPRETED_INSTEAD}: {why}", WARNING)
            self._queue.clear()
            parked, self._parked = self._parked, {}
            for again in (again for waiting in parked.values() for again in waiting.values()):
                again()
        else:
            self._log(f"kernels not compiled, interpreted: {_list(pairs)}: {why}", WARNING)


def _list(pairs: Iterable[Pair]) -> str:
    return ", ".join(map(title, pairs))
