"""Watches of PodGroups, and whether they are current: gangs are decided only with PodGroups not older than the pods.

The rule: the PodGroups of a kind are current while their watch is open and was begun after the pods' watch last broke.
Until then, a gang with news from its members waits (`Standing.BEHIND`). When the pods' watch breaks, those of PodGroups
are begun again: a network that breaks one connection seldom breaks only that one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dovetail.kube.api.reflector import Reflector
from dovetail.kube.api.watch import Event, NotServed, Replaced
from dovetail.kube.conversion.groups import NOUNS, WORKLOADS, Standing
from dovetail.kube.live.driver import Driver
from dovetail.kube.log import Log
from dovetail.kube.objects.gangs import JOB_SET_GROUP, KUBERNETES, GangObject, JobSet, KubernetesWorkload, PodGroup
from dovetail.kube.objects.queues import KAI_GROUP, KOORDINATOR, SCHEDULER_PLUGINS, VOLCANO_GROUP

Kind = tuple[str, str]  # API group, version
# Kinds that are not served have no objects.
WATCHED_POD_GROUPS: tuple[Kind, ...] = (
    (SCHEDULER_PLUGINS, "v1alpha1"),
    (KOORDINATOR, "v1alpha1"),
    (VOLCANO_GROUP, "v1beta1"),
    (KAI_GROUP, "v2alpha2"),
    (KUBERNETES, "v1alpha2"),  # of 1.36
    (KUBERNETES, "v1beta1"),  # from 1.37 on
    (WORKLOADS, "v1alpha1"),  # of 1.35
    (JOB_SET_GROUP, "v1alpha2"),
)
# Kinds for which older versions have no rights: without them, their objects are as good as not served.
LATER_KINDS = (KAI_GROUP, WORKLOADS, JOB_SET_GROUP)
OTHER_KINDS: dict[str, tuple[str, type[GangObject]]] = {  # API group -> path and type of kinds that are no PodGroups
    WORKLOADS: (f"/apis/{KUBERNETES}/v1alpha1/workloads", KubernetesWorkload),
    JOB_SET_GROUP: (f"/apis/{JOB_SET_GROUP}/v1alpha2/jobsets", JobSet),
}
Watch = Callable[..., Reflector[GangObject]]  # a Reflector that lacks its path, kind, consumer and hooks


class PodGroupWatches:
    """One reflector for each kind of PodGroup."""

    def __init__(self, driver: Driver, watch: Watch, complain: Callable[..., None], log: Log) -> None:
        self._driver, self._complain, self._log = driver, complain, log
        self._served: dict[Kind, bool] = {}  # kinds whose availability is known
        self._breaks = 0  # how often the pods' watch broke
        self._begun: dict[Kind, int] = {}  # the value of `_breaks` when the last list or watch was begun
        self.reflectors: dict[Kind, Reflector[GangObject]] = {}
        for kind in WATCHED_POD_GROUPS:
            driver.mirror.pod_groups_stand(*kind, Standing.BEHIND)
            path, type_ = OTHER_KINDS.get(kind[0], (f"/apis/{kind[0]}/{kind[1]}/podgroups", PodGroup))
            self.reflectors[kind] = watch(
                path,
                type_,
                partial(self._hear, kind),
                on_watch=partial(self._watches, kind),
                on_begin=partial(self._begins, kind),
                wanted=partial(driver.mirror.gangs.wanted, kind[0]),
                without=f"pods that name a gang of {kind[0]} wait" if kind[0] in LATER_KINDS else "",
            )

    def pods_watched(self, is_open: bool) -> None:
        """Note that the pods' watch opened or broke. After a break, PodGroups may be older than the next pods."""
        if not is_open:
            self._breaks += 1
            for kind, reflector in self.reflectors.items():
                if self._served.get(kind):
                    self._stand(kind, Standing.BEHIND)
                    reflector.renew()

    def _begins(self, kind: Kind) -> None:
        self._begun[kind] = self._breaks

    def _is_current(self, kind: Kind) -> bool:
        """Whether its last list or watch was begun after the pods' watch last broke."""
        return self._begun.get(kind) == self._breaks

    def _watches(self, kind: Kind, is_open: bool) -> None:
        if not self._served.get(kind):
            return
        self._stand(kind, Standing.LISTED if is_open and self._is_current(kind) else Standing.BEHIND)
        if is_open and not self._is_current(kind):  # it was being opened when the pods' watch broke
            self.reflectors[kind].renew()

    def _stand(self, kind: Kind, standing: Standing) -> None:
        self._driver.happened(self._driver.mirror.pod_groups_stand(*kind, standing))

    def _hear(self, kind: Kind, batch: list[Event[GangObject]]) -> None:
        self._complain(NOUNS.get(kind[0], "PodGroup"), batch)
        # Until its watch, which is begun next, is open.
        listed = Standing.LISTED if self._is_current(kind) else Standing.BEHIND
        self._driver.happened(self._driver.mirror.hear_pod_groups(batch, *kind, listed=listed))
        for event in batch:
            if isinstance(event, (Replaced, NotServed)):
                self._note_served(kind, isinstance(event, Replaced))

    def _note_served(self, kind: Kind, served: bool) -> None:
        """Log one line when all kinds are known, and one when a kind appears or goes."""
        before = self._served.get(kind)
        self._served[kind] = served
        if before is not None and before != served:
            noun, state = NOUNS.get(kind[0], "PodGroup"), "served now" if served else "served no more"
            self._log(f"{noun}s of {kind[0]}/{kind[1]} are {state}")
        elif before is None and len(self._served) == len(WATCHED_POD_GROUPS):
            groups = dict.fromkeys(group for group, _ in WATCHED_POD_GROUPS if group not in NOUNS)
            missing = [group for group in groups if not self._is_served(group)]
            if missing:
                self._log(f"PodGroups are not served of {', '.join(missing)}; pods that name one wait for it")

    def _is_served(self, api_group: str) -> bool:
        return any(served for (group, _), served in self._served.items() if group == api_group)
