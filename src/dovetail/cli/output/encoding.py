"""Encodes documents for programs: JSON or YAML of plain dicts, with keys in the order of insertion."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dovetail.model.visible import INVISIBLE

FORMATS = ("json", "yaml")


def encode(document: Mapping[str, object], form: str) -> str:
    """The document as text, without the final line break."""
    if form == "json":
        import json

        return visible_json(json.dumps(document, indent=2, ensure_ascii=False))
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120)
    if _LEFT_AS_IT_IS.search(text):  # then write all non-ASCII characters as escapes in double quotes
        text = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=False, width=120)
    return text.rstrip("\n")


_LEFT_AS_IT_IS = re.compile(f"(?!\n)[{INVISIBLE}]")


def visible_json(text: str) -> str:
    """The JSON text with terminal control characters escaped (`\\u009b`): encoders only escape those of C0."""
    return _LEFT_AS_IT_IS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def encode_line(document: Mapping[str, object]) -> str:
    """The document as one line of JSON, for lists that may be long."""
    import json

    return visible_json(json.dumps(document, ensure_ascii=False))
