"""Measured load for `top`: asks the sources that the scheduler's configuration names, and keeps their last values."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from dovetail.cli.board import MeasuredLoad
from dovetail.cli.options import ClusterOptions
from dovetail.cli.settings import settle
from dovetail.cli.sources import connection_of, refusals
from dovetail.config import SignalsConfig
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.retry import REAL, World
from dovetail.kube.conversion.measured import SERIES_LABELS, Labels
from dovetail.kube.live.signal_sources import QUERIES, PrometheusOptions, SignalOptions, sources_of
from dovetail.kube.live.signals import ROUND_SECONDS, Signals
from dovetail.kube.log import silent
from dovetail.kube.objects.problems import Problems
from dovetail.model.events import SignalsMeasured
from dovetail.model.node import Node
from dovetail.model.signals import NodeSignals

NO_SOURCE = "no source is configured; name the scheduler's configuration with --config, and in it `signals`"


def signal_options(config: SignalsConfig) -> SignalOptions:
    given, prometheus = config.prometheus, None
    if given is not None:
        usual = SERIES_LABELS
        labels = Labels(
            tuple(given.node_labels) or usual.node,
            tuple(given.card_labels) or usual.card,
            tuple(given.index_labels) or usual.index,
        )
        token, ca = (Path(file) if file is not None else None for file in (given.token_file, given.ca_file))
        prometheus = PrometheusOptions(given.url, {**QUERIES, **given.queries}, labels, token, ca)
    every, stale, window = config.every_seconds, config.stale_after_seconds, config.window_seconds
    return SignalOptions(config.metrics_api, prometheus, every, stale, window)


class LoadMeter:
    """Asks the sources again when their pause is over. Use it within `metering`."""

    def __init__(self, options: SignalOptions, api: Api, world: World = REAL) -> None:
        self.pause, self._world = options.every_seconds, world
        self._sources = sources_of(options, api, ROUND_SECONDS)
        self._nodes: dict[str, Node] = {}
        self._last: dict[str, NodeSignals] = {}
        self._signals = Signals(self._sources, options, self._nodes, self._keep, now=time.time, log=silent)
        self._asked: float | None = None

    async def read(self, nodes: Iterable[Node]) -> MeasuredLoad:
        """The load of these nodes, as last measured."""
        if not self._sources:
            return MeasuredLoad(remark=NO_SOURCE)
        self._nodes.clear()
        self._nodes.update((node.name, node) for node in nodes)
        now = self._world.now()
        if self._asked is None or now - self._asked >= self.pause:
            self._asked = now
            await self._signals.round()
        kept = {name: signals for name, signals in self._last.items() if name in self._nodes}
        return MeasuredLoad(
            kept, "; ".join(f"{one.name}: {one.trouble}" for one in self._signals.states if one.trouble)
        )

    def _keep(self, events: Iterable[SignalsMeasured]) -> None:
        self._last.update((event.node, event.signals) for event in events)

    async def close(self) -> None:
        for source in self._sources:
            await source.close()


@asynccontextmanager
async def metering(asked: ClusterOptions) -> AsyncIterator[LoadMeter]:
    """A meter for the sources of the configuration, while the block runs."""
    config, _ = settle(asked, Problems())
    async with Api(Credentials(connection_of(asked.kubeconfig, asked.context), environ=os.environ)) as api:
        meter = LoadMeter(signal_options(config.signals), api)
        try:
            yield meter
        finally:
            await meter.close()


def measured_once(asked: ClusterOptions, nodes: Iterable[Node]) -> MeasuredLoad:
    """The load of these nodes now. Raises Refused for a wrong kubeconfig or configuration."""

    async def read() -> MeasuredLoad:
        async with metering(asked) as meter:
            return await meter.read(nodes)

    with refusals():
        return asyncio.run(read())
