"""How long decisions, bindings and waits take. Every pod passes here, so recording takes about a microsecond a pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter, time

from dovetail.kube.histogram import Histogram
from dovetail.kube.live.tracing import Tracing
from dovetail.model.events import Bind, Effect, Wait
from dovetail.model.pod import Pod, Profile
from dovetail.model.reason import name

DECISION_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
BIND_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
WAIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
PLACED, WAITS = ("placed",), ("waits",)


class Latencies:
    """Histograms. Pods are known from their arrival until they are bound or gone."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock  # monotonic seconds
        self.decisions = {PLACED: Histogram(DECISION_SECONDS), WAITS: Histogram(DECISION_SECONDS)}
        self.binds, self.waits = Histogram(BIND_SECONDS), Histogram(WAIT_SECONDS)
        self._arrived: dict[str, float] = {}  # by uid: when the pod was first seen
        self.tracing: Tracing | None = None  # set by the command line; None = no traces
        self._placed: dict[str, float] = {}  # by uid: when it was last given a node

    def arrived(self, pods: Iterable[Pod]) -> None:
        now = self.clock()
        for pod in pods:
            self._arrived.setdefault(pod.uid, now)
            if self.tracing is not None:
                self.tracing.arrived(pod.uid, pod.key, pod.scheduler)

    def decided(self, began: float, effects: Sequence[Effect]) -> None:
        """Record the decision that began at `began`, by `clock`."""
        seconds = self.clock() - began
        placed = any(isinstance(effect, Bind) for effect in effects)
        self.decisions[PLACED if placed else WAITS].observe(seconds)
        if self.tracing is not None:
            _trace(self.tracing, time() - seconds, effects)

    def placed(self, uid: str) -> None:
        self._placed[uid] = self.clock()

    def bound(self, uid: str) -> None:
        """Record a pod that is bound."""
        now, placed, arrived = self.clock(), self._placed.pop(uid, None), self._arrived.pop(uid, None)
        if placed is not None:
            self.binds.observe(now - placed)
        if arrived is not None:
            self.waits.observe(now - arrived)
        if self.tracing is not None:
            self.tracing.bound(uid)

    def gone(self, uid: str) -> None:
        """Forget a pod that is gone, or that another scheduler has bound."""
        self._placed.pop(uid, None)
        self._arrived.pop(uid, None)
        if self.tracing is not None:
            self.tracing.gone(uid)

    def __len__(self) -> int:
        """The number of pods that are not bound yet."""
        return len(self._arrived)


def _trace(tracing: Tracing, began: float, effects: Sequence[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Bind):
            tracing.decided(effect.pod.uid, began, str(effect.decision.node), _words(effect.pod.profile), "")
        elif isinstance(effect, Wait):
            tracing.decided(effect.pod.uid, began, "", _words(effect.pod.profile), name(effect.decision.reason))


def _words(profile: Profile) -> str:
    return f"{profile.node} × {','.join(profile.device)}"
