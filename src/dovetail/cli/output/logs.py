"""The log of `dovetail scheduler`: one line per message on stderr, as text or as JSON."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from dovetail.kube.log import DEBUG, INFO, Field, Level
from dovetail.kube.objects.problems import printable

HIDDEN = "[hidden]"
# Texts that are secret wherever they stand. Nothing logs them; an error of a library or a server may quote them.
_SECRETS = re.compile(
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON web token, as ServiceAccounts have
    r"|(?<=[Bb]earer )[^\s\"',;]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)",  # user and password of a URL
    re.DOTALL,
)
MAX_MESSAGE = 2_000  # characters of a line
MAX_FIELD = 300  # characters of a field
REPEAT_SECONDS = 10.0  # the same message within this time is counted instead of printed


class Logger:
    """Prints messages of at least the level `lowest`.

    A message that repeats the previous one is counted, and the count is printed later. Text lines have time, level and
    message; JSON lines also have the fields.
    """

    def __init__(self, lowest: Level = INFO, *, as_json: bool = False, clock: Callable[[], float] = time.time) -> None:
        self._lowest, self._json, self._clock = lowest, as_json, clock
        self._last: tuple[Level, str] = (DEBUG, "")
        self._repeats, self._at = 0, 0.0

    def __call__(self, message: str, level: Level = INFO, /, **fields: Field) -> None:
        if level < self._lowest:
            return
        now = self._clock()
        if (level, message) == self._last and now - self._at < REPEAT_SECONDS:
            self._repeats += 1
            return
        self.flush()
        self._last, self._at = (level, message), now
        self._print(now, level, message, fields)

    def flush(self) -> None:
        """Print how often the last message was repeated."""
        count, self._repeats = self._repeats, 0
        if count:
            level, message = self._last
            self._print(self._clock(), level, f"{count} times more: {message}", {"repeats": count})

    def _print(self, now: float, level: Level, message: str, fields: dict[str, Field]) -> None:
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message, name = printable(without_secrets(message), MAX_MESSAGE), level.name.lower()
        if self._json:
            record: dict[str, Field] = {"time": stamp, "level": name, "message": message}
            for key, value in fields.items():
                record.setdefault(
                    key, printable(without_secrets(value), MAX_FIELD) if isinstance(value, str) else value
                )
            line = msgspec.json.encode(record).decode()
        else:
            line = f"{stamp} {name:<7} {message}"
        with suppress(OSError, ValueError):  # a closed stderr must not end the scheduler
            print(line, file=sys.stderr, flush=True)


def without_secrets(text: str) -> str:
    """The text with tokens, private keys and passwords of URLs replaced."""
    return _SECRETS.sub(HIDDEN, text)
