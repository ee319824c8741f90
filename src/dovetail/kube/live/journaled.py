"""The live scheduler's engine, with a flight recorder or without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dovetail.engine.claims import Rights
from dovetail.engine.recorded import RecordedScheduler, settings_from
from dovetail.engine.scheduler import Scheduler
from dovetail.kube.journal.recorder import Recorder
from dovetail.kube.journal.writer import Limits
from dovetail.kube.log import Log


@dataclass(frozen=True, slots=True)
class JournalOptions:
    folder: Path
    limits: Limits


class Recordable(Protocol):
    """The options that matter here."""

    @property
    def arguments(self) -> Mapping[str, Mapping[str, Any]]: ...

    @property
    def device_resources(self) -> tuple[str, ...]: ...

    @property
    def journal(self) -> JournalOptions | None: ...


def recorded_or_not(
    options: Recordable, rights: Rights, half_life: float, now: Callable[[], float], log: Log
) -> tuple[Scheduler, Recorder | None]:
    """The engine, and its recorder if a journal is asked for. Raises NoJournal."""
    arguments, resources, journal = options.arguments, options.device_resources, options.journal
    if journal is None:
        return Scheduler(arguments, (), "interpreted", resources, True, rights), None
    told = {"arguments": arguments, "device_resources": resources, "half_life": half_life, "deferred": True}
    engine = RecordedScheduler(settings_from(rights, **told), "interpreted", cache=True)
    recorder = Recorder(engine, journal.folder, journal.limits, now=now, log=log)
    log(f"the journal is written to {journal.folder}", folder=str(journal.folder))
    return engine, recorder
