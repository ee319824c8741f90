"""Asks the sources of measured load in rounds, and turns what they say into events of the engine.

A value counts until it is stale. When a source fails, or says what cannot be true, one warning says so, placement goes
on with what is known, and one line says when the source is well again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from typing import NamedTuple

import msgspec

from dovetail.kube.api.retry import REAL, World
from dovetail.kube.conversion.measured import Answer, Kind, Places, Value, spread_of
from dovetail.kube.live.signal_sources import SignalOptions, SignalSource
from dovetail.kube.log import WARNING, Log
from dovetail.model.events import SignalsMeasured
from dovetail.model.node import Node
from dovetail.model.pod import Profile
from dovetail.model.signals import CardSignals, NodeSignals
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

ROUND_SECONDS = 10.0  # for one source to answer
SAY_AGAIN_SECONDS = 600.0  # between two warnings about a source that stays in trouble
MAX_SAMPLES = 64  # kept of one node and kind
SHOWN = 3  # refused values that a warning names


class _Sample(NamedTuple):
    at: float
    permille: int


class SourceState:
    """What is wrong with one source, and since when it was said."""

    def __init__(self, name: str) -> None:
        self.name, self.trouble, self.refused = name, "", 0
        self._said_at = 0.0

    def judge(self, answer: Answer, wrong: str, now: float, log: Log) -> None:
        """Log a change for the worse or the better; repeat a lasting trouble now and then."""
        self.refused += len(answer.refused)
        shown = "; ".join(answer.refused[:SHOWN])
        more = f"; and {len(answer.refused) - SHOWN} more" if len(answer.refused) > SHOWN else ""
        refused = f"{len(answer.refused)} values are refused: {shown}{more}" if answer.refused else ""
        before, self.trouble = self.trouble, "; ".join(text for text in (wrong, refused) if text)
        if self.trouble and (not before or now - self._said_at >= SAY_AGAIN_SECONDS):
            self._said_at = now
            text = f"measured load from {self.name}: {self.trouble}; pods are placed without what is missing"
            log(text, WARNING, source=self.name)
        elif before and not self.trouble:
            log(f"measured load from {self.name} is well again", source=self.name)


class Signals:
    """The last values of all sources. `run` asks them."""

    def __init__(
        self,
        sources: Iterable[SignalSource],
        options: SignalOptions,
        nodes: Mapping[str, Node],
        send: Callable[[Iterable[SignalsMeasured]], None],
        *,
        now: Callable[[], float],
        log: Log,
        readers: Iterable[str] = (),  # policies of the configuration that read measured load
        world: World = REAL,
    ) -> None:
        self._sources, self._options, self._nodes, self._send = tuple(sources), options, nodes, send
        self._now, self._log, self._world = now, log, world
        self._readers = tuple(readers)
        self.states = tuple(SourceState(source.name) for source in self._sources)
        self._samples: dict[tuple[str, str, Kind], deque[_Sample]] = {}  # node, card or "", kind -> oldest first
        self._sent: dict[str, NodeSignals] = {}

    async def run(self) -> None:
        """Ask until cancelled, after the first pause."""
        try:
            while True:
                await self._world.sleep(self._options.every_seconds)
                if self._sources:
                    await self.round()
        finally:
            for source in self._sources:
                await source.close()

    async def round(self) -> None:
        """Ask every source once, and send what is new."""
        places, now = Places(self._nodes), self._now()
        answers = await asyncio.gather(*(self._ask(source, places, now) for source in self._sources))
        for state, (answer, wrong) in zip(self.states, answers, strict=True):
            state.judge(answer, wrong, now, self._log)
            for value in answer.values:
                self._keep(value)
        self._forget(now)
        self._tell(now, {value.node for answer, _ in answers for value in answer.values})

    @property
    def remarks(self) -> list[str]:
        """What people should know: sources in trouble, and policies that would need one."""
        said = [f"measured load from {state.name}: {state.trouble}" for state in self.states if state.trouble]
        if self._readers and not self.measured_nodes:
            said.append(f"no load is measured, which {', '.join(self._readers)} would read")
        return said

    @property
    def measured_nodes(self) -> int:
        return sum(1 for signals in self._sent.values() if signals != _nothing(signals.measured_at))

    async def _ask(self, source: SignalSource, places: Places, now: float) -> tuple[Answer, str]:
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                return await source.read(places, now)
        except TimeoutError:
            return Answer(), f"no answer within {ROUND_SECONDS:g} s"
        except Exception as error:  # a source must never stop the scheduler
            return Answer(), f"{type(error).__name__}: {error}"

    def _keep(self, value: Value) -> None:
        kept = self._samples.setdefault((value.node, value.card, value.kind), deque(maxlen=MAX_SAMPLES))
        if not kept or value.at > kept[-1].at:
            kept.append(_Sample(value.at, value.permille))
        elif value.at == kept[-1].at:
            kept[-1] = _Sample(value.at, value.permille)

    def _forget(self, now: float) -> None:
        """Drop what is stale, and what belongs to nodes that are gone."""
        stale = self._options.stale_seconds
        self._samples = {
            key: kept for key, kept in self._samples.items() if key[0] in self._nodes and now - kept[-1].at <= stale
        }
        self._sent = {name: signals for name, signals in self._sent.items() if name in self._nodes}

    def _tell(self, now: float, measured: Set[str]) -> None:
        """Send the load of nodes that were measured again, or whose values have become stale.

        A measurement with the same values is news too: it includes pods that were placed since the last one.
        """
        events = []
        for name in self._nodes:
            signals = self._signals(name, now)
            before = self._sent.get(name, _nothing(now))
            if name in measured or signals != msgspec.structs.replace(before, measured_at=now):
                self._sent[name] = signals
                events.append(SignalsMeasured(now, name, signals))
        if events:
            self._send(events)

    def _signals(self, name: str, now: float) -> NodeSignals:
        cpu, cpu_deviation = self._mean(name, Kind.CPU, Kind.CPU_DEVIATION, now)
        memory, memory_deviation = self._mean(name, Kind.MEMORY, Kind.MEMORY_DEVIATION, now)
        cards = (self._card(name, device.uuid) for device in self._nodes[name].devices)
        known = tuple(card for card in cards if card.compute is not None or card.memory is not None)
        return NodeSignals(now, cpu, cpu_deviation, memory, memory_deviation, known)

    def _mean(self, name: str, kind: Kind, deviation: Kind, now: float) -> tuple[int | None, int | None]:
        """Mean and standard deviation: the source's, or those of the last values."""
        kept = self._samples.get((name, "", kind))
        if not kept:
            return None, None
        stated = self._last(name, "", deviation)
        if stated is not None:
            return kept[-1].permille, stated
        return self._spread(name, "", kind)

    def _card(self, name: str, uuid: str) -> CardSignals:
        """The last values of a card, and how much they varied."""
        compute, memory = (self._last(name, uuid, kind) for kind in (Kind.CARD, Kind.CARD_MEMORY))
        deviations = (self._spread(name, uuid, kind)[1] for kind in (Kind.CARD, Kind.CARD_MEMORY))
        return CardSignals(uuid, compute, memory, *deviations)

    def _spread(self, name: str, card: str, kind: Kind) -> tuple[int | None, int | None]:
        """Mean and standard deviation of the values within the window."""
        kept = self._samples.get((name, card, kind))
        if not kept:
            return None, None
        newest = kept[-1].at
        return spread_of(one.permille for one in kept if newest - one.at <= self._options.window_seconds)

    def _last(self, name: str, card: str, kind: Kind) -> int | None:
        kept = self._samples.get((name, card, kind))
        return kept[-1].permille if kept else None


def _nothing(at: float) -> NodeSignals:
    return NodeSignals(at)


def signal_readers(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """The policies among these that read measured load."""
    given = list(profiles)
    names = {one.node for one in given if NODE_POLICIES[one.node].reads_signals}
    names |= {name for one in given for name in one.device if DEVICE_POLICIES[name].reads_signals}
    return tuple(sorted(names))
