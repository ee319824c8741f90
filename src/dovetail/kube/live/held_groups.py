"""Groups that are not decided yet: their owner backs off, or their kernel is being compiled. Each is offered again."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from dovetail.kube.live.known import Stand
from dovetail.model.events import GroupArrived
from dovetail.model.pod import Group

if TYPE_CHECKING:
    from dovetail.kube.live.driver import Driver


class HeldGroups:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        # Group name -> uids of pods that `_offer_again` will offer.
        self._uids: dict[str, dict[str, None]] = {}

    @property
    def uids(self) -> set[str]:
        return {uid for uids in self._uids.values() for uid in uids}

    def back_off(self, group: Group, seconds: float) -> None:
        for pod in group.pods:
            self._driver.reasons.held_back(pod, self._driver.patience.why(pod.owner or pod.key), seconds)
        asyncio.get_running_loop().call_later(seconds, self._offer_again, self._hold(group))

    def waits_for_kernel(self, group: Group) -> bool:
        """Whether the group must wait for compiled kernels: on a large cluster, interpreting would delay all others."""
        scheduler = self._driver.scheduler
        if self._driver.kernels is None or all(scheduler.is_compiled(pod.profile) for pod in group.pods):
            return False
        again = partial(self._offer_again, group.name)
        why = self._driver.kernels.admit(group, len(scheduler.ledger.nodes), again)
        if why:
            self._hold(group)
            for pod in group.pods:
                self._driver.reasons.not_compiled(pod, why)
        return bool(why)

    def _hold(self, group: Group) -> str:
        """Hold the group's pods back under its name.

        A later group of that name replaces the group, but not its pods.
        """
        self._uids.setdefault(group.name, {}).update(dict.fromkeys(pod.uid for pod in group.pods))
        return group.name

    def _offer_again(self, name: str) -> None:
        """Offer the pods held back under this name again, with their present objects and present groups."""
        known = [self._driver.mirror.pods.get(uid) for uid in self._uids.pop(name, ())]
        groups = [
            self._driver.mirror.gangs.group(one.pod) for one in known if one is not None and one.stand is Stand.WAITS
        ]
        self._driver.happened(
            GroupArrived(self._driver.now(), each) for each in {each.name: each for each in groups}.values()
        )
