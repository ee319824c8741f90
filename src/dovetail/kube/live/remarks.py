"""What is wrong or doubtful about a pending pod's request, as events on the pod: each once, by pod and text.

The condition says why a pod waits; a pod with a slip in an annotation may be placed at once, so that only an event can
say it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from dovetail.kube.live.tell import Note
from dovetail.kube.objects.problems import Problem
from dovetail.model.pod import Pod

MOST_PER_POD = 10  # events
REASONS = {"error": "InvalidRequest", "warning": "DoubtfulRequest", "note": "RequestRead"}


class Remarks:
    def __init__(self) -> None:
        self._told: dict[str, set[str]] = {}  # pod uid -> texts

    def about(self, pod: Pod, problems: Iterable[Problem], tell: Callable[[Note], None]) -> None:
        """Send what was not sent yet; of notes only those that are to be told."""
        told = self._told.setdefault(pod.uid, set())
        for problem in problems:
            text = f"{problem.field}: {problem.message}" if problem.field else problem.message
            silent = problem.severity == "note" and not problem.tell
            if silent or text in told or len(told) >= MOST_PER_POD:
                continue
            told.add(text)
            once = blake2b(f"{pod.uid} {text}".encode(errors="replace"), digest_size=8).hexdigest()
            warning = problem.severity != "note"
            tell(Note(pod, REASONS[problem.severity], text, warning=warning, action="Reading", once=once))

    def forget(self, uid: str) -> None:
        """The pod is placed or gone."""
        self._told.pop(uid, None)


def once_a_pod(pod: Pod, reason: str, text: str) -> Note:
    """A warning of which the API server refuses a second one for the same pod, after a restart as well."""
    once = blake2b(f"{pod.uid} {reason}".encode(errors="replace"), digest_size=8).hexdigest()
    return Note(pod, reason, text, warning=True, action="Reading", once=once)
