"""`make bench`: decisions per second of several methods in one run. Compare the ratios: machines differ.

For each decision, one pod arrives and another leaves, on a half-full cluster of 8-GPU nodes of 12 hardware types.
`place` takes pods in waves of 1,000, as a stream of templates or as a list of groups; `handle` takes one event each.
"every node" scores the whole cluster for each decision. Then traces are replayed (bench/replay.py) and pods are planned
from files (bench/plan_files.py).
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from random import Random
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from bench import gangs, plan_files, preemption, replay
from bench.workload import CARDS, half_full, templates
from dovetail import kernel_cache
from dovetail.engine.ledger.decisions import Decisions
from dovetail.engine.ledger.stream import Stream
from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import Bind, GroupArrived, PodGone
from dovetail.model.pod import Group, Profile

NODES, KINDS = 5_000, (10, 50, 150)
SIZES = (1_000, 5_000, 20_000)
WAVE = 1_000
POLICIES = {"binpack": Profile("binpack", ("binpack",)), "spread": Profile("spread", ("spread",))}


class Stage:
    """One cluster, one stream of pods, and the running pods."""

    def __init__(self, nodes: int, kinds: int, policy: str) -> None:
        self.dice = Random(nodes + kinds)
        self.templates = templates(kinds, POLICIES[policy], self.dice)
        self.scheduler, self.running = half_full(nodes, self.templates, "compiled", self.dice)
        self.arrived = 0
        self.place(WAVE)  # compiles what is not compiled yet, and builds the vectors

    def wave(self, count: int) -> tuple[Stream, list[str]]:
        """Pods that arrive, and as many that leave."""
        kinds = np.array([self.dice.randrange(len(self.templates)) for _ in range(count)], dtype=np.int64)
        coming = Stream(self.templates, kinds, [f"pod-{n}" for n in range(self.arrived, self.arrived + count)])
        self.arrived += count
        return coming, [self._leaver() for _ in range(count)]

    def _leaver(self) -> str:
        """Remove and return a random running pod; the last one takes its place in the list."""
        n = self.dice.randrange(len(self.running))
        self.running[n], self.running[-1] = self.running[-1], self.running[n]
        return self.running.pop()

    def place(self, decisions: int, wave: int = WAVE, forget: bool = False, as_list: bool = False) -> float:
        """Seconds for this many decisions through `place`, from a stream of templates or a list of groups."""
        scheduler, seconds = self.scheduler, 0.0
        for _ in range(0, decisions, wave):
            stream, leaving = self.wave(wave)
            coming = list(stream) if as_list else stream
            started = perf_counter()
            if forget:
                scheduler.ledger.vectors.forget()
            scheduler.ledger.release_all(leaving)
            made = scheduler.place(coming)
            seconds += perf_counter() - started
            self.running += made.placed_uids() if isinstance(made, Decisions) else [d.uid for d in made if d.placed]
        return seconds

    def handle(self, decisions: int) -> float:
        """Seconds for this many decisions through `handle`, with one event for each arrival and each departure."""
        scheduler, seconds = self.scheduler, 0.0
        for _ in range(0, decisions, WAVE):
            stream, leaving = self.wave(min(WAVE, decisions))
            coming = list(stream)
            started = perf_counter()
            placed = [effect for c, uid in zip(coming, leaving, strict=True) for effect in _pair(scheduler, c, uid)]
            seconds += perf_counter() - started
            self.running += [effect.pod.uid for effect in placed if isinstance(effect, Bind)]
            for group in list(scheduler.waiting):  # pods that fit on no node leave after a while
                scheduler.waiting.remove(group.name)
        return seconds


def _pair(scheduler: Scheduler, coming: Group, leaving: str) -> tuple[object, ...]:
    return (*scheduler.handle(PodGone(1.0, leaving)), *scheduler.handle(GroupArrived(1.0, coming)))


def measure(nodes: int, kinds: int, policy: str, every_node: bool) -> dict[str, float]:
    """Decisions per second: the best of many short rounds, because other processes use the machine too."""
    stage = Stage(nodes, kinds, policy)
    stage.place(5 * WAVE)
    stage.handle(200)
    gc.collect()
    gc.freeze()
    place = max(3 * WAVE / stage.place(3 * WAVE) for _ in range(10))
    handle = max(WAVE / stage.handle(WAVE) for _ in range(12))
    listed = max(3 * WAVE / stage.place(3 * WAVE, as_list=True) for _ in range(10))
    found = {"place": place, "place a list": listed, "handle": handle}
    if every_node:
        found["every node"] = max(200 / stage.place(200, wave=1, forget=True, as_list=True) for _ in range(3))
    gc.unfreeze()
    return found


def main() -> None:
    kernel_cache.prepare()
    gc.set_threshold(100_000, 20, 20)  # as recommended for a long-lived process with a large heap
    figures: dict[str, object] = {"nodes": NODES, "gpus_per_node": CARDS}
    print(f"{NODES:,} nodes × {CARDS} GPUs, half full; decisions per second")
    titles = ("place", "place a list", "handle", "every node")
    print(f"{'policy':8} {'K':>4} " + " ".join(f"{title:>12}" for title in titles) + "  place : every node")
    rates: dict[str, dict[str, dict[str, int]]] = {}
    for policy in POLICIES:
        for kinds in KINDS:
            found = measure(NODES, kinds, policy, every_node=True)
            ratio = found["place"] / found["every node"]
            cells = " ".join(f"{found[title]:12,.0f}" for title in titles)
            print(f"{policy:8} {kinds:4} {cells}  {ratio:17,.0f}×", flush=True)
            rates.setdefault(policy, {})[str(kinds)] = {name: round(rate) for name, rate in found.items()}
    figures["decisions_per_second"] = rates
    print("\nµs per decision through `place`, K = 50")
    print(f"{'policy':8} " + " ".join(f"{size:>8,}" for size in SIZES) + "   20,000 : 1,000")
    costs: dict[str, dict[str, float]] = {}
    for policy in POLICIES:
        each = {size: 1e6 / measure(size, 50, policy, every_node=False)["place"] for size in SIZES}
        growth = each[SIZES[-1]] / each[SIZES[0]]
        print(f"{policy:8} " + " ".join(f"{each[size]:8.1f}" for size in SIZES) + f"   {growth:13.1f}×", flush=True)
        costs[policy] = {str(size): round(cost, 2) for size, cost in each.items()} | {"growth": round(growth, 2)}
    figures["microseconds_per_decision"] = costs
    print()
    figures["preemption_ms"] = preemption.run()
    print()
    figures["gangs_ms"] = gangs.run()
    figures |= replay.measured_apart() | plan_files.measure()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
