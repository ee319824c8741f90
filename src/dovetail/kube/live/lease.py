"""A Lease of the API server, and the annotations by which other Dovetails recognise ours."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import ClassVar

import msgspec

ROOT = "/apis/coordination.k8s.io/v1"
CLOCK_SKEW = 5.0  # seconds: creation times are by the API server's clock, and the time of the Lease is by ours
LEASE_KIND = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


class Marks(msgspec.Struct, frozen=True):
    """Which pods and nodes a Dovetail serves."""

    LABEL: ClassVar[str] = "dovetail.dev/scheduler"
    NAMES: ClassVar[str] = "dovetail.dev/scheduler-names"
    SELECTOR: ClassVar[str] = "dovetail.dev/node-selector"
    SEALED: ClassVar[str] = "dovetail.dev/sealed-since"

    names: tuple[str, ...] = ()  # spec.schedulerName of the pods that it schedules; () = not known
    selector: tuple[tuple[str, str], ...] = ()  # labels of the nodes on which it places; () = all nodes
    keys: tuple[str, ...] = ()  # fingerprints of the keys that seal records
    sealed_since: float = inf  # when records were first sealed with them: seconds since 1970

    def metadata(self) -> dict[str, dict[str, str]]:
        nodes = {self.SELECTOR: self.nodes} if self.selector else {}
        sealed = {self.SEALED: f"{self.sealed_since:.0f} {','.join(self.keys)}"} if self.sealed_since < inf else {}
        return {"labels": {self.LABEL: "true"}, "annotations": {self.NAMES: ",".join(self.names), **nodes, **sealed}}

    def sealing_after(self, annotations: Mapping[str, str], now: float) -> Marks:
        """The marks for the next holder of a Lease with these annotations.

        The start of sealing stays while no key was dropped. Records sealed with a dropped key cannot be checked, and
        count as records without a seal.
        """
        before = Marks.of(annotations)
        if not self.keys:
            return self
        goes_on = before.sealed_since < inf and set(before.keys) <= set(self.keys)
        return msgspec.structs.replace(self, sealed_since=before.sealed_since if goes_on else now + CLOCK_SKEW)

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> Marks:
        names = tuple(name for name in annotations.get(cls.NAMES, "").split(",") if name)
        pairs = [one.partition("=") for one in annotations.get(cls.SELECTOR, "").split(",") if "=" in one]
        since, _, keys = annotations.get(cls.SEALED, "").partition(" ")
        sealed = (tuple(keys.split(",")), float(since)) if since.isdecimal() and len(since) < 16 else ((), inf)
        return cls(names, tuple((label, value) for label, _, value in pairs), *sealed)

    @property
    def nodes(self) -> str:
        return ",".join(f"{label}={value}" for label, value in self.selector) or "all"


UNMARKED = Marks()


class LeaseMeta(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class LeaseSpec(msgspec.Struct, rename="camel", frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True):
    metadata: LeaseMeta = LeaseMeta()
    spec: LeaseSpec = LeaseSpec()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def marks(self) -> Marks:
        return Marks.of(self.metadata.annotations)


class LeaseList(msgspec.Struct, frozen=True):
    items: list[Lease] = []
