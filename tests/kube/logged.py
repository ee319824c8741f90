"""A log that remembers what it was told."""

from __future__ import annotations

from dovetail.kube.log import DEBUG, INFO, Field, Level


class Logged(list[str]):
    """The messages above debug, as a list; `records` has all of them with level and fields."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[Level, str, dict[str, Field]]] = []

    def __call__(self, message: str, level: Level = INFO, /, **fields: Field) -> None:
        self.records.append((level, message, fields))
        if level > DEBUG:
            self.append(message)
