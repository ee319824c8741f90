"""Explains a decision of the past: repeats all decisions before it, and asks the engine in that situation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.cli.errors import Refused
from dovetail.cli.journals import JournalReader, PodDecision, PodSearch, written_time
from dovetail.cli.output import explanation as explain_text
from dovetail.engine.recorded import RecordedScheduler
from dovetail.engine.why.explain import explain
from dovetail.model.calls import KeptWaiting
from dovetail.model.decision import Decision
from dovetail.model.events import Bind, Effect
from dovetail.model.reason import Reason
from dovetail.whatif.explain import ExplainedPod, of_waiting
from dovetail.whatif.rerun import Rerun


@dataclass(frozen=True, slots=True)
class PastAnswer:
    answer: ExplainedPod
    found: PodDecision
    file: str


def answer(journal: JournalReader, name: str, until: float) -> PastAnswer | None:
    """The explanation of the last decision about the pod; None = there is none. Raises Refused."""
    namespace, _, pod = name.rpartition("/")
    search = PodSearch(namespace or "default", pod, until)
    for begun, entries in journal.parts():
        for recorded in entries:
            search.look(begun.run, recorded)
    found = search.found
    if found is None:
        return None
    rerun = Rerun()
    for begun, entries in journal.parts():
        rerun.begin(begun)
        for recorded in entries:
            effects = rerun.step(recorded)
            if (begun.run, recorded.number) == (found.run, found.number):
                if rerun.engine is None:
                    raise Refused(f"entry {found.number:,} cannot be repeated: {'; '.join(rerun.counts.notes[-1:])}")
                return PastAnswer(_explained(rerun.engine, found, effects), found, begun.source)
    return None


def _explained(engine: RecordedScheduler, found: PodDecision, effects: Sequence[Effect]) -> ExplainedPod:
    pod = found.pod
    if isinstance(found.outcome, KeptWaiting):
        group = engine.waiting.group_of(pod.uid)
        decision = Decision(pod.uid, None, (), Reason(found.outcome.reason), 0)
        return of_waiting(engine, group, pod, decision) if group is not None else ExplainedPod(pod, None, decision)
    uids = [effect.pod.uid for effect in effects if isinstance(effect, Bind)]
    if pod.uid not in uids:
        raise Refused(f"entry {found.number:,}: the decision is another one now: see dovetail journal replay")
    bind = next(effect for effect in effects if isinstance(effect, Bind) and effect.pod.uid == pod.uid)
    node = engine.ledger.nodes[engine.ledger.row_of[str(bind.decision.node)]]
    with engine.trial():  # as it was before: without this pod and those that were placed after it
        engine.ledger.release_all([uid for uid in uids[uids.index(pod.uid) :] if uid in engine.ledger.pods])
        return ExplainedPod(bind.pod, node, bind.decision, explain(engine, bind.pod, bind.decision))


def heading(past: PastAnswer) -> str:
    return f"decided at {written_time(past.found.at)} ({past.file}, entry {past.found.number:,})"


def document(past: PastAnswer) -> dict[str, Any]:
    where = {"at": written_time(past.found.at), "file": past.file, "entry": past.found.number}
    return {**explain_text.document(past.answer, ()), "decided": where}
