"""`python -m tests.live.poisoned_dovetail scheduler …`: `dovetail` with a reader that raises for one pod name.

The fault is put in here, from outside: nothing in the product knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.cli.main import main
from dovetail.kube.live.reader import NO_LABELS, PodReader
from dovetail.kube.objects import core as objects

POISONED = "poisoned"


def poison() -> None:
    original = PodReader.pod

    def pod(self: PodReader, source: objects.Pod, namespace: Mapping[str, str] = NO_LABELS) -> Any:
        if source.metadata.name == POISONED:
            raise KeyError("poison")
        return original(self, source, namespace)

    PodReader.pod = pod  # type: ignore[method-assign]


if __name__ == "__main__":
    poison()
    main()
