"""Watches of ElasticQuotas and Queues. Kinds that are not served, or that we may not read, have no objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from dovetail.kube.api.reflector import Reflector
from dovetail.kube.api.watch import Event, NotServed, Replaced
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.queue_mirror import QueueMirror
from dovetail.kube.log import WARNING, Log
from dovetail.kube.objects.queues import (
    KAI_GROUP,
    KOORDINATOR,
    QUEUE_KINDS,
    SCHEDULER_PLUGINS,
    VOLCANO_GROUP,
    QueueObject,
)


class QueueKind(NamedTuple):
    api_group: str
    version: str
    kind: str

    @property
    def path(self) -> str:
        return f"/apis/{self.api_group}/{self.version}/{self.kind.lower()}s"


WATCHED_QUEUES = (
    QueueKind(SCHEDULER_PLUGINS, "v1alpha1", "ElasticQuota"),
    QueueKind(KOORDINATOR, "v1alpha1", "ElasticQuota"),
    QueueKind(VOLCANO_GROUP, "v1beta1", "Queue"),
    QueueKind(KAI_GROUP, "v2", "Queue"),
)


class QueueWatches:
    """One reflector for each kind. `watch` is a Reflector that lacks its path, kind, consumer and options."""

    def __init__(
        self,
        driver: Driver,
        mirror: QueueMirror,
        watch: Callable[..., Reflector[Any]],
        complain: Callable[..., None],
        log: Log,
    ) -> None:
        self._driver, self._mirror, self._complain, self._log = driver, mirror, complain, log
        self._served: dict[QueueKind, bool] = {}
        self.reflectors = [
            watch(
                kind.path,
                QUEUE_KINDS[kind.api_group, kind.kind],
                partial(self._hear, kind),
                without=f"{kind.kind}s of {kind.api_group} limit no pods",
            )
            for kind in WATCHED_QUEUES
        ]

    def _hear(self, kind: QueueKind, batch: list[Event[QueueObject]]) -> None:
        self._complain(kind.kind, batch)
        self._driver.happened(self._mirror.hear(kind.api_group, batch))
        faults, self._mirror.faults = self._mirror.faults, []
        self._driver.set_aside.unread(faults)
        lines, self._mirror.problems = self._mirror.problems, []
        for line in lines:
            self._log(line, WARNING)
        for event in batch:
            if isinstance(event, (Replaced, NotServed)):
                self._note_served(kind, isinstance(event, Replaced))

    def _note_served(self, kind: QueueKind, served: bool) -> None:
        """Log when a kind appears or goes. Most clusters have none of them, so their absence at the start is normal."""
        before = self._served.get(kind, False)
        self._served[kind] = served
        if before != served:
            said = "are served now and limit their pods" if served else "are served no more"
            self._log(f"{kind.kind}s of {kind.api_group}/{kind.version} {said}")
