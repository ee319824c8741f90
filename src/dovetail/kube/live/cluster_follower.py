"""Keeps a whole cluster up to date by watches, as documents, for commands that show it as it changes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from dovetail.kube.api.client import Api
from dovetail.kube.api.reflector import Reflector
from dovetail.kube.api.tasks import end_tasks
from dovetail.kube.api.watch import Changed, Deleted, Event, NotServed, Replaced
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.documents import Document
from dovetail.kube.live.cluster_lists import CLUSTER_KINDS, MUST_BE_READ, ListedKind, document_of, is_past, once_each
from dovetail.kube.log import Log, silent

Name = tuple[str, str]  # namespace, name


class ClusterFollower:
    """One watch for each kind. `await run()` in a task; cancel it to stop."""

    def __init__(self, api: Api, vendors: Vendors, report: Log = silent) -> None:
        self.changed = asyncio.Event()  # something is different since the caller cleared it
        self._api, self._vendors = api, vendors
        self._objects: dict[ListedKind, dict[Name, Document]] = {kind: {} for kind in CLUSTER_KINDS}
        self._heard: set[ListedKind] = set()
        self.refused: set[ListedKind] = set()  # kinds that are not served, or that may not be read
        self._reflectors = [
            Reflector(
                api,
                kind.path,
                kind.type,
                partial(self._hear, kind),
                report=report,
                first_version="",
                without="" if kind.path in MUST_BE_READ else f"{kind.resource} are not shown",
            )
            for kind in CLUSTER_KINDS
        ]

    async def run(self) -> None:
        """Follow until cancelled. Raises ApiError at the start if nodes or pods cannot be read."""
        for path in sorted(MUST_BE_READ):
            await self._api.get(path, {"limit": "1"})
        tasks = [asyncio.create_task(reflector.run()) for reflector in self._reflectors]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            await end_tasks(lambda: tasks)

    @property
    def complete(self) -> bool:
        """Whether every kind was listed once, or is known not to be served."""
        return len(self._heard) == len(CLUSTER_KINDS)

    def documents(self) -> tuple[Document, ...]:
        """Everything as last reported, by kind, namespace and name."""
        return once_each(document for objects in self._objects.values() for document in objects.values())

    def _hear(self, kind: ListedKind, batch: list[Event[Any]]) -> None:
        known, before = self._objects[kind], len(self._heard)
        self._heard.add(kind)
        is_news = len(self._heard) != before
        for event in batch:
            if isinstance(event, Replaced):
                unreadable = {(one.ref.namespace, one.ref.name) for one in event.unreadable}
                kept = {name: one for name, one in known.items() if name in unreadable}
                known.clear()
                known.update(kept)
                for item in event.items:
                    self._set(kind, item)
                is_news = True
            elif isinstance(event, Changed):
                is_news = self._set(kind, event.object) or is_news
            elif isinstance(event, Deleted):
                is_news = known.pop((event.ref.namespace, event.ref.name), None) is not None or is_news
            elif isinstance(event, NotServed):
                known.clear()
                self.refused.add(kind)
        if is_news:
            self.changed.set()

    def _set(self, kind: ListedKind, item: Any) -> bool:
        """Whether anything that we read of the object is different."""
        known, name = self._objects[kind], (item.metadata.namespace, item.metadata.name)
        if is_past(item):
            return known.pop(name, None) is not None
        document = document_of(kind, item, self._vendors)
        if known.get(name) == document:
            return False
        known[name] = document
        return True
