"""Characters in users' text that must not reach a terminal, and what is shown instead.

These are control characters (C0, DEL, C1), line and paragraph separators, marks and overrides of the writing direction,
and half characters. A taint that holds `ESC ] 0 ;` would rename the terminal window; U+202E shows text backwards.
"""

from __future__ import annotations

import re

# U+061C, 200E, 200F, 202A-202E, 2066-2069: direction; FEFF, FFF9-FFFB: byte order mark, interlinear annotations
INVISIBLE = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb"
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_BUT_BREAKS = re.compile(f"(?![\n\t])[{INVISIBLE}]")


def visible(text: str) -> str:
    """The text with each such character written as an escape: `\\x1b`, `\\u202e`, `\\n`."""
    return text if text.isprintable() else _INVISIBLE.sub(_escape, text)


def visible_lines(text: str) -> str:
    """As `visible`, but line feeds and tabs stay: for text of several lines."""
    return text if text.isprintable() else _BUT_BREAKS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")
