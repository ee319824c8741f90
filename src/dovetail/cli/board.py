"""The state of a cluster for `get` and `top`: the engine's overview, and what only the API objects say of pods."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.cli import planning
from dovetail.cli.options import ClusterOptions
from dovetail.cli.sources import GatheredInput, gather
from dovetail.engine.kernel.collector import collector_off
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files.documents import Document
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.model.decision import Share
from dovetail.model.pod import Pod
from dovetail.model.signals import NodeSignals
from dovetail.whatif import overview as whatif
from dovetail.whatif.overview import Overview
from dovetail.whatif.room import NodeRoom, node_room
from dovetail.whatif.situation import start


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the status of a pod says."""

    phase: str = ""
    reason: str = ""  # of the condition PodScheduled, while it is False
    message: str = ""


NOTHING_SAID = PodFacts()


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """The last values of the sources of measured load, and what is wrong with the sources."""

    nodes: Mapping[str, NodeSignals] = field(default_factory=dict)  # by name
    remark: str = ""  # "" = all sources are well


NO_LOAD_IN_FILES = MeasuredLoad(remark="files have none, only a live cluster")


@dataclass(frozen=True, slots=True)
class Board:
    overview: Overview
    now: float
    facts: Mapping[str, PodFacts] = field(default_factory=dict)  # by "namespace/name"
    reasons: Mapping[str, str] = field(default_factory=dict)  # uid -> why it would wait, for pods without a condition
    problems: tuple[Problem, ...] = ()
    load: MeasuredLoad = NO_LOAD_IN_FILES

    @property
    def rooms(self) -> dict[str, NodeRoom]:
        return {use.node.name: node_room(use) for use in self.overview.nodes}

    def why(self, pod: Pod) -> str:
        """Why the pod waits: the scheduler's words if it has written any, else what a plan finds."""
        facts = self.facts.get(pod.key, NOTHING_SAID)
        if facts.message:
            return facts.message
        return self.reasons.get(pod.uid, "") or facts.reason

    def holdings(self) -> dict[str, tuple[Share, ...]]:
        """uid -> what a running pod has of which cards."""
        return {held.pod.uid: held.shares or () for held in self.overview.running}


FindSources = Callable[[Settings, Problems], GatheredInput]


@collector_off()
def read(asked: ClusterOptions, sources: FindSources | None = None, explained: bool = True) -> Board:
    """The board of what the options name. `explained`: pods without a condition are asked for in a plan."""
    find = sources or (lambda settings, problems: gather(asked, settings, problems, sys.stdin.buffer))
    case, found = planning.read_sources(asked, find)
    options = planning.runnable(case)
    try:
        begun = start(case.given, options)
        seen = whatif.overview(case.given, begun.scheduler)
        facts = facts_of(found.documents)
        unsaid = explained and any(not facts.get(one.pod.key, NOTHING_SAID).message for one in seen.waiting)
        reasons = whatif.reasons(case.given, options, begun) if unsaid else {}
    except ValueError as error:
        raise planning.refused_arguments(case, error) from error
    return Board(seen, case.now, facts, reasons, case.given.problems)


def facts_of(documents: Iterable[Document]) -> dict[str, PodFacts]:
    """By "namespace/name"."""
    found = {}
    for document in documents:
        if document.kind != "Pod" or document.group:
            continue
        meta, status = document.body.get("metadata"), document.body.get("status")
        if isinstance(meta, dict) and isinstance(status, dict):
            found[f"{meta.get('namespace') or 'default'}/{meta.get('name', '')}"] = _facts(status)
    return found


def _facts(status: Mapping[str, Any]) -> PodFacts:
    phase = str(status.get("phase") or "")
    conditions = status.get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and one.get("type") == "PodScheduled" and one.get("status") == "False":
            return PodFacts(phase, str(one.get("reason") or ""), str(one.get("message") or ""))
    return PodFacts(phase)
