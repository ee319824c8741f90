"""The check that runs once a minute: waiting pods in no queue, and waiting pods that fit although no event said so.

Each pod that it finds shows that an event was missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.kube.live.known import Stand
from dovetail.kube.log import WARNING
from dovetail.model.events import Bind, GroupArrived
from dovetail.model.pod import Group, Pod

if TYPE_CHECKING:
    from dovetail.kube.live.driver import Driver

NET_RETRIED = 512  # waiting pods that the safety net tries itself; the loop tries the rest


class SafetyNet:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def look(self) -> None:
        held_back, scheduler = self._driver.held_groups.uids, self._driver.scheduler
        waiting = [(uid, known.pod) for uid, known in self._driver.mirror.pods.items() if known.stand is Stand.WAITS]
        lost = [pod for uid, pod in waiting if uid not in held_back and self._is_lost(uid)]
        lost = lost if self._driver.asked is None else []  # another scheduler has the queue
        if lost:
            self._driver.log(
                f"{len(lost)} waiting pods were in no queue; the first: {lost[0].key}", WARNING, count=len(lost)
            )
            self._driver.counts.rescued += len(lost)
            self._driver.happened(GroupArrived(self._driver.now(), group) for group in self._groups(lost))
        if scheduler.has_retries:  # waiting pods are being tried already
            return
        scheduler.retry_all(self._driver.now())
        effects = self._driver.retry_some(NET_RETRIED)
        rescued = [effect for effect in effects if isinstance(effect, Bind)]
        if rescued:
            self._driver.counts.rescued += len(rescued)
            text = f"{len(rescued)} pods fit although no event said so; the first: {rescued[0].pod.key}"
            self._driver.log(text, WARNING, count=len(rescued))
        self._driver.carry_out(effects)

    def _groups(self, lost: Iterable[Pod]) -> Iterable[Group]:
        """Their groups, each made once: a group has all waiting members of its gang."""
        groups: dict[str, Group] = {}
        for pod in lost:
            if pod.group not in groups:
                group = self._driver.mirror.gangs.group(pod)
                groups[group.name] = group
        return groups.values()

    def _is_lost(self, uid: str) -> bool:
        """Whether nothing will offer the pod again: it is in no queue, has no place, no write and no retry timer."""
        placed = uid in self._driver.scheduler.ledger.pods or uid in self._driver.binder.under_way
        waits = self._driver.scheduler.waiting.name_of(uid) or self._driver.arrivals.name_of(uid)
        return not (placed or waits or self._driver.mirror.known.rests(uid))
