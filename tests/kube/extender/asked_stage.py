"""The extender on the driver's stage: kube-scheduler's requests are made by the test, and binds are collected."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from dovetail.kube.conversion.settings import Settings
from dovetail.kube.extender.desk import Desk
from dovetail.kube.extender.extender import Extender, ExtenderOptions
from dovetail.kube.extender.protocol import BindArgs, FilterArgs, FilterResult
from dovetail.kube.live.binder import Binder, Fate, Outcome
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.service import LiveScheduler, Options
from dovetail.model.events import Bind
from tests.kube.live.stage import Hands, Stage, bound, read, waiting
from tests.kube.manifests import Object


class Sender(Hands):
    """In place of the binder: a bind is under way until the test gives its outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.sending: set[str] = set()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.under_way = cast(Any, self.tasks)

    def submit(self, bind: Bind, claimed: Any = tuple) -> None:
        self.binds.append(bind)
        self.tasks[bind.pod.uid] = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]

    def end(self, uid: str) -> None:
        self.tasks.pop(uid).cancel()


class AskedStage(Stage):
    def __init__(self, bind_seconds: float = 60.0, **more: Any) -> None:
        super().__init__(**more)
        self.sender = Sender()
        self.gone: set[str] = set()
        self.hands = self.sender
        self.driver.binder = cast(Binder, self.sender)
        self.driver.teller = cast(Any, self.sender)
        profiles = {"dovetail": Settings()}
        self.service = SimpleNamespace(
            ready=True,
            state="ready",
            options=Options("me", profiles),
            mirror=self.mirror,
            reader=PodReader(profiles),
            now=lambda: self.clock,
            driver=self.driver,
        )
        self.extender = Extender(cast(LiveScheduler, self.service), ExtenderOptions(60.0, bind_seconds), self.log)
        self.service.prepare(self.driver)

    async def __aenter__(self) -> AskedStage:
        await super().__aenter__()
        return self

    @property
    def desk(self) -> Desk:
        assert self.extender.desk is not None
        return self.extender.desk

    def filter(self, item: Object, *nodes: str) -> FilterResult:
        """kube-scheduler asks about a pod that was reported to us, too."""
        uid = item["metadata"]["uid"]
        if uid not in self.mirror.pods and uid not in self.gone:
            self.pods(item)
        return self.extender.filter_now(FilterArgs(read(item), names=nodes))

    def pod_gone(self, item: Object) -> None:
        self.gone.add(item["metadata"]["uid"])
        super().pod_gone(item)

    def ask_to_bind(self, item: Object, node: str) -> asyncio.Task[str]:
        meta = item["metadata"]
        return asyncio.create_task(self.extender.bind(BindArgs(meta["name"], meta["namespace"], meta["uid"], node)))

    def outcome(self, fate: Fate, uid: str, item: Object | None = None, message: str = "") -> Bind:
        """The binder reports the result of the pod's last bind."""
        bind = next(one for one in reversed(self.sender.binds) if one.pod.uid == uid)
        self.sender.end(uid)
        self.driver.outcomes.take(Outcome(bind, fate, message, read(item) if item is not None else None))
        return bind


def decoded(body: bytes) -> Any:
    return msgspec.json.decode(body)


__all__ = ["AskedStage", "bound", "decoded", "waiting"]
