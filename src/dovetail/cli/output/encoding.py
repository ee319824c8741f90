"""Documents for programs: JSON or YAML of plain dicts, keys in the order in which they were written."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dovetail.model.visible import INVISIBLE

FORMATS = ("json", "yaml")


def encode(document: Mapping[str, object], form: str) -> str:
    """Without the final line break."""
    if form == "json":
        import json

        return visible_json(json.dumps(document, indent=2, ensure_ascii=False))
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120)
    if _LEFT_AS_IT_IS.search(text):  # all that is not ASCII becomes an escape in double quotes
        text = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=False, width=120)
    return text.rstrip("\n")


_LEFT_AS_IT_IS = re.compile(f"(?!\n)[{INVISIBLE}]")


def visible_json(text: str) -> str:
    """A JSON text in which characters that control a terminal are escapes (`\\u009b`): encoders escape C0 only."""
    return _LEFT_AS_IT_IS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
