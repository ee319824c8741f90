"""Objects of files without control characters, so that printing them cannot control a terminal.

The API server refuses such characters in names, labels, taints and resources. Free text may contain line breaks and
tabs.
"""

from __future__ import annotations

from typing import Any

from dovetail.model.visible import visible, visible_lines

FREE_TEXT = frozenset({"annotations", "args", "binaryData", "command", "data", "env", "stringData"})


def visible_body(body: Any) -> Any:
    """The same object, changed in place: control characters in keys and values are written as escapes (`\\x1b`).

    Works without recursion, as hostile objects may be deep. Parts shared by YAML aliases are processed once for each
    use; a document has a bounded number of these (yaml_text.py).
    """
    if isinstance(body, str):
        return visible_lines(body)
    left: list[tuple[Any, bool]] = [(body, False)]
    while left:
        part, free = left.pop()
        if isinstance(part, dict):
            if not all(key.isprintable() for key in part if isinstance(key, str)):
                renamed = {visible(key) if isinstance(key, str) else key: value for key, value in part.items()}
                part.clear()
                part.update(renamed)
            items: Any = part.items()
        elif isinstance(part, list):
            items = enumerate(part)
        else:
            continue
        for key, value in items:
            if isinstance(value, str):
                if not value.isprintable():
                    part[key] = (visible_lines if free or key in FREE_TEXT else visible)(value)
            elif isinstance(value, (dict, list)):
                left.append((value, free or key in FREE_TEXT))
    return body
