"""HTML that is safe by construction: whatever is not markup already is escaped."""

from __future__ import annotations

import html
import json

from dovetail.model.visible import visible_lines


def _text(text: str) -> str:
    """Escaped for HTML; marks of the writing direction and control characters as visible escapes."""
    return html.escape(visible_lines(text))


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def tag(name: str, *children: str | None, **attributes: str | int | None) -> Html:
    """`class_="a"` is class="a", `data_key` is data-key. Attributes and children that are None are left out."""
    own = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_text(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{own}>{join(*children)}</{name}>")


def join(*children: str | None) -> Html:
    return Html("".join(child if isinstance(child, Html) else _text(child or "") for child in children))


def unbroken(text: str) -> Html:
    """Words with a hyphen (best-fit, GPU-hours) stay on one line, unless they are long."""
    words = text.split(" ")
    return Html(" ".join(tag("span", w, class_="word") if "-" in w and len(w) < 24 else join(w) for w in words))


def json_block(name: str, value: object) -> Html:
    """Data for scripts. `<` is written as an escape, so that no text of it can end the block."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="{html.escape(name)}">{safe}</script>')
