"""The log that the parts of the live scheduler write to: a message, a level and named fields.

`cli/output/logs.py` prints it. A message is complete: `train/worker-3 is bound to gpu-7`. The fields repeat its
facts under fixed names (`pod`, `node`, `path` …), so that a log store can filter by them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

Field = str | int | float | bool
# Every field that a message may have, beside time, level and message; docs/logs.md has the same table.
LOG_FIELDS = {
    "pod": "namespace and name of the pod that the message is about",
    "uid": "the pod's `metadata.uid`: the same name may be another pod later",
    "node": "the node that the message is about, or where the pod is bound",
    "cards": "the GPUs that a placed pod was given, by their ids, with commas between them",
    "card": "the GPU on which the ledger and the cluster differ",
    "object": "kind and name of another object; of a file, its place in it",
    "field": "the field of that object that is wrong, as a path",
    "source": "the source of measured load that does not answer, or does again",
    "seconds": "how long it took, or until the next try",
    "count": "of how many objects, differences or kernels the message speaks",
    "nodes": "nodes that are known when the scheduler becomes ready",
    "pods": "pods that are known when the scheduler becomes ready",
    "path": "the path of the API server that the message is about: a list or a watch",
    "paths": "paths of the API server that are not served yet, with commas between them",
    "epoch": "the number of the leadership that begins",
    "folder": "the folder of the journal",
    "repeats": "how often the previous message was repeated within 10 seconds",
}


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
