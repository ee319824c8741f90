"""Which resources are listed and watched, and which part handles them. One reflector for each resource."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from dovetail.kube.api.client import Api
from dovetail.kube.api.reflector import Reflector
from dovetail.kube.api.typed import Unreadable
from dovetail.kube.api.watch import Changed, Deleted, Event, Replaced
from dovetail.kube.conversion.quotas import quota_from
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.decode import Found
from dovetail.kube.live.budget_mirror import BUDGETS_PATH, BudgetMirror
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.hami_lock import HamiLocks
from dovetail.kube.live.pod_group_status_writer import PodGroupStatusWriter
from dovetail.kube.live.pod_group_watches import PodGroupWatches
from dovetail.kube.live.queue_mirror import QueueMirror
from dovetail.kube.live.queue_status_writer import QueueStatusWriter
from dovetail.kube.live.queue_watches import QueueWatches
from dovetail.kube.live.selector_mirror import WATCHED, SelectorMirror
from dovetail.kube.live.set_aside import Fault
from dovetail.kube.live.topology_mirror import TopologyMirror
from dovetail.kube.live.topology_watches import TopologyWatches
from dovetail.kube.live.unrouted_pods import UnroutedPods
from dovetail.kube.live.volume_mirror import PATHS, TYPES, VolumeMirror
from dovetail.kube.log import WARNING, Log
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.budgets import PodDisruptionBudget
from dovetail.kube.objects.problems import Problems
from dovetail.model.events import QuotaChanged, VolumesChanged
from dovetail.model.pod import Quota

NEWEST_VERSION = ""  # list the newest state, not the watch cache's


class Sources:
    def __init__(
        self,
        api: Api,
        driver: Driver,
        volumes: VolumeMirror,
        locks: HamiLocks,
        vendors: Vendors,
        now: Callable[[], float],
        log: Log,
        spreads: bool = True,  # some profile spreads pods by default
        preempts: bool = True,  # pods may be stopped for others
        names: Collection[str] = (),  # our scheduler names
    ) -> None:
        self._driver, self._volumes, self._locks, self._vendors = driver, volumes, locks, vendors
        self._now, self._log = now, log
        self.unrouted = UnroutedPods(vendors, names, driver.mirror.namespaces.labels_of, log)
        watch = partial(Reflector, api, report=log, first_version=NEWEST_VERSION)
        pod_groups = PodGroupWatches(driver, watch, self._complain, log)
        self.namespaces: Reflector[Any] = watch("/api/v1/namespaces", objects.Namespace, self._namespaces)
        self.reflectors: list[Reflector[Any]] = [
            self.namespaces,
            watch("/api/v1/nodes", objects.Node, self._nodes),
            watch("/api/v1/pods", objects.Pod, self._pods, on_watch=pod_groups.pods_watched),
            watch("/api/v1/resourcequotas", objects.ResourceQuota, self._quotas),
            *(watch(path, TYPES[kind], partial(self._volume_objects, kind)) for kind, path in PATHS.items()),
            *pod_groups.reflectors.values(),
        ]
        self._selectors, self._budgets, self.queues = SelectorMirror(now), BudgetMirror(now), QueueMirror(now, vendors)
        for kind, (path, type_) in WATCHED.items() if spreads else ():
            without = f"pods are not spread by their {kind}s by default"
            self.reflectors.append(watch(path, type_, partial(self._selecting, kind), without=without))
        self.first: list[Reflector[Any]] = [self.namespaces]  # what they say must be known before pods are read
        if preempts:
            self._watch_for_preemption(watch)
        self._known_quotas: dict[tuple[str, str], Quota] = {}
        self.reflectors += QueueWatches(driver, self.queues, watch, self._complain, log).reflectors
        self._topologies = TopologyWatches(
            driver, TopologyMirror(driver.mirror, now, driver.mirror.topology), watch, self._complain, log
        )
        self.reflectors += self._topologies.reflectors

    def queue_status(self, api: Api, may_write: Callable[[], bool]) -> QueueStatusWriter:
        """Writes what the pods of each queue hold into the status of its object."""
        status = self._driver.scheduler.claims.queues.status
        return QueueStatusWriter(api, self.queues, status, may_write, self._vendors, self._log)

    def pod_group_status(self, api: Api, may_write: Callable[[], bool]) -> PodGroupStatusWriter:
        """Writes the status of PodGroups."""
        return PodGroupStatusWriter(api, self._driver, may_write, self._vendors, self._log)

    def _watch_for_preemption(self, watch: Callable[..., Reflector[Any]]) -> None:
        without = "evictions are refused by budgets that are not known"
        self.reflectors.append(watch(BUDGETS_PATH, PodDisruptionBudget, self._hear_budgets, without=without))
        without = "what PriorityClasses tolerate is not known"
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        self.first.append(watch(path, objects.PriorityClass, self._priority_classes, without=without))
        self.reflectors.append(self.first[-1])

    def _nodes(self, batch: list[Event[objects.Node]]) -> None:
        self._complain("Node", batch)
        self._locks.hear(batch)
        happened = self._driver.mirror.hear_nodes(batch)
        self._driver.happened(happened)
        if happened:
            self._topologies.nodes_changed()
        self._driver.reports.problems()
        self._volumes.notify()
        self._audit_after_a_list(batch)

    def _pods(self, batch: list[Event[objects.Pod]]) -> None:
        self._complain("Pod", batch)
        self._driver.hear_pods(batch)
        self.unrouted.hear(batch)
        self._volumes.notify()
        self._audit_after_a_list(batch)

    def _audit_after_a_list(self, batch: Iterable[Event[Any]]) -> None:
        """Demand an audit: a list follows a watch that was lost, so events may be missing."""
        if any(isinstance(event, Replaced) for event in batch):
            self._driver.audit.demand()

    def _namespaces(self, batch: list[Event[objects.Namespace]]) -> None:
        self._complain("Namespace", batch)
        self._driver.happened(self._driver.mirror.hear_namespaces(batch))
        self.unrouted.namespaces_changed()

    def _priority_classes(self, batch: list[Event[objects.PriorityClass]]) -> None:
        self._complain("PriorityClass", batch)
        self._driver.happened(self._driver.mirror.hear_priority_classes(batch))
        self._driver.reports.problems()

    def _hear_budgets(self, batch: list[Event[PodDisruptionBudget]]) -> None:
        self._complain("PodDisruptionBudget", batch)
        self._driver.happened(self._budgets.hear(batch))
        self._set_aside(self._budgets)

    def _selecting(self, kind: str, batch: list[Event[Any]]) -> None:
        self._complain(kind, batch)
        self._driver.happened(self._selectors.hear(kind, batch))
        self._set_aside(self._selectors)

    def _volume_objects(self, kind: str, batch: list[Event[Any]]) -> None:
        self._complain(kind, batch)
        heard = self._volumes.hear(kind, batch)
        self._set_aside(self._volumes)
        if heard.facts or heard.gone:
            self._driver.happened((VolumesChanged(self._now(), heard.facts, heard.gone),))

    def _quotas(self, batch: list[Event[objects.ResourceQuota]]) -> None:
        self._complain("ResourceQuota", batch)
        for event in batch:
            if isinstance(event, Replaced):
                there = {(one.metadata.namespace, one.metadata.name) for one in event.items}
                there |= {(one.ref.namespace, one.ref.name) for one in event.unreadable}
                for key in [key for key in self._known_quotas if key not in there]:
                    self._drop_quota(key)
                for one in event.items:
                    self._hear_quota(one)
            elif isinstance(event, Changed):
                self._hear_quota(event.object)
            elif isinstance(event, Deleted):
                self._drop_quota((event.ref.namespace, event.ref.name))

    def _hear_quota(self, source: objects.ResourceQuota) -> None:
        """Take in a quota. One that cannot be read keeps its previous form."""
        try:
            self._set_quota(source)
        except Exception as error:
            fault = Fault("ResourceQuota", f"{source.metadata.namespace}/{source.metadata.name}", error)
            self._driver.set_aside.unread([fault])

    def _set_aside(self, mirror: VolumeMirror | SelectorMirror | BudgetMirror) -> None:
        faults, mirror.faults = mirror.faults, []
        self._driver.set_aside.unread(faults)

    def _set_quota(self, source: objects.ResourceQuota) -> None:
        """Set HAMi's limits on memory and compute.

        The API server has already checked the limits that Kubernetes counts.
        """
        meta, problems = source.metadata, Problems()
        where = f"ResourceQuota {meta.namespace}/{meta.name}"
        found = Found(where, "ResourceQuota", "", meta.namespace, meta.name, source)
        read = quota_from(found, self._vendors, problems)
        key = (meta.namespace, meta.name)
        if not read.device_memory_mib and not read.device_compute_milli:
            self._drop_quota(key)
            return
        quota = Quota(read.namespace, read.name, {}, read.device_memory_mib, read.device_compute_milli)
        if self._known_quotas.get(key) != quota:
            self._known_quotas[key] = quota
            self._driver.happened((QuotaChanged(self._now(), *key, quota),))

    def _drop_quota(self, key: tuple[str, str]) -> None:
        if self._known_quotas.pop(key, None) is not None:
            self._driver.happened((QuotaChanged(self._now(), *key, None),))

    def _complain(self, kind: str, batch: Iterable[Event[Any]]) -> None:
        for event in batch:
            bad = event.unreadable if isinstance(event, Replaced) else []
            for one in [event] if isinstance(event, Unreadable) else bad:
                text = f"{kind} {one.ref} cannot be read and is taken as it was before: {one.message}"
                self._log(text, WARNING, object=f"{kind} {one.ref}")
