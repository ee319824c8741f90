"""Units of amounts. This module imports nothing: the help of commands reads it, and must come at once."""

from __future__ import annotations

WHOLE_CARD = 1000  # milli
