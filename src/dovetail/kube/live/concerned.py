"""The pods that an event is about."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.model.events import Event, PodGone, PodObserved, PodsGone


def concerned(event: Event) -> Sequence[str]:
    """UIDs of the pods that now have a place, or are gone."""
    match event:
        case PodObserved(_, running):
            return (running.pod.uid,)
        case PodGone(_, uid):
            return (uid,)
        case PodsGone(_, uids):
            return uids
    return ()
