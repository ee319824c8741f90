"""HTML that is safe by construction: every text that is not `Html` is escaped."""

from __future__ import annotations

import html
import json

from dovetail.model.visible import visible_lines


def _text(text: str) -> str:
    """The text escaped for HTML; control characters and text-direction marks become visible escapes."""
    return html.escape(visible_lines(text))


class Html(str):
    """Markup, in contrast to text."""

    __slots__ = ()


def tag(name: str, *children: str | None, **attributes: str | int | None) -> Html:
    """An element. `class_="a"` is class="a", `data_key` is data-key; None attributes and children are left out."""
    own = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_text(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{own}>{join(*children)}</{name}>")


def join(*children: str | None) -> Html:
    return Html("".join(child if isinstance(child, Html) else _text(child or "") for child in children))


def unbroken(text: str) -> Html:
    """The text with short hyphenated words (best-fit, GPU-hours) kept on one line."""
    words = text.split(" ")
    return Html(" ".join(tag("span", w, class_="word") if "-" in w and len(w) < 24 else join(w) for w in words))


def json_block(name: str, value: object) -> Html:
    """A block of JSON for scripts. `<` is escaped, so that no text in it can end the block."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="{html.escape(name)}">{safe}</script>')
