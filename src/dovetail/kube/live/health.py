"""The HTTP port for kubelet and Prometheus: liveness, readiness and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from dovetail.kube.api.reflector import Reflector
from dovetail.kube.live.metrics.hami import HamiMetricsOptions
from dovetail.kube.live.metrics.page import Metrics
from dovetail.kube.live.metrics.text import CONTENT_TYPE
from dovetail.kube.live.metrics_auth import Reviews
from dovetail.kube.live.peers import Peers
from dovetail.kube.live.port import HttpPort, PortAnswer, PortRequest, Serve
from dovetail.kube.live.service import LiveScheduler
from dovetail.kube.log import WARNING, Log

STALE_AFTER = 20.0  # seconds without a watch after which we are not ready
SILENT_AFTER = 120.0  # seconds without a byte on an open watch: servers send a bookmark each minute
VERBOSE = "verbose"  # the query that asks for each check by name


@asynccontextmanager
async def listening(
    host: str,
    port: int | None,
    service: LiveScheduler,
    log: Log,
    reviews: Reviews | None = None,
    hami: HamiMetricsOptions | None = None,
) -> AsyncIterator[None]:
    """Serve while the block runs. None = do not serve. A port that is taken is logged and not fatal.

    `reviews`: readers of /metrics must be authorised by the API server. Kubelet's probes bring no token.
    """
    if port is None:
        yield
        return
    numbers = Numbers(service, hami).serve
    routes: dict[str, Serve] = {
        "/healthz": _alive,
        "/livez": _alive,
        "/readyz": lambda asked: _ready(service, asked),
        "/metrics": reviews.reviewed(numbers) if reviews is not None else numbers,
    }
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(HttpPort(routes).listening(host, port))
            log(f"health and metrics on {host}:{port}")
        except OSError as error:
            log(f"--listen {host}:{port}: {error.strerror or error}; health and metrics are not served", WARNING)
        yield


async def _alive(asked: PortRequest) -> PortAnswer:
    """The answer that says that the event loop runs; a process without it is restarted by kubelet."""
    return PortAnswer("[+]loop ok\nhealthz check passed" if asked.query == VERBOSE else "ok")


async def _ready(service: LiveScheduler, asked: PortRequest) -> PortAnswer:
    ready, text = readiness(service)
    if asked.query == VERBOSE:
        text = "\n".join((*map(str, checks(service)), f"readyz check {'passed' if ready else 'failed'}"))
    return PortAnswer(text, 200 if ready else 503)


class Numbers:
    """Serves /metrics."""

    def __init__(self, service: LiveScheduler, hami: HamiMetricsOptions | None = None) -> None:
        self._metrics = Metrics(service, lambda: readiness(service)[0], hami)

    async def serve(self, asked: PortRequest) -> PortAnswer:
        return PortAnswer(await self._metrics.text(), kind=CONTENT_TYPE)


class ReadyCheck(NamedTuple):
    """One check of /readyz?verbose; prints as Kubernetes' components print theirs."""

    name: str
    passes: bool
    said: str  # what is done, or what is wrong
    decides: bool = True  # False = it is only said, and the scheduler is ready without it

    def __str__(self) -> str:
        sign = "+" if self.passes else "-" if self.decides else "!"
        word = "ok" if self.passes else "failed" if self.decides else "warning"
        return f"[{sign}]{self.name} {word}{f': {self.said}' if self.said else ''}"


def checks(service: LiveScheduler) -> list[ReadyCheck]:
    """All checks by name. The scheduler is ready if those pass that decide."""
    made = [
        ReadyCheck("state", service.ready, service.state),
        ReadyCheck("lease", service.election.is_sure(), "", False),
    ]
    for reflector in service.reflectors:
        if reflector.health().served:
            stale = stale_views((reflector,))
            made.append(ReadyCheck(f"watch {reflector.path}", not stale, "; ".join(stale)))
    made.append(
        ReadyCheck(
            "kernels", not service.kernels.counts.failed, "see the log" * bool(service.kernels.counts.failed), False
        )
    )
    peers = peer_remarks(service.peers)
    made.append(ReadyCheck("peers", not peers, "; ".join(peers), False))
    if service.signals is not None:
        made.append(ReadyCheck("signals", not service.signals.remarks, "; ".join(service.signals.remarks), False))
    return made


def readiness(service: LiveScheduler) -> tuple[bool, str]:
    """Whether the scheduler works with a current view of the cluster; and what it is doing, or what is wrong."""
    stale = stale_views(service.reflectors)
    ready = service.ready and not stale
    state = (service.state,) if ready or not service.ready else ()
    load = service.signals.remarks if service.signals is not None else ()
    return ready, "; ".join((*state, *stale, *peer_remarks(service.peers), *load))


def peer_remarks(peers: Peers) -> list[str]:
    """Facts about other Dovetails that operators should know, but that do not stop us."""
    said = []
    if peers.refused:
        said.append(f"other Dovetails cannot be looked for: {peers.refused}")
    if peers.elsewhere:
        said.append(f"Leases in other namespaces that claim the same nodes: {peers.elsewhere}, see the log")
    return said


def stale_views(reflectors: Iterable[Reflector[Any]]) -> list[str]:
    """Resources whose view may be out of date, with its age. Resources that are not served have no objects to miss."""
    said = []
    for reflector in reflectors:
        health = reflector.health()
        if health.served and health.age > (SILENT_AFTER if health.connected else STALE_AFTER):
            why = "the watch is silent" if health.connected else health.error or "no answer to the list"
            said.append(f"{reflector.path}: no current view for {health.age:.0f} s: {why}")
    return said
