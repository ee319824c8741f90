"""The log that the parts of the live scheduler write to: a message, a level and named fields.

`cli/output/logs.py` prints it. A message is complete: `train/worker-3 is bound to gpu-7`. The fields repeat its
facts under fixed names (`pod`, `node`, `path` …), so that a log store can filter by them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

Field = str | int | float | bool


class Level(IntEnum):
    """How much a message matters."""

    DEBUG = 10  # one line for each placement: for a person who follows single pods
    INFO = 20  # start, stop, leadership, retries that succeeded
    WARNING = 30  # a pod or a node is affected, or soon will be
    ERROR = 40  # the scheduler cannot do its work


DEBUG, INFO, WARNING, ERROR = Level


class Log(Protocol):
    """Called as `log("text")`, `log("text", WARNING)` or `log("text", DEBUG, pod="ns/name", node="gpu-7")`."""

    def __call__(self, message: str, level: Level = INFO, /, **fields: Field) -> None: ...


def silent(message: str, level: Level = INFO, /, **fields: Field) -> None:
    """A log that drops everything."""
