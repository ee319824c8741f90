"""Many lone pods that differ from a few templates only in their names, as in a replay or a large Deployment.

`Scheduler.place` takes any sequence of groups. For a stream it checks only the templates, and is ten times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from dovetail.model.pod import Group, Pod
from dovetail.policies.rows import Ints


class Pods(NamedTuple):
    """Pods side by side. If a template has another UID, the pod is the template with the pod's UID."""

    uids: Sequence[str]
    templates: npt.NDArray[Any]  # of Pod


def pods_of(pods: Sequence[Pod]) -> Pods:
    templates = np.empty(len(pods), dtype=object)
    templates[:] = pods
    return Pods([pod.uid for pod in pods], templates)


class Stream(Sequence[Group]):
    """A sequence of groups: pod n is `templates[kinds[n]]` with the name and UID `uids[n]`."""

    __slots__ = ("_template", "kinds", "templates", "uids")

    def __init__(self, templates: Sequence[Pod], kinds: Ints, uids: Sequence[str]) -> None:
        if len(kinds) != len(uids):
            raise ValueError(f"kinds: one per pod is needed, got {len(kinds)} for {len(uids)} pods")
        self.templates, self.kinds, self.uids = tuple(templates), kinds, uids
        self._template = pods_of(self.templates).templates

    def __len__(self) -> int:
        return len(self.uids)

    def __iter__(self) -> Iterator[Group]:
        return (self._group(n) for n in range(len(self)))

    @overload
    def __getitem__(self, n: int) -> Group: ...
    @overload
    def __getitem__(self, n: slice) -> Stream: ...
    def __getitem__(self, n: int | slice) -> Group | Stream:
        if isinstance(n, slice):
            return Stream(self.templates, self.kinds[n], self.uids[n])
        return self._group(range(len(self))[n])

    def counted(self) -> list[tuple[Pod, int]]:
        """The templates in use, and how often each is used."""
        times = np.bincount(self.kinds, minlength=len(self.templates)).tolist()
        return [(pod, count) for pod, count in zip(self.templates, times, strict=True) if count]

    def pods(self) -> Pods:
        return Pods(self.uids, self._template[self.kinds])

    def _group(self, n: int) -> Group:
        pod = self.templates[self.kinds[n]].named(self.uids[n])
        return Group(pod.key, (pod,))
