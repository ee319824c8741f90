"""Reads the history of a cluster for `trace import`: from dumps, from the live cluster, or from a journal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail.cli import planning
from dovetail.cli.errors import Refused
from dovetail.cli.journals import JournalReader
from dovetail.cli.options import ClusterOptions
from dovetail.cli.sources import GatheredInput, clock, read_live
from dovetail.kube.conversion import dumps
from dovetail.kube.conversion.dumps import MergedDumps
from dovetail.kube.conversion.gangs import ALONE
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files import documents
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.sim.imported import ImportedTrace, Running, imported
from dovetail.whatif import history as histories
from dovetail.whatif.happenings import happenings
from dovetail.whatif.history import ClusterHistory

MOST_NAMED_REASONS = 5


@dataclass(frozen=True, slots=True)
class HistorySources:
    """Where the history comes from, as the command line says."""

    filenames: tuple[str, ...] = ()
    live: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    journal: str | None = None
    device_config: str | None = None

    def check(self) -> None:
        """Raise Refused unless there is one kind of history."""
        if self.journal and (self.filenames or self.live):
            raise Refused("--journal is a history of its own; leave it out, or leave out -f and --live")
        if not (self.journal or self.filenames or self.live):
            raise Refused(
                "no history to import: name dumps of nodes and pods with -f, or say --live, or --journal DIR",
            )


@dataclass(frozen=True, slots=True)
class ReadHistory:
    history: ClusterHistory
    problems: tuple[Problem, ...] = ()


def read(asked: HistorySources) -> ReadHistory:
    """Raises Refused."""
    return _of_journal(asked.journal) if asked.journal else _of_dumps(asked)


def _of_dumps(asked: HistorySources) -> ReadHistory:
    options = ClusterOptions(
        filenames=asked.filenames,
        live=asked.live,
        kubeconfig=asked.kubeconfig,
        context=asked.context,
        device_config=asked.device_config,
        unknown_pod_group=ALONE,
    )
    found = MergedDumps()

    def sources(settings: Settings, problems: Problems) -> GatheredInput:
        nonlocal found
        given = documents.read(asked.filenames, problems, sys.stdin.buffer)
        now = clock() if asked.live else None
        cluster = read_live(options, settings.vendors).documents if asked.live else ()
        found = dumps.merged((*given, *cluster), settings.vendors, problems, now)
        return GatheredInput(found.documents)

    case, _ = planning.read_sources(options, sources)
    return ReadHistory(dumps.history_of(case.given, found), case.given.problems)


def _of_journal(place: str) -> ReadHistory:
    journal = JournalReader.of(place)
    found = histories.history_of(happenings(journal.parts()))
    journal.tell()
    return ReadHistory(found)


def trace_of(history: ClusterHistory, running: Running, anonymous: bool) -> ImportedTrace:
    """The trace. Raises Refused if nothing could be replayed."""
    if not history.nodes:
        raise Refused("there is no Node in it, and a trace needs machines: add -f with `kubectl get nodes -o json`")
    made = imported(histories.anonymous(history) if anonymous else history, running)
    if not made.trace.jobs:
        some = list(made.left_out.items())[:MOST_NAMED_REASONS]
        raise Refused(
            "there is no pod that a trace can have", *(f"{len(names):,} left out: {why}" for why, names in some)
        )
    return made


def targets(out: Path, suffix: str) -> tuple[Path, Path, Path]:
    """The files of jobs, of nodes, and of what the trace does not say."""
    return out / f"jobs{suffix}", out / f"nodes{suffix}", out / "import.json"


def write_details(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror or error}") from error


def counted(names: Sequence[str]) -> str:
    """`ml/a, ml/b and 3 more`"""
    shown = ", ".join(names[:MOST_NAMED_REASONS])
    more = len(names) - MOST_NAMED_REASONS
    return shown if more <= 0 else f"{shown} and {more:,} more"
