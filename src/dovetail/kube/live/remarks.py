"""What is wrong or doubtful in a pending pod's request, as Events on the pod: each once, by pod and text.

The condition says why a pod waits. A pod with a mistake in an annotation may be placed at once, so only an Event can
report the mistake.
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
        """Send problems that were not sent yet; of notes only those meant for people."""
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
        """Forget a pod that is placed or gone."""
        self._told.pop(uid, None)


def once_a_pod(pod: Pod, reason: str, text: str) -> Note:
    """A warning that the API server accepts only once for a pod, also after a restart."""
    once = blake2b(f"{pod.uid} {reason}".encode(errors="replace"), digest_size=8).hexdigest()
    return Note(pod, reason, text, warning=True, action="Reading", once=once)
